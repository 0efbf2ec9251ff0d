package backfill_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/controller/backfill"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The running controller taints and verifies a node that admission missed, and one that loses its label while nobody looks.
func TestBackfillByTheController(t *testing.T) {
	w := world.Begin(t, "")
	busy := w.Node("busy", world.Untainted)
	w.OrdinaryPod(busy)
	missed := w.Node("missed", world.Untainted)
	w.Run(backfills)
	verified := func(n *corev1.Node) func() string {
		return func() string {
			if _, f := w.Get(n.Name); !f.Labelled || f.Gated || f.Record.Sequence == 0 {
				return fmt.Sprintf("%+v", f)
			}
			return ""
		}
	}
	w.Eventually("a node that was there is tainted and verified", verified(missed))
	registers := w.Node("registers", world.Untainted)
	w.Eventually("a node that registers is tainted and verified", verified(registers))
	if _, f := w.Get(busy.Name); f.Gated || f.HasRecord {
		t.Errorf("a node with ordinary pods was tainted: %+v", f)
	}
	if limit := backfill.NewLimit(); !limit.TryAccept() {
		t.Error("no node may be tainted")
	}
}
