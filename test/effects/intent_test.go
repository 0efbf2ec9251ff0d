package effects

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// A worker that was created while the deletion of its node was decided passes: the node is not released while its
// NodeClaim goes, and is once it is certain that nothing was deleted.
func TestPassDuringADeletion(t *testing.T) {
	for name, deleted := range map[string]bool{"the NodeClaim goes": true, "nothing was deleted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
			n := w.exhausted("n", pooled)
			w.claim(n)
			l := w.leads(func(l *leader) {
				if !deleted {
					l.fault = fault{at: 3, code: 503} // after the intent and the entry in the ledger
				}
			})
			l.show()
			raced := l.nodes.View.Builder.Verify(workerpod.Target{Name: n.Name, UID: string(n.UID), BootID: "boot", Gated: true},
				w.cfg.For(n.Labels), 3, w.cfg.Worker.Scheduling)
			l.once("patch Node", func() { w.create(raced) })
			err := l.consider(n)
			if w.deleting(n.Name) != deleted || (err == nil) != deleted || w.record(n.Name).Deletion == nil {
				t.Fatalf("deleted: %t, %v, record %+v", w.deleting(n.Name), err, w.record(n.Name))
			}
			l.drive()
			if _, f := w.get(n.Name); f.Gated != deleted || f.Labelled == deleted || (f.Record.Deletion != nil) != deleted {
				t.Errorf("gated: %t, labelled: %t, record %+v", f.Gated, f.Labelled, f.Record)
			}
			if pods := w.pods(n.Name); deleted && len(pods) != 1 {
				t.Errorf("%d workers", len(pods))
			}
		})
	}
}
