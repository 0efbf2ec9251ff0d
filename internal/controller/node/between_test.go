package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A controller that is about to start a worker reads the node's pods, and then the node. Between the two reads, another
// controller may record that attempt and delete its worker, or the node may be replaced. The attempt does not start.
func TestAttemptRecordedBetweenTheReads(t *testing.T) {
	for name, test := range map[string]struct {
		exit     int
		removed  bool // its pod, by somebody
		replaced bool // the node, under its name
	}{
		"it passed":                {},
		"it failed":                {exit: 1},
		"somebody removed its pod": {exit: world.Stays, removed: true},
		"the node is another one":  {exit: world.Stays, replaced: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, `{"worker": {"keepFailedSeconds": 0}, "reconciliation": {"initialBackoffSeconds": 60, "maxBackoffSeconds": 60}}`)
			w.Exit = func(*corev1.Pod) int { return test.exit }
			n := w.Node("n")
			l, other := w.Lead(), w.Lead()
			reads := 0
			l.AfterRead = func() {
				if reads++; reads != 2 { // the first one is of the cache, before the decision to start
					return
				}
				if test.replaced {
					w.Recreate(n)
					return
				}
				for pass := 0; w.Record(n.Name).Sequence == 0 || len(w.Pods(n.Name)) > 0; pass++ {
					if pass == 20 {
						t.Fatalf("the other controller wrote %v, errors %v", other.Writes, other.Errs)
					}
					other.Steps(1)
					for _, p := range w.Pods(n.Name) {
						if test.removed {
							w.Must(w.API.Delete(w.Ctx, &p, client.GracePeriodSeconds(0)))
						}
					}
				}
			}
			l.Deliver()
			_, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name))
			w.Must(err)
			for _, p := range w.Pods(n.Name) { // the referee faults a pod that is created twice
				if !test.replaced || p.Labels[workerpod.LabelNodeUID] == string(n.UID) {
					t.Errorf("worker %s started, record %+v", p.Name, w.Record(n.Name))
				}
			}
			if reads < 4 {
				t.Errorf("%d reads: the pods and the node are read once more", reads)
			}
		})
	}
}
