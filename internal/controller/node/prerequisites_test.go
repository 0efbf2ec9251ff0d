package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A prerequisite that no longer holds when the worker passes keeps the gate closed. The next attempt waits for it, and
// no retry is spent.
func TestPrerequisitesLost(t *testing.T) {
	for name, tc := range map[string]struct {
		settings string
		ready    func(*world.World) *corev1.Node
	}{
		"of a new node":              {ready: func(w *world.World) *corev1.Node { return w.Node("n") }},
		"of a node that failed once": {ready: func(w *world.World) *corev1.Node { n := w.Node("n"); w.WriteRecord(n, w.Failures(1)); return n }},
		"of a re-verification behind the gate": {settings: `{"nodeManagement": {"reverify": {"taint": true}}}`, ready: func(w *world.World) *corev1.Node {
			n := w.Verified("n")
			w.Patch(n, `{"metadata":{"labels":{"node-ready/verified":null}}}`)
			return n
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, tc.settings)
			lost := false
			w.Unmet = func(string) bool { return lost }
			w.Exit = func(*corev1.Pod) int { lost = true; return 0 }
			n := tc.ready(w)
			l := w.Lead()
			l.Steps(8)
			_, f := w.Get(n.Name)
			if r := f.Record; !f.Gated || f.Labelled || r.LastOutcome != attempt.Inconclusive || r.LastReason != attempt.ReasonPrerequisitesLost || w.Created("verify") != 1 {
				t.Fatalf("gated %t, %d workers, record %+v", f.Gated, w.Created("verify"), r)
			}
			if c := f.Condition; c == nil || c.Reason != marks.ReasonWaitingForPrerequisites {
				t.Errorf("condition %v", c)
			}
			lost, w.Exit = false, func(*corev1.Pod) int { return 0 }
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated || !f.Labelled || w.Created("verify") != 2 {
				t.Errorf("once it holds again: gated %t, %d workers, record %+v", f.Gated, w.Created("verify"), f.Record)
			}
		})
	}
}

// A node that stays open has no gate that its pass would open, so nothing is read again.
func TestPrerequisitesLostOfAnOpenNode(t *testing.T) {
	w := world.Begin(t, "")
	lost := false
	w.Unmet = func(string) bool { return lost }
	w.Exit = func(*corev1.Pod) int { lost = true; return 0 }
	n := w.Verified("n")
	w.Patch(n, `{"metadata":{"labels":{"node-ready/verified":null}}}`)
	w.Lead().Drive()
	if _, f := w.Get(n.Name); f.Gated || !f.Labelled || f.Record.LastOutcome != attempt.Passed {
		t.Errorf("gated %t, record %+v", f.Gated, f.Record)
	}
}
