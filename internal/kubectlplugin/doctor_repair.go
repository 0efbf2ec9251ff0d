package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
)

// The doctor's check of suspicions, actions, and repairers beside us.

// repairers are kinds of objects that name the conditions of nodes on which another program repairs or replaces them.
var repairers = []struct {
	group, kind, product string
	// paths are where its versions list the conditions, each with a type and a status.
	paths [][]string
}{
	{"cluster.x-k8s.io", "MachineHealthCheck", "Cluster API", [][]string{{"spec", "unhealthyConditions"},
		{"spec", "unhealthyNodeConditions"}, {"spec", "checks", "unhealthyNodeConditions"}}},
	{"machine.openshift.io", "MachineHealthCheck", "OpenShift", [][]string{{"spec", "unhealthyConditions"}}},
	{"remediation.medik8s.io", "NodeHealthCheck", "medik8s", [][]string{{"spec", "unhealthyConditions"}}},
}

// examineRepair looks for actions that cannot be carried out or that nothing leads to, and for repairers that do not
// wait for our guards.
func examineRepair(ctx context.Context, v *invocation, d *diagnosis) error {
	if v.cluster.component == componentDaemonSet {
		return nil // which neither suspects nor acts
	}
	v.noteUnusedSettings(d)
	return errors.Join(v.examineDetectors(ctx, d), v.examineObjects(ctx, d), v.examineRepairers(ctx, d),
		v.examineEvictions(ctx, d))
}

// noteUnusedSettings notes settings that have no effect beside others.
func (v *invocation) noteUnusedSettings(d *diagnosis) {
	n := v.cluster.config.NodeManagement
	deletesOnly := len(n.Remediation.Actions) == 1 && n.Remediation.Actions[0].Delete != nil
	if !n.DeleteFailedNodes && !deletesOnly {
		d.note("nodeManagement.remediation.actions is configured, but deleteFailedNodes is off, so no action is taken",
			"set nodeManagement.deleteFailedNodes, at first with remediation.dryRun (docs/guides/repair.md)")
	}
	if n.DeleteFailedNodes && *n.Remediation.NeverVerifiedOnly && len(v.cluster.config.SuspectTypes()) > 0 {
		d.note("reverify.onConditions verifies nodes that worked before, but remediation.neverVerifiedOnly is "+
			"on: such a node is tainted when it fails, and no action is ever taken on it",
			"set nodeManagement.remediation.neverVerifiedOnly to false if failed nodes should be repaired or replaced")
	}
}

// examineDetectors notes conditions that are to make nodes suspect and that no node carries.
func (v *invocation) examineDetectors(ctx context.Context, d *diagnosis) error {
	missing, nodes := v.cluster.config.SuspectTypes(), 0
	if len(missing) == 0 {
		return nil
	}
	err := each(ctx, v.cluster.client.CoreV1().Nodes().List, "", func(n *corev1.Node) {
		nodes++
		for _, c := range n.Status.Conditions {
			delete(missing, c.Type)
		}
	})
	if err != nil || nodes == 0 {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		d.note(fmt.Sprintf("no node has the condition %s, which reverify.onConditions names: its detector does "+
			"not run, or sets the condition only when it finds a problem", name),
			"compare the type with the conditions that the detector sets: kubectl get nodes -o "+
				"jsonpath='{.items[*].status.conditions[*].type}'")
	}
	return nil
}

// examineObjects looks for templates whose object the API server would refuse.
func (v *invocation) examineObjects(ctx context.Context, d *diagnosis) error {
	n := v.cluster.config.NodeManagement
	if !n.DeleteFailedNodes {
		return nil
	}
	var errs []error
	for i, a := range n.Remediation.Actions {
		if a.Object != nil {
			errs = append(errs, v.examineObject(ctx, d, fmt.Sprintf("remediation.actions[%d].object", i), a.Object))
		}
	}
	return errors.Join(errs...)
}

func (v *invocation) examineObject(ctx context.Context, d *diagnosis, at string, o *config.ObjectAction) error {
	apiVersion, kind, namespace := o.Identity()
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return err
	}
	resource, err := v.cluster.served(gv, kind)
	switch {
	case err != nil:
		return err
	case resource == nil:
		d.found(fmt.Sprintf("the API server does not serve kind %s in %s, which %s creates: the guard action "+
			"holds this entry, and no later entry is tried", kind, apiVersion, at), "install its CustomResourceDefinition, "+
			"or correct apiVersion and kind")
		return nil
	case resource.Namespaced && namespace == "":
		d.found(fmt.Sprintf("%s creates a %s, which is namespaced, and its template has no namespace", at, kind),
			"set metadata.namespace in the template")
		return nil
	case !resource.Namespaced && namespace != "":
		d.found(fmt.Sprintf("%s creates a %s, which is cluster-scoped, in namespace %s", at, kind, namespace),
			"remove metadata.namespace from the template")
		return nil
	}
	if namespace != "" {
		_, err := v.cluster.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			d.found(fmt.Sprintf("namespace %s, in which %s creates a %s, does not exist", namespace, at, kind),
				"create it, or correct metadata.namespace in the template")
			return nil
		}
		if err != nil {
			return err
		}
	}
	if v.cluster.config.NodeManagement.Remediation.DryRun || d.overview.DryRun {
		return nil // it may not create one then
	}
	own, account, err := v.account(ctx, d.overview)
	if err != nil {
		return err
	}
	right := rights.Right{Namespace: namespace,
		GroupResource: schema.GroupResource{Group: gv.Group, Resource: resource.Name},
		Verbs:         []string{"create", "get", "delete"}}
	missing, err := v.missing(ctx, own, account, right)
	if len(missing) > 0 {
		d.found(fmt.Sprintf("service account %s/%s may not %s %s, which %s needs: the guard action holds it",
			own, account, strings.Join(missing, ", "), right, at),
			"run helm upgrade, whose role has the regular plural of the kind; add a rule for another plural to "+
				"controller.extraRules")
	}
	return err
}

// served is the resource of a kind as the API server serves it; nil where it does not.
func (c *cluster) served(gv schema.GroupVersion, kind string) (*metav1.APIResource, error) {
	list, err := c.client.Discovery().ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range list.APIResources {
		if r.Kind == kind && !strings.Contains(r.Name, "/") {
			return &r, nil
		}
	}
	return nil, nil
}

// examineRepairers looks for repairers that act on a condition which no guard was asked about.
func (v *invocation) examineRepairers(ctx context.Context, d *diagnosis) error {
	groups, err := v.cluster.client.Discovery().ServerGroups()
	if err != nil {
		return err
	}
	var errs []error
	for _, kind := range repairers {
		i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == kind.group })
		if i < 0 {
			continue
		}
		gv, err := schema.ParseGroupVersion(groups.Groups[i].PreferredVersion.GroupVersion)
		if err != nil {
			return err
		}
		resource, err := v.cluster.served(gv, kind.kind)
		if err != nil || resource == nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, each(ctx, v.cluster.dynamic.Resource(gv.WithResource(resource.Name)).List, "",
			func(o *unstructured.Unstructured) {
				name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
				who := fmt.Sprintf("%s %s of %s", kind.kind, name, kind.product)
				for _, path := range kind.paths {
					for _, c := range entries(o, path...) {
						v.examineTrigger(d, who, c["type"], c["status"])
					}
				}
			}))
	}
	return errors.Join(errs...)
}

// examineTrigger looks at one condition on which a repairer acts.
func (v *invocation) examineTrigger(d *diagnosis, who, condition, status string) {
	cfg := v.cluster.config
	actions := cfg.NodeManagement.Remediation.Actions
	set := slices.IndexFunc(actions, func(a config.Action) bool {
		return a.Condition != nil && string(a.Condition.Type) == condition
	})
	const fix = "let it act on a condition that remediation.actions sets only when all guards allow it: " +
		"actions: [{condition: {}}] sets node-ready/RemediationRequired=True (docs/guides/repair.md)"
	switch {
	case condition == string(marks.ConditionType):
		d.found(fmt.Sprintf("%s acts on the condition %s, which shows the first failure: it bypasses every guard "+
			"of kube-node-ready", who, condition), fix)
	case set >= 0 && status != string(actions[set].Condition.Status):
		d.found(fmt.Sprintf("%s acts on %s=%s, but remediation.actions sets it to %s, so it never acts", who,
			condition, status, actions[set].Condition.Status), "give both the same status")
	case set < 0 && strings.HasPrefix(condition, "node-ready/"):
		d.found(fmt.Sprintf("%s acts on the condition %s, which no entry of remediation.actions sets, so it "+
			"never acts", who, condition), "add an entry condition: {type: "+condition+"} to nodeManagement.remediation.actions")
	case cfg.SuspectTypes()[corev1.NodeConditionType(condition)]:
		d.note(fmt.Sprintf("%s acts on the condition %s, which also makes nodes suspect: it repairs them "+
			"without waiting for the result of their verification", who, condition), fix)
	}
}

// examineEvictions notes rules that evict the pods of a node at its first failed verification.
func (v *invocation) examineEvictions(ctx context.Context, d *diagnosis) error {
	err := each(ctx, v.cluster.dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).List, "",
		func(o *unstructured.Unstructured) {
			effect, _, _ := unstructured.NestedString(o.Object, "spec", "taint", "effect")
			mode, _, _ := unstructured.NestedString(o.Object, "spec", "enforcementMode")
			if effect != string(corev1.TaintEffectNoExecute) || mode != string(v1alpha1.ModeContinuous) {
				return
			}
			for _, c := range entries(o, "spec", "conditions") {
				if c["type"] == string(marks.ConditionType) {
					d.note(fmt.Sprintf("NodeReadinessRule %s evicts the pods of a node whenever %s is not %s, for "+
						"example during each verification and at the first failure. No guard can hold that", o.GetName(),
						marks.ConditionType, c["requiredStatus"]), "give the rule's taint the effect NoSchedule")
				}
			}
		})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
