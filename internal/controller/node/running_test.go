package node_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The running controller verifies nodes as their pods, conditions and marks change, by its watches alone. Its periodic
// resync comes only after an hour. There is a slot for one worker.
func TestVerificationByTheController(t *testing.T) {
	w := world.OnServer(t, "")
	w.Exit = func(*corev1.Pod) int { return 1 }
	w.Run(`{"reconciliation": {"intervalSeconds": 3600, "maxConcurrentVerifications": 1}}`)
	n, other := w.Node("n"), w.Node("other")
	becomes := func(node, what string, want func(marks.Facts) bool) {
		t.Helper()
		w.Eventually(node+" becomes "+what, func() string {
			if _, f := w.Get(node); !want(f) {
				return fmt.Sprintf("%+v", f)
			}
			return ""
		})
	}
	verified := func(f marks.Facts) bool { return f.Labelled && !f.Gated && f.Record.LastOutcome == attempt.Passed }
	becomes(n.Name, "exhausted", func(f marks.Facts) bool { return f.Record.Attempts == 2 && f.Condition != nil })
	becomes(other.Name, "exhausted, in the same slot", func(f marks.Facts) bool { return f.Record.Attempts == 2 && f.Condition != nil })
	w.Exit = func(*corev1.Pod) int { return 0 }
	w.Patch(n, `{"metadata":{"annotations":{"node-ready/record":null}}}`)
	becomes(n.Name, "verified", verified)
	before := w.Record(n.Name).Sequence
	w.Patch(n, `{"metadata":{"labels":{"node-ready/verified":null}}}`)
	becomes(n.Name, "verified again", func(f marks.Facts) bool { return verified(f) && f.Record.Sequence > before })
	w.Must(w.API.Delete(w.Ctx, other, client.GracePeriodSeconds(0)))
	next := w.Node("other")
	becomes(next.Name, "verified under an old name", verified)
}
