package remediation_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The running controller deletes the NodeClaim of a node whose retries are exhausted, one at a time.
func TestDeletionByTheController(t *testing.T) {
	w := world.OnServer(t, "")
	w.Exit = func(*corev1.Pod) int { return 1 }
	w.Run(`{"nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false, "maxInFlight": 1}}}`)
	a, b := w.Node("a", world.Pooled), w.Node("b", world.Pooled)
	w.Claim(a)
	w.Claim(b)
	w.Eventually("one NodeClaim is deleted, and the other node is held", func() string {
		gone, held := a, b
		if w.Deleting(b.Name) {
			gone, held = b, a
		}
		if r := w.Record(held.Name); !w.Deleting(gone.Name) || r.Held != decide.GuardMaxInFlight {
			return fmt.Sprintf("%s goes %t, %s is held by %q", gone.Name, w.Deleting(gone.Name), held.Name, r.Held)
		}
		return ""
	})
	if w.Deleting(a.Name) && w.Deleting(b.Name) || len(w.Ledger()) != 1 {
		t.Errorf("ledger %v", w.Ledger())
	}
}
