package rules

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Rules are deleted while the conditions and labels of their nodes change in a tight loop. Whatever was in progress, no
// node carries a rule's taint or names the rule as an owner once the rule is gone.
func TestDeletedWhileTheNodeChanges(t *testing.T) {
	const nodes, rounds = 6, 8
	w := beside(t)
	stop, writers := make(chan struct{}), sync.WaitGroup{}
	for i := range nodes {
		name := fmt.Sprint("changes-", i)
		w.node(name)
		writers.Go(func() {
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				status := []corev1.ConditionStatus{"True", "False"}[turn%2]
				patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"agent/Ready","status":%q,"reason":"Test"}]}}`, status)
				n := &corev1.Node{}
				n.Name = name
				if err := api.Status().Patch(w.ctx, n, client.RawPatch("application/strategic-merge-patch+json", []byte(patch))); err != nil {
					t.Error(err)
					return
				}
				labels := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, testLabel, []string{w.name, w.name, "elsewhere"}[turn%3])
				if err := api.Patch(w.ctx, n, client.RawPatch("application/merge-patch+json", []byte(labels))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range rounds {
		name := fmt.Sprint("changes", round)
		r := w.rule(name)
		w.eventually("some node is held", func() string {
			for i := range nodes {
				if carries(w.get(fmt.Sprint("changes-", i)), "readiness.k8s.io/"+name) {
					return ""
				}
			}
			return "none"
		})
		w.must(api.Delete(w.ctx, r))
		w.gone(name)
		for i := range nodes {
			if n := w.get(fmt.Sprint("changes-", i)); carries(n, "readiness.k8s.io/"+name) || n.Annotations[marks.AnnotationRules] != "" {
				t.Errorf("round %d: %s %v %v", round, n.Name, n.Spec.Taints, n.Annotations)
			}
		}
	}
	close(stop)
	writers.Wait()
	for i := range nodes {
		w.must(api.Delete(w.ctx, w.get(fmt.Sprint("changes-", i))))
	}
}
