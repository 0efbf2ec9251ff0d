package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// taints adds the gating taint to a node, or removes it.
func taints(w *world.World, n *corev1.Node, gated bool) {
	w.Helper()
	patch := `{"spec":{"taints":null}}`
	if gated {
		patch = `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoSchedule"}]}}`
	}
	w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// Somebody removes the taint and puts it back while a worker is running. The worker's pass does not open the gate, also
// for a successor, whether or not the node has a record.
func TestPassFromBeforeTheGateWasClosedAgain(t *testing.T) {
	for name, before := range map[string]marks.Record{
		"first attempt": {},
		"later attempt": {Sequence: 1, Inconclusive: 1, LastOutcome: attempt.Inconclusive, LastReason: attempt.ReasonImagePull},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, "")
			holds := true
			w.Exit = func(*corev1.Pod) int {
				if holds {
					return world.Stays
				}
				return 0
			}
			n := w.Node("n")
			if before.Sequence > 0 {
				w.WriteRecord(n, before)
			}
			l := w.Lead()
			l.Steps(2)
			under := w.Pods(n.Name)
			if len(under) != 1 {
				t.Fatalf("%d pods", len(under))
			}
			w.Linger = true
			taints(w, n, false)
			l.Deliver()
			l.ReconcileAll()
			taints(w, n, true)
			w.Terminate(&under[0], 0)
			successor := w.Lead() // which has not seen the gate open
			successor.Deliver()
			successor.ReconcileAll()
			if _, f := w.Get(n.Name); !f.Gated || f.Labelled || f.Record.LastReason != attempt.ReasonGateRemoved {
				t.Errorf("gated %t, record %+v", f.Gated, f.Record)
			}
			holds, w.Linger = false, false
			successor.Drive()
			if _, f := w.Get(n.Name); f.Gated || !f.Labelled || f.Record.Sequence != before.Sequence+2 || len(successor.Errs) > 0 {
				t.Errorf("then: record %+v, errors %v", f.Record, successor.Errs)
			}
		})
	}
}

// A person removes the taint of a new node. That is final: its worker ends, and no record starts another attempt.
func TestUntaintedByHandWhileItsWorkerRuns(t *testing.T) {
	w := world.Begin(t, "")
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n := w.Node("n")
	l := w.Lead()
	l.Steps(2)
	taints(w, n, false)
	l.Drive()
	if _, f := w.Get(n.Name); f.Gated || f.HasRecord || f.Labelled || len(w.Pods(n.Name)) > 0 || w.Created("verify") != 1 {
		t.Errorf("gated %t, record %+v, %d pods", f.Gated, f.Record, len(w.Pods(n.Name)))
	}
}

// A node with only the softer one of its taints runs workloads, which a worker must not displace: it has no priority class,
// and is not bound past the scheduler.
func TestWorkerOnASoftlyGatedNode(t *testing.T) {
	soft := corev1.Taint{Key: "a/soft", Effect: corev1.TaintEffectPreferNoSchedule}
	for name, tc := range map[string]struct {
		taints   []corev1.Taint
		critical bool
	}{
		"the soft one": {[]corev1.Taint{soft}, false},
		"both":         {[]corev1.Taint{soft, world.Gating}, true},
	} {
		w := world.Begin(t, `{"nodeManagement": {"taints": [{"key": "a/soft", "effect": "PreferNoSchedule"}, {"key": "node-ready/unverified", "value": "true", "effect": "NoSchedule"}]}}`)
		w.Exit = func(*corev1.Pod) int { return world.Stays }
		n := w.Node("n", func(n *corev1.Node) { n.Spec.Taints = tc.taints })
		w.Lead().Steps(2)
		pods := w.Pods(n.Name)
		if len(pods) != 1 || (pods[0].Spec.PriorityClassName != "") != tc.critical {
			t.Errorf("%s: %d pods: %+v", name, len(pods), pods)
		}
	}
}
