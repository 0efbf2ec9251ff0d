package remediation_test

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A worker is created while the controller decides to delete its node, and then passes. The node is not released while
// its NodeClaim terminates. It is released once it is certain that nothing was deleted.
func TestPassDuringADeletion(t *testing.T) {
	for name, deleted := range map[string]bool{"the NodeClaim goes": true, "nothing was deleted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
			n := w.Exhausted("n", world.Pooled)
			w.Claim(n)
			l := w.Lead(func(l *world.Leader) {
				if !deleted {
					l.Fault = world.Fault{At: 3, Code: 503} // after the intent and the entry in the ledger
				}
			})
			l.Deliver()
			raced := l.Nodes.View.Builder.Verify(workerpod.Target{Name: n.Name, UID: string(n.UID), BootID: "boot", Gated: true},
				w.Config.For(n.Labels), 3, config.SchedulingDirect)
			l.Once("patch Node", func() { w.Create(raced) })
			err := l.ReconcileRemediation(n)
			if w.Deleting(n.Name) != deleted || (err == nil) != deleted || w.Record(n.Name).Deletion == nil {
				t.Fatalf("deleted: %t, %v, record %+v", w.Deleting(n.Name), err, w.Record(n.Name))
			}
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated != deleted || f.Labelled == deleted || (f.Record.Deletion != nil) != deleted {
				t.Errorf("gated: %t, labelled: %t, record %+v", f.Gated, f.Labelled, f.Record)
			}
			if pods := w.Pods(n.Name); deleted && len(pods) != 1 {
				t.Errorf("%d workers", len(pods))
			}
		})
	}
}
