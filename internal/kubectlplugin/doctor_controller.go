package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// The doctor's checks of the controller and its workers.

func examineLeader(_ context.Context, v *invocation, d *diagnosis) error {
	if l := d.overview.Leader; l.Dead {
		d.found(l.line(v.now), "bring the controller back: kubectl get pods -A -l app.kubernetes.io/name="+
			"kube-node-ready,app.kubernetes.io/component=controller, and their logs; "+
			"docs/operate/runbooks/KubeNodeReadyNoLeader.md")
	} else if l.Name == "" && *v.cluster.config.LeaderElection.Enabled && v.cluster.component == componentController {
		return errors.New(l.Problem)
	}
	return nil
}

func examineVersions(_ context.Context, v *invocation, d *diagnosis) error {
	o := d.overview
	if own := leader.VersionLabel(version.Version); o.Leader.Version != "" && o.Leader.Version != own {
		d.found(fmt.Sprintf("the leading controller has version %s, this plugin has version %s",
			o.Leader.Version, own), "use the plugin of the controller's version: this one may misread the controller's marks")
	}
	if o.podsErr != nil {
		return o.podsErr
	}
	images := o.Replicas.Images
	if len(images) > 1 {
		d.found("the controller's replicas run different images: "+strings.Join(images, ", "),
			"finish or undo the rollout: kubectl rollout status deployment of the controller")
	}
	if len(images) != 1 {
		return nil
	}
	controller, err := reference.ParseNormalizedNamed(images[0])
	if err != nil {
		return nil //nolint:nilerr // it runs all the same, and names no version
	}
	tagged, ok := controller.(reference.Tagged)
	for _, w := range workerImages(v.cluster.config) {
		own, err := reference.ParseNormalizedNamed(strings.TrimSuffix(w.Repository, "-worker"))
		ours := err == nil && own.Name() == controller.Name()
		if ok && ours && w.Tag != "" && w.Digest == "" && w.Tag != tagged.Tag() {
			d.found(fmt.Sprintf("the controller runs %s, %s %s:%s", images[0], w.who, w.Repository, w.Tag),
				fmt.Sprintf("leave %s empty to use controller.image, or set both to one tag", w.key))
		}
	}
	return nil
}

// workerImage is an image that workers run.
type workerImage struct {
	config.Image
	who, key string // whose it is, in words and as a key of the configuration
}

// workerImages are the worker's image and those of profiles that differ from it.
func workerImages(cfg *config.Config) []workerImage {
	all := []workerImage{{cfg.Worker.Image, "its workers", "worker.image"}}
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		if p.Image != nil && *p.Image != cfg.Worker.Image {
			all = append(all, workerImage{*p.Image, "workers of profile " + p.Name, fmt.Sprintf("profiles[%d].image", i)})
		}
	}
	return all
}

// examineControllers looks for two controllers that both act on a taint, or both serve rules.
func examineControllers(ctx context.Context, v *invocation, d *diagnosis) error {
	found, err := v.cluster.configMaps(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	others := map[string]*config.Config{}
	for _, m := range found {
		name := m.Namespace + "/" + m.Name
		cfg, err := parse(m, "")
		if err != nil {
			d.found("the configuration in ConfigMap "+name+" is refused: "+err.Error(),
				"correct it (kubectl node-ready config validate FILE)")
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(others)) {
			if *cfg.Rules.Enabled && *others[other].Rules.Enabled {
				d.found(fmt.Sprintf("%s and %s both serve NodeReadinessRules", other, name),
					"set rules.enabled to false in all but one")
			}
			for _, t := range cfg.Vocabulary().Gating {
				shared := decide.HasTaint(others[other].Vocabulary().Gating, t)
				if shared && overlap(cfg.NodeManagement.NodeSelector, others[other].NodeManagement.NodeSelector) {
					d.found(fmt.Sprintf("%s and %s both act on nodes with the taint %s", other, name, t.ID()),
						"give each its own nodeManagement.taints, or nodeManagement.nodeSelectors that exclude each other's nodes")
				}
			}
		}
		others[name] = cfg
	}
	return nil
}

// examineWorkers looks for worker pods in namespaces in which no controller creates any: they are from before
// worker.namespace was changed, and no controller sees them.
func examineWorkers(ctx context.Context, v *invocation, d *diagnosis) error {
	found, err := v.cluster.configMaps(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	namespaces := []string{v.cluster.namespace}
	for _, m := range found {
		cfg, err := parse(m, "")
		if err != nil {
			return fmt.Errorf("cannot find the namespace of the workers of ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
		}
		namespaces = append(namespaces, cmp.Or(cfg.Worker.Namespace, m.Namespace))
	}
	if v.cluster.namespace == "" && len(found) == 0 {
		return errors.New("found no configuration of a controller, which names the workers' namespace")
	}
	of := labels.Set{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component}.String()
	return each(ctx, v.cluster.client.CoreV1().Pods(metav1.NamespaceAll).List, of, func(p *corev1.Pod) {
		if !slices.Contains(namespaces, p.Namespace) {
			d.found(fmt.Sprintf("worker pod %s/%s of node %s is in a namespace that no controller watches, "+
				"because worker.namespace was changed", p.Namespace, p.Name, p.Annotations[workerpod.AnnotationNode]),
				fmt.Sprintf("it ends at its own deadline and is deleted with its node; to delete it now, run kubectl -n %s "+
					"delete pod %s", p.Namespace, p.Name))
		}
	})
}

// overlap reports whether two selectors are known to select one node: one selects every node, or they are equal.
func overlap(a, b *metav1.LabelSelector) bool {
	none := func(s *metav1.LabelSelector) bool {
		return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
	}
	return none(a) || none(b) || metav1.FormatLabelSelector(a) == metav1.FormatLabelSelector(b)
}

// repository is the chart's path of the image below a registry, which may be a mirror.
const repository = "kube-node-ready/kube-node-ready"

// examineImage looks for workers of another product: one that exits with 0 releases its node, whatever it checked. It
// notes init containers whose image may be another one on each node, since what they find counts too.
func examineImage(ctx context.Context, v *invocation, d *diagnosis) error {
	if d.overview.podsErr != nil {
		return d.overview.podsErr
	}
	known := map[string]bool{}
	for _, w := range workerImages(v.cluster.config) {
		if known[w.Repository] {
			continue // it is reported already, or ours
		}
		known[w.Repository] = true
		own := strings.TrimSuffix(w.Repository, "-worker")
		ours := own == repository || strings.HasSuffix(own, "/"+repository)
		for _, p := range d.overview.pods {
			for _, c := range p.Spec.Containers {
				named, err := reference.ParseNamed(c.Image)
				ours = ours || err == nil && v.cluster.component == componentController && named.Name() == own
			}
		}
		if !ours {
			d.found(fmt.Sprintf("%s run the image %s, which is not from the chart's repository: a worker that exits "+
				"with 0 releases its node without the configured checks",
				strings.TrimPrefix(w.who, "its "), w.Repository), fmt.Sprintf(
				"leave %s empty to use controller.image, or end the name of a mirror in /%s", w.key, repository))
		}
	}
	noteMovingImages(v.cluster.config, d)
	selector := fields.Set{"involvedObject.kind": "Node", "reason": decide.EventReportMissing.Name,
		"reportingComponent": eventSource}.String()
	events, err := v.cluster.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return err
	}
	var nodes []string
	for _, e := range events.Items {
		nodes = append(nodes, e.InvolvedObject.Name)
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) > 0 {
		d.found(fmt.Sprintf("within the last hour, workers passed without a report, so their checks are unknown, "+
			"on %d nodes, %s among them", len(nodes), nodes[0]),
			"use the workers' image of the controller's version, then run kubectl node-ready reverify NODE...")
	}
	return nil
}

// noteMovingImages notes init containers whose image has no tag, or latest.
func noteMovingImages(cfg *config.Config, d *diagnosis) {
	note := func(key string, containers []corev1.Container) {
		for i := range containers {
			c := &containers[i]
			named, err := reference.ParseNormalizedNamed(c.Image)
			if err != nil {
				continue // the API server refuses the pod, or the kubelet reports it
			}
			_, pinned := named.(reference.Digested)
			tagged, ok := reference.TagNameOnly(named).(reference.Tagged) // latest is that of none
			if !pinned && ok && tagged.Tag() == "latest" {
				d.note(fmt.Sprintf("%s.initContainers[%d] (%s) runs the image %s, whose tag can change, so nodes may "+
					"be verified by different versions of it", key, i, c.Name, c.Image),
					"set a version as the image's tag, or a digest")
			}
		}
	}
	note("worker", cfg.Worker.InitContainers)
	for i := range cfg.Profiles {
		note(fmt.Sprintf("profiles[%d]", i), cfg.Profiles[i].InitContainers)
	}
}

// labelEnforce is the namespace's label of Pod Security admission.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// examineToken notes what a stolen token of the controller allows where neither an admission policy nor Pod Security
// limits it.
func examineToken(ctx context.Context, v *invocation, d *diagnosis) error {
	if v.cluster.component == componentDaemonSet {
		return nil // its policy is always there
	}
	if d.overview.podsErr != nil {
		return d.overview.podsErr
	}
	selector := labels.Set{workerpod.LabelName: workerpod.Name}
	if pods := d.overview.pods; len(pods) > 0 && pods[0].Labels[labelInstance] != "" {
		selector[labelInstance] = pods[0].Labels[labelInstance]
	}
	bindings, err := v.cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx,
		metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	denies := func(policy string) bool {
		return slices.ContainsFunc(bindings.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return strings.HasSuffix(b.Spec.PolicyName, policy) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		})
	}
	allowed := tokenRights{nodes: !denies("-nodes"), deletes: v.cluster.config.NodeManagement.DeleteFailedNodes}
	if !denies("-pods") {
		if err := allowed.readNamespace(ctx, v, d.overview.pods); err != nil {
			return err
		}
	}
	if what, fix := allowed.note(); what != "" {
		d.note(what, fix)
	}
	return nil
}

// labelInstance is the chart's label of the release.
const labelInstance = "app.kubernetes.io/instance"

// tokenRights are what a stolen token of the controller allows.
type tokenRights struct {
	nodes   bool // no policy limits what it changes on nodes
	deletes bool // the configuration deletes failed nodes
	// workers is the namespace in which it can create any pod; nil where a policy limits that.
	workers *corev1.Namespace
	// shared reports that the namespace has pods of others, which Pod Security could reject when they restart.
	shared bool
	// privileged reports that Pod Security would reject pods of the installation.
	privileged bool
}

// readNamespace reads the workers' namespace, and whether its pods would meet Pod Security.
func (r *tokenRights) readNamespace(ctx context.Context, v *invocation, controllers []corev1.Pod) error {
	name, err := v.cluster.workerNamespace(ctx)
	if err != nil {
		return err
	}
	if r.workers, err = v.cluster.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	others, err := v.cluster.client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{
		LabelSelector: workerpod.LabelName + "!=" + workerpod.Name, Limit: 1})
	if err != nil {
		return err
	}
	r.shared = len(others.Items) > 0
	cfg := v.cluster.config
	volumes, containers := slices.Clone(cfg.Worker.Volumes), slices.Clone(cfg.Worker.InitContainers)
	for i := range cfg.Profiles {
		volumes = append(volumes, cfg.Profiles[i].Volumes...)
		containers = append(containers, cfg.Profiles[i].InitContainers...)
	}
	for i := range controllers {
		if controllers[i].Namespace == name {
			r.privileged = r.privileged || controllers[i].Spec.HostNetwork
			volumes = append(volumes, controllers[i].Spec.Volumes...)
		}
	}
	r.privileged = r.privileged ||
		slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) ||
		slices.ContainsFunc(containers, func(c corev1.Container) bool {
			return c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
		})
	return nil
}

// note is what the token allows and no policy prevents; empty where that is nothing.
func (r *tokenRights) note() (what, fix string) {
	var can, fixes []string
	if r.nodes {
		can, fixes = append(can, "remove any taint from any node"), append(fixes, "set admissionPolicy.nodes to true")
		if r.deletes {
			can = append(can, "delete nodes and the objects that own them")
		}
	}
	const restricted = "restricted"
	kept := ""
	if r.workers != nil {
		switch level := r.workers.Labels[labelEnforce]; level {
		case restricted, "baseline":
			kept = fmt.Sprintf("; privileged pods are refused in namespace %s (Pod Security %s)", r.workers.Name, level)
		default:
			can = append(can, fmt.Sprintf("create a privileged pod in namespace %s, whose labels enforce no Pod Security, "+
				"and so become administrator of the cluster", r.workers.Name))
			fixes = append(fixes, "set admissionPolicy.pods to true, unless something else changes worker pods")
			switch {
			case r.privileged:
			case r.shared:
				fixes = append(fixes, fmt.Sprintf("or use a namespace of its own with the label %s=%s: never label %s, because "+
					"its other pods could be refused when they restart", labelEnforce, restricted, r.workers.Name))
			default:
				fixes = append(fixes, fmt.Sprintf("or run kubectl label namespace %s %s=%s", r.workers.Name, labelEnforce,
					restricted))
			}
		}
	}
	if len(can) == 0 {
		return "", ""
	}
	return "no admission policy limits this: a stolen token of the controller can " + strings.Join(can, ", and ") + kept,
		strings.Join(fixes, "; ") + " (docs/design/security.md)"
}

// examineAgents lists the DaemonSets that a selector of prerequisites.daemonSets matches: their owners have registered
// them, and new nodes wait for them.
func examineAgents(ctx context.Context, v *invocation, d *diagnosis) error {
	seen := map[string]bool{}
	for _, variant := range v.cluster.config.Variants() {
		for _, entry := range variant.Prerequisites.DaemonSets.Named {
			if entry.Selector == nil || seen[entry.String()] {
				continue
			}
			seen[entry.String()] = true
			options := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(entry.Selector)}
			list, err := v.cluster.client.AppsV1().DaemonSets(entry.Namespace).List(ctx, options)
			if err != nil {
				return err
			}
			var names []string
			for _, ds := range list.Items {
				names = append(names, ds.Namespace+"/"+ds.Name)
			}
			slices.Sort(names)
			d.note(fmt.Sprintf("new nodes wait for DaemonSets %s: %s", entry.String(),
				cmp.Or(strings.Join(names, ", "), "none has registered itself")), "")
		}
	}
	return nil
}
