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
)

// The doctor's check of suspicions, the action on failed nodes, and repairers beside us.

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

// examineRepair looks for settings that have no effect, conditions that stay, and repairers that do not wait for our
// guards.
func examineRepair(ctx context.Context, v *invocation, d *diagnosis) error {
	if v.cluster.component == componentDaemonSet { // which neither suspects nor acts
		return v.examineConditions(ctx, d, nil)
	}
	v.noteUnusedSettings(d)
	return errors.Join(v.examineConditions(ctx, d, v.cluster.config.SuspectTypes()),
		v.examineRepairers(ctx, d), v.examineEvictions(ctx, d))
}

// noteUnusedSettings notes settings that have no effect beside others.
func (v *invocation) noteUnusedSettings(d *diagnosis) {
	n := v.cluster.config.NodeManagement
	if !n.DeleteFailedNodes && n.Remediation.Action != config.ActionDelete {
		d.note("nodeManagement.remediation.action is condition, but deleteFailedNodes is off, so no action is taken",
			"set nodeManagement.deleteFailedNodes, at first with remediation.dryRun (docs/guides/repair.md)")
	}
	if n.DeleteFailedNodes && *n.Remediation.NeverVerifiedOnly && len(v.cluster.config.SuspectTypes()) > 0 {
		d.note("reverify.onConditions verifies nodes that worked before, but remediation.neverVerifiedOnly is "+
			"on: such a node is tainted when it fails, and no action is ever taken on it",
			"set nodeManagement.remediation.neverVerifiedOnly to false if failed nodes should be repaired or replaced")
	}
}

// examineConditions finds nodes with a condition of ours that the controller should have removed. It notes those of the
// conditions that are to make nodes suspect (suspects, which it changes) and that no node carries.
func (v *invocation) examineConditions(ctx context.Context, d *diagnosis,
	suspects map[corev1.NodeConditionType]bool) error {
	nodes := 0
	err := each(ctx, v.cluster.client.CoreV1().Nodes().List, "", func(n *corev1.Node) {
		nodes++
		for _, c := range n.Status.Conditions {
			delete(suspects, c.Type)
			if c.Reason == marks.ReasonVerificationFailed && !v.sets(c.Type) {
				d.found(fmt.Sprintf("node %s has the condition %s of an earlier configuration: a repairer may act on it",
					n.Name, c.Type), v.removal(n.Name, c.Type))
			}
		}
	})
	if err != nil || nodes == 0 {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(suspects)) {
		d.note(fmt.Sprintf("no node has the condition %s, which reverify.onConditions names: its detector does "+
			"not run, or sets the condition only when it finds a problem", name),
			"compare the type with the conditions that the detector sets: kubectl get nodes -o "+
				"jsonpath='{.items[*].status.conditions[*].type}'")
	}
	return nil
}

// removal says how a condition of ours that a node should not have is removed. In DaemonSet mode no process does it.
func (v *invocation) removal(node string, condition corev1.NodeConditionType) string {
	if v.cluster.component == componentDaemonSet {
		return fmt.Sprintf(`kubectl patch node %s --subresource=status -p `+
			`'{"status":{"conditions":[{"type":"%s","$patch":"delete"}]}}'`, node, condition)
	}
	return "wait for reconciliation.intervalSeconds, within which the controller removes it; if it stays, the event " +
		"RemediationConditionStays on the node has the reason"
}

// sets reports whether the action on failed nodes sets a condition of the type.
func (v *invocation) sets(condition corev1.NodeConditionType) bool {
	n := v.cluster.config.NodeManagement
	r := n.Remediation
	return n.DeleteFailedNodes && r.Action == config.ActionCondition && r.Condition.Type == condition
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

// examineRepairers looks for repairers that act on a condition which no guard was asked about, and notes that none acts
// on the one that the action sets.
func (v *invocation) examineRepairers(ctx context.Context, d *diagnosis) error {
	groups, err := v.cluster.client.Discovery().ServerGroups()
	if err != nil {
		return err
	}
	var errs []error
	want := v.cluster.config.NodeManagement.Remediation.Condition
	used := false
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
						used = used || c["type"] == string(want.Type)
					}
				}
			}))
	}
	if v.sets(want.Type) && !used {
		d.note(fmt.Sprintf("remediation.action sets the condition %s=%s, and no MachineHealthCheck or NodeHealthCheck "+
			"acts on it: unless another program does, for example Karpenter, failed nodes stay", want.Type, want.Status),
			"set up a repairer for it (docs/guides/repair.md)")
	}
	return errors.Join(errs...)
}

// examineTrigger looks at one condition on which a repairer acts.
func (v *invocation) examineTrigger(d *diagnosis, who, condition, status string) {
	want := v.cluster.config.NodeManagement.Remediation.Condition
	ours := v.sets(corev1.NodeConditionType(condition))
	const fix = "let it act on a condition that is set only while all guards allow it: remediation.action: condition " +
		"sets node-ready/RemediationRequired=True (docs/guides/repair.md)"
	switch {
	case condition == string(marks.ConditionType):
		d.found(fmt.Sprintf("%s acts on the condition %s, which shows the first failure: it bypasses every guard "+
			"of kube-node-ready", who, condition), fix)
	case ours && status != string(want.Status):
		d.found(fmt.Sprintf("%s acts on %s=%s, but remediation.condition sets it to %s, so it never acts", who, condition,
			status, want.Status), "give both the same status")
	case !ours && strings.HasPrefix(condition, "node-ready/"):
		d.found(fmt.Sprintf("%s acts on the condition %s, which kube-node-ready does not set, so it never acts", who,
			condition), "set nodeManagement.deleteFailedNodes, remediation.action: condition and remediation.condition.type: "+
			condition)
	case v.cluster.config.SuspectTypes()[corev1.NodeConditionType(condition)]:
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
