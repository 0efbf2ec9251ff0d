package effects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// taints gives a node the gating taint, or takes it off.
func (w *world) taints(n *corev1.Node, gated bool) {
	w.Helper()
	patch := `{"spec":{"taints":null}}`
	if gated {
		patch = `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoSchedule"}]}}`
	}
	w.must(api.Patch(w.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// Somebody takes the taint off and puts it back while a worker is under way. Its pass does not open the gate, to a successor
// neither, whether or not the node has a record.
func TestPassFromBeforeTheGateWasClosedAgain(t *testing.T) {
	for name, before := range map[string]marks.Record{
		"first attempt": {},
		"later attempt": {Sequence: 1, Inconclusive: 1, LastOutcome: attempt.Inconclusive, LastReason: attempt.ReasonImagePull},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, "")
			holds := true
			w.exit = func(*corev1.Pod) int {
				if holds {
					return stays
				}
				return 0
			}
			n := w.node("n")
			if before.Sequence > 0 {
				w.write(n, before)
			}
			l := w.leads()
			l.turns(2)
			under := w.pods(n.Name)
			if len(under) != 1 {
				t.Fatalf("%d pods", len(under))
			}
			w.lingers = true
			w.taints(n, false)
			l.show()
			l.pass()
			w.taints(n, true)
			w.terminate(&under[0], 0)
			successor := w.leads() // which has not seen the gate open
			successor.show()
			successor.pass()
			if _, f := w.get(n.Name); !f.Gated || f.Labelled || f.Record.LastReason != attempt.ReasonGateRemoved {
				t.Errorf("gated %t, record %+v", f.Gated, f.Record)
			}
			holds, w.lingers = false, false
			successor.drive()
			if _, f := w.get(n.Name); f.Gated || !f.Labelled || f.Record.Sequence != before.Sequence+2 || len(successor.errs) > 0 {
				t.Errorf("then: record %+v, errors %v", f.Record, successor.errs)
			}
		})
	}
}

// A person who takes the taint off a new node is done with it: its worker ends, and no record begins another attempt.
func TestUntaintedByHandWhileItsWorkerRuns(t *testing.T) {
	w := begin(t, "")
	w.exit = func(*corev1.Pod) int { return stays }
	n := w.node("n")
	l := w.leads()
	l.turns(2)
	w.taints(n, false)
	l.drive()
	if _, f := w.get(n.Name); f.Gated || f.HasRecord || f.Labelled || len(w.pods(n.Name)) > 0 || w.born("verify") != 1 {
		t.Errorf("gated %t, record %+v, %d pods", f.Gated, f.Record, len(w.pods(n.Name)))
	}
}
