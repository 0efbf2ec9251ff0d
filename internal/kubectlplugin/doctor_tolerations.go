package kubectlplugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// examineTolerations looks for rules whose taint keeps the controller off a node. Where the chart's policy adds their
// tolerations to new pods, a pod that is older than the rule shows nothing.
func examineTolerations(ctx context.Context, v *invocation, d *diagnosis) error {
	switch {
	case v.cluster.component != componentController || !*v.cluster.config.Rules.Enabled:
		return nil
	case d.overview.podsErr != nil:
		return d.overview.podsErr
	}
	err := each(ctx, v.cluster.dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).List, "",
		func(o *unstructured.Unstructured) {
			key, _, _ := unstructured.NestedString(o.Object, "spec", "taint", "key")
			effect, _, _ := unstructured.NestedString(o.Object, "spec", "taint", "effect")
			taint := corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)}
			created := o.GetCreationTimestamp()
			kept := slices.IndexFunc(d.overview.pods, func(p corev1.Pod) bool {
				nextTolerates := rule.AddsTolerations(&p) && p.CreationTimestamp.Before(&created)
				return keepsOff(&taint) && !nextTolerates && !tolerates(&p, taint)
			})
			if kept < 0 {
				return
			}
			d.found(fmt.Sprintf("the controller's pod %s does not tolerate the taint %s:%s of NodeReadinessRule %s. "+
				"If every node has the taint, no pod of the controller can be scheduled",
				d.overview.pods[kept].Name, key, effect, o.GetName()),
				"add "+key+" to rules.toleratedKeys of the chart, or upgrade the release with Helm, which adds the keys "+
					"of existing rules (docs/guides/rules.md#where-the-controller-runs)")
		})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// keepsOff reports whether pods that do not tolerate the taint are not scheduled.
func keepsOff(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// tolerates reports whether the pod tolerates the taints.
func tolerates(p *corev1.Pod, taints ...corev1.Taint) bool {
	_, found := schedulinghelpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, p.Spec.Tolerations, keepsOff, true)
	return !found
}
