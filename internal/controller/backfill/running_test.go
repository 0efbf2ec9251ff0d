package backfill_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/controller/backfill"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The running controller taints and verifies a node that admission missed. It does the same with a node that loses its
// label while no controller runs.
func TestBackfillByTheController(t *testing.T) {
	w := world.OnServer(t, "")
	busy := w.Node("busy", world.Untainted)
	w.OrdinaryPod(busy)
	missed := w.Node("missed", world.Untainted)
	const many = 3 * backfill.PerSecond
	for i := range many {
		w.Node(fmt.Sprint("many-", i), world.Untainted)
	}
	w.Run(backfills)
	limited(w, many)
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
}

// limited checks that the given number of nodes, and one more, are not tainted faster than the limit allows.
func limited(w *world.World, nodes int) {
	w.Helper()
	var first time.Time
	w.Eventually("the nodes that admission missed are tainted", func() string {
		var list corev1.NodeList
		w.Must(w.API.List(w.Ctx, &list, client.MatchingLabels{world.WorldLabel: w.Namespace}))
		tainted := 0
		for i := range list.Items {
			if f := marks.Observe(&list.Items[i], w.Config.Vocabulary()); f.Gated || f.Labelled {
				tainted++
			}
		}
		if tainted > 0 && first.IsZero() {
			first = time.Now()
		}
		if tainted <= nodes {
			return fmt.Sprintf("%d are", tainted)
		}
		return ""
	})
	least := time.Duration(nodes-backfill.PerSecond) * time.Second / backfill.PerSecond / 2 // the first is seen late
	took := time.Since(first)
	w.Logf("%d nodes in %s", nodes+1, took.Round(time.Millisecond))
	if took < least {
		w.Errorf("tainted in %s, which is less than %s", took, least)
	}
}
