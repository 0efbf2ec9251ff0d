package kubectlplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// examinePatch tries the patch that releases a node as a server-side dry run, which stores nothing. It tries that as
// the controller, if the user may impersonate it. It names what another policy or webhook adds to the patch: the
// chart's own policy may refuse the patch because of that. If the controller's patch is refused, the same patch by the
// user shows what was added, because the chart's policy does not concern the user.
func examinePatch(ctx context.Context, v *invocation, d *diagnosis) error {
	if v.cluster.component != componentController || v.cluster.as == nil {
		return nil
	}
	if d.overview.podsErr != nil {
		return d.overview.podsErr
	}
	if len(d.overview.pods) == 0 {
		return nil // the check "installation" or "leader" reports that
	}
	all, err := v.cluster.nodes(ctx, "")
	if err != nil {
		return err
	}
	name, ok := patchable(all)
	if !ok {
		return nil
	}
	pod := d.overview.pods[0]
	account := pod.Spec.ServiceAccountName
	controller, err := v.cluster.as("system:serviceaccount:" + pod.Namespace + ":" + account)
	if err != nil {
		return err
	}
	added, err := v.tryPatch(ctx, controller, name)
	refusal := apierr.Refusal(err, apierr.Patch)
	switch {
	case err != nil && refusal == "":
		return err
	case strings.Contains(refusal, "cannot patch resource"):
		return nil // the check "rights" reports that
	}
	impersonates := !mayNotImpersonate(err)
	if err != nil {
		// The controller's patch, or the user's right to impersonate it, is refused.
		var own error
		if added, own = v.tryPatch(ctx, v.cluster.client, name); own != nil && !impersonates {
			d.note("the patch that releases a node was not tried: "+attempt.Text(own.Error()), "run doctor as a user who may "+
				"patch nodes, or impersonate the service account "+account)
			return nil
		}
	}
	const fix = "leave the service account of the controller out of the policy or the webhook that sets it (Kyverno: " +
		"exclude.subjects), or let it set that when a node is created"
	what := strings.Join(added, ", ")
	switch {
	case impersonates && refusal != "" && what != "":
		d.found(fmt.Sprintf("the API server refuses the controller's patch of node %s (%s), to which another policy or "+
			"webhook adds %s", name, attempt.Text(refusal), what), fix)
	case impersonates && refusal != "":
		d.found(fmt.Sprintf("the API server refuses the controller's patch of node %s: %s", name, attempt.Text(refusal)),
			"if a permission is missing, run helm upgrade; else correct the policy or the webhook that the message names "+
				"(docs/operate/troubleshooting.md#the-api-server-refuses-the-release)")
	case what != "":
		d.note(fmt.Sprintf("another policy or webhook adds %s to a patch of node %s that releases it", what, name), fix)
	}
	return nil
}

// patchable is a node to try the patch on: one with a gating taint, else any that the controller manages. ok is false
// if there is none.
func patchable(all []nodeState) (name string, ok bool) {
	for _, s := range all {
		if !decide.Eligible(s.in) || s.in.Node.Deleting {
			continue
		}
		if s.in.Node.Gated {
			return s.node.Name, true
		}
		if !ok {
			name, ok = s.node.Name, true
		}
	}
	return name, ok
}

// mayNotImpersonate reports whether the API server answers that the user may not impersonate the service account.
func mayNotImpersonate(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate")
}

// patchTries is how often the patch is tried if somebody else writes the node meanwhile.
const patchTries = 3

// tryPatch sends the patch that releases the node as a dry run, and returns what the answer has beyond it.
func (v *invocation) tryPatch(ctx context.Context, client kubernetes.Interface, name string) (
	added []string, err error) {
	vocabulary := v.cluster.config.Vocabulary()
	for range patchTries {
		n, err := v.cluster.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		c := marks.Change{Record: marks.Observe(n, vocabulary).Record, Label: new(true), Gate: marks.GateOpen}
		c.Record.NodeUID = string(n.UID)
		got, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, c.Patch(n, vocabulary),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager})
		switch {
		case err == nil:
			return addedTo(n, got, vocabulary), nil
		case apierr.Of(err, apierr.Patch) != apierr.Conflict:
			return nil, err
		}
	}
	return nil, nil // others write it all the time
}

// addedTo names the fields that a release of the node changed and that are not ours.
func addedTo(before, after *corev1.Node, v marks.Vocabulary) (fields []string) {
	ours := []string{v.Verified.Key, v.Completed, marks.AnnotationRecord}
	changed := func(path string, before, after map[string]string) {
		all := maps.Clone(before)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, after)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			was, had := before[key]
			if is, has := after[key]; (was != is || had != has) && !slices.Contains(ours, key) {
				fields = append(fields, path+"["+key+"]")
			}
		}
	}
	changed("metadata.labels", before.Labels, after.Labels)
	changed("metadata.annotations", before.Annotations, after.Annotations)
	if !slices.Equal(before.Finalizers, after.Finalizers) {
		fields = append(fields, "metadata.finalizers")
	}
	taints := func(n *corev1.Node) (others []string) {
		for _, t := range n.Spec.Taints {
			if !v.Gates(t) {
				others = append(others, t.Key+"="+t.Value+":"+string(t.Effect))
			}
		}
		return others
	}
	gates := slices.ContainsFunc(after.Spec.Taints, v.Gates)
	if had, has := taints(before), taints(after); gates || !slices.Equal(had, has) {
		fields = append(fields, "spec.taints")
	}
	was, is := before.Spec.DeepCopy(), after.Spec.DeepCopy()
	was.Taints, is.Taints = nil, nil
	if !equality.Semantic.DeepEqual(was, is) {
		fields = append(fields, "spec")
	}
	return fields
}
