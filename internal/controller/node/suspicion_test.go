package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

const suspects = `{"nodeManagement": {"reverify": {"onConditions": [{"type": "KernelDeadlock", "forSeconds": 30}]}}}`

// accuse has a detector set KernelDeadlock, at a time that tells one transition from another.
func accuse(w *world.World, n *corev1.Node, status corev1.ConditionStatus) {
	w.Helper()
	w.Must(w.API.Status().Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"KernelDeadlock","status":%q,"lastTransitionTime":%q}]}}`, status, w.Clock.Now().UTC().Format(time.RFC3339)))))
}

// A suspicion is cleared if the checks pass, once for each transition and across leaders. The node stays open
// meanwhile.
func TestSuspicionIsCleared(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, suspects)
	n := w.Verified("n")
	l := w.Lead()
	l.Drive()
	accuse(w, n, corev1.ConditionTrue)
	begun := w.Clock.Now()
	w.Exit = func(p *corev1.Pod) int {
		if _, f := w.Get(n.Name); f.Gated {
			t.Error("the node was closed on a suspicion")
		}
		if took := w.Clock.Now().Sub(begun); took < 30*time.Second {
			t.Errorf("a worker after %s, want 30s of the condition first", took)
		}
		return 0
	}
	l.Drive()
	_, f := w.Get(n.Name)
	if f.Record.Sequence != 2 || f.Record.Suspicion != nil || len(f.Record.Cleared) != 1 || !f.Labelled {
		t.Fatalf("after the suspicion: %+v", f.Record)
	}
	if cleared := w.EventCount(n.Name, decide.EventSuspicionCleared); cleared != 1 {
		t.Errorf("%d events SuspicionCleared", cleared)
	}
	l = w.Lead() // it knows the transition from the record
	l.RunFor(10 * time.Minute)
	if r := w.Record(n.Name); r.Sequence != 2 {
		t.Errorf("the same transition had the node verified again: %+v", r)
	}
	w.Clock.Advance(time.Minute)
	accuse(w, n, corev1.ConditionFalse)
	l.Drive()
	w.Clock.Advance(time.Minute)
	accuse(w, n, corev1.ConditionTrue)
	begun = w.Clock.Now()
	l.Drive()
	if r := w.Record(n.Name); r.Sequence != 3 {
		t.Errorf("another transition had the node verified %d times in all, want 3", r.Sequence)
	}
}

// A true suspicion closes the gate at the second failure. A suspicion that all nodes share closes none. Both also hold
// with deletion off.
func TestSuspicionIsComparedWithAnotherNode(t *testing.T) {
	for name, shared := range map[string]bool{"the node's own": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, suspects)
			n := w.Verified("n")
			w.Verified("control")
			probes := 0
			w.Exit = func(p *corev1.Pod) int {
				if world.IsProbe(p) {
					probes++
					if !shared {
						return 0
					}
				}
				return 1
			}
			l := w.Lead()
			l.Deliver()
			accuse(w, n, corev1.ConditionTrue)
			l.Until(5*time.Minute, func() bool { r := w.Record(n.Name); return r.Sequence > 2 })
			_, f := w.Get(n.Name)
			if probes == 0 || f.Gated == shared || f.Record.Suspicion == nil {
				t.Errorf("%d probes, gated %t, record %+v", probes, f.Gated, f.Record)
			}
			if shared && !strings.Contains(f.Record.LastMessage, "verified node") {
				t.Errorf("the record does not say why nothing was closed: %s", f.Record.LastMessage)
			}
		})
	}
}

// A suspicion with taint: true closes one gate of a pool at a time if maxUnhealthy allows no more.
func TestSuspicionClosesFewGates(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, `{"nodeManagement": {"reverify": {"onConditions": [{"type": "KernelDeadlock", "taint": true}]},
		"remediation": {"maxUnhealthy": "20%"}}}`)
	var nodes []*corev1.Node
	for i := range 5 {
		nodes = append(nodes, w.Verified(fmt.Sprintf("n%d", i)))
	}
	most := 0
	w.Exit = func(*corev1.Pod) int {
		closed := 0
		for _, n := range nodes {
			if _, f := w.Get(n.Name); f.Gated {
				closed++
			}
		}
		most = max(most, closed)
		return 0
	}
	l := w.Lead()
	l.Drive()
	for _, n := range nodes {
		accuse(w, n, corev1.ConditionTrue)
	}
	l.Drive()
	if most != 1 {
		t.Errorf("%d of 5 gates were closed at once, want 1 by maxUnhealthy 20%%", most)
	}
	for _, n := range nodes {
		if _, f := w.Get(n.Name); f.Gated || f.Record.Sequence != 2 {
			t.Errorf("%s: gated %t, %+v", n.Name, f.Gated, f.Record)
		}
	}
}

// A request causes a verification of the node. Its answer is in annotations that kubectl wait can wait for.
func TestRequestIsAnswered(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, "")
	n := w.Verified("n")
	l := w.Lead()
	ask := func(id, want string, workers int) {
		t.Helper()
		w.Annotate(n.Name, marks.AnnotationVerifyRequested, id)
		l.Until(5*time.Minute, func() bool {
			have, _ := w.Get(n.Name)
			return have.Annotations[marks.AnnotationVerifyCompleted] == id
		})
		have, f := w.Get(n.Name)
		if got := have.Annotations[marks.AnnotationVerifyResult]; got != want || f.Record.Request != id || w.Created(workerpod.PurposeVerify) != workers {
			t.Errorf("request %s: %q after %d workers, want %q after %d", id, got, w.Created(workerpod.PurposeVerify), want, workers)
		}
	}
	ask("a", "passed", 1)
	begun := w.Clock.Now()
	w.Exit = world.VerifyExits(2)
	ask("b", "inconclusive", 2)
	if took := w.Clock.Now().Sub(begun); took < 50*time.Second {
		t.Errorf("the second request was answered after %s, want at most one a minute", took)
	}
	w.Verified("control")
	w.Exit = world.VerifyExits(1)
	w.Clock.Advance(time.Minute)
	ask("c", "failed", w.Created(workerpod.PurposeVerify)+1)
	if _, f := w.Get(n.Name); f.Gated {
		t.Error("the first failure closed the gate")
	}
	if _, ok := l.Until(time.Minute, func() bool { _, f := w.Get(n.Name); return f.Gated }); !ok {
		t.Error("two failures of a verification that was asked for left the gate open")
	}
}
