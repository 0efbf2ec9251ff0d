package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A rule may have the key of a taint that Cluster Autoscaler knows. It is obeyed as any other, and what others put on
// a node under the same prefix stays.
func TestAKeyForClusterAutoscaler(t *testing.T) {
	const key, foreign = marks.RuleAutoscalerPrefix + "autoscaled", marks.RuleAutoscalerPrefix + "foreign"
	w := beside(t)
	r := w.rule("autoscaled", withKey(key))
	w.node("autoscaled-1", createdWith(foreign), func(n *corev1.Node) {
		n.Annotations = map[string]string{marks.AnnotationRules: `{"gone":"` + foreign + `:NoSchedule"}`}
	})
	holds := func(want bool) func() string {
		return func() string {
			if n := w.get("autoscaled-1"); carries(n, key) != want || owns(n, r) != want {
				return n.Annotations[marks.AnnotationRules]
			}
			return ""
		}
	}
	w.eventually("it is held", holds(true))
	w.condition("autoscaled-1", corev1.ConditionTrue)
	w.eventually("it is released", holds(false))
	w.condition("autoscaled-1", corev1.ConditionFalse)
	w.eventually("it is held again", holds(true))
	w.must(api.Delete(w.ctx, r))
	w.gone("autoscaled")
	if n := w.get("autoscaled-1"); carries(n, key) || !carries(n, foreign) {
		t.Error(n.Spec.Taints)
	}
}
