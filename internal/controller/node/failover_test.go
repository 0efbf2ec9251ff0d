package node_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// failedUnseen makes a node's worker fail while no controller leads.
func failedUnseen(w *world.World, l *world.Leader, node string) {
	w.Helper()
	before := w.Created("verify-" + node)
	for turn := 0; w.Created("verify-"+node) == before; turn++ {
		if turn == 20 {
			w.Fatalf("no worker starts: %v, errors %v", l.Writes, l.Errs)
		}
		l.Steps(1)
	}
	for _, p := range w.Pods(node) {
		if p.Status.Phase == corev1.PodPending && p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify {
			w.Terminate(&p, 1)
		}
	}
}

// A worker fails in an outage while no controller leads. The failure does not count against the retries if a probe
// passes after the outage. With maxRetries 1, the controller would otherwise delete the node.
func TestFailureBeforeAFailoverIsNotCounted(t *testing.T) {
	w := world.Begin(t, `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {`+world.Deletes+`}}`)
	w.Exit = func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify && w.Record(p.Annotations[workerpod.AnnotationNode]).Sequence == 0 {
			return world.Stays
		}
		return 0
	}
	w.Verified("control")
	n := w.Node("n", world.Pooled)
	w.Claim(n)
	failedUnseen(w, w.Lead(), n.Name)
	successor := w.Lead()
	successor.Drive()
	got, f := w.Get(n.Name)
	if got == nil || w.Deleting(n.Name) || f.Gated || !f.Labelled || f.Record.Sequence != 2 || f.Record.Inconclusive != 1 || f.Record.Attempts != 0 {
		t.Errorf("deleted %t, record %+v", w.Deleting(n.Name), f.Record)
	}
	if e := w.EventCount(n.Name, decide.EventInconclusive); e != 1 {
		t.Errorf("%d events %s", e, decide.EventInconclusive.Name)
	}
}

// A controller that dies during every attempt exhausts no node: nobody saw when its workers failed.
func TestACrashLoopExhaustsNoNode(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"dryRun": true}}}`)
	w.Exit = func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify {
			return world.Stays
		}
		return 0
	}
	w.Verified("control")
	n := w.Node("n", world.Pooled)
	w.Claim(n)
	for range 4 {
		failedUnseen(w, w.Lead(), n.Name)
	}
	w.Lead().Drive()
	if r := w.Record(n.Name); r.Attempts != 0 || r.Inconclusive != 4 || r.LastReason != attempt.ReasonFailureUnseen || r.Held != "" {
		t.Errorf("record %+v", r)
	}
}

// A worker has ended and is deleted, and a controller's caches of nodes and pods are behind in every way. If its result
// is recorded, its attempt does not start again. If somebody else deleted it, it may: no result of it is known, and the
// second pod runs alone.
func TestEndedWorkerThatNoCacheShows(t *testing.T) {
	for name, tc := range map[string]struct {
		recorded bool // by another controller, which deleted it
		code     int
		shown    bool // this controller has seen the worker run
		again    bool
	}{
		"passed and recorded":                   {recorded: true},
		"passed and recorded, seen to run":      {recorded: true, shown: true},
		"failed and recorded":                   {recorded: true, code: 1},
		"failed and recorded, seen to run":      {recorded: true, code: 1, shown: true},
		"deleted by somebody else":              {again: true},
		"deleted by somebody else, seen to run": {again: true, shown: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, `{"worker": {"keepFailedSeconds": 0}, "reconciliation": {"initialBackoffSeconds": 60, "maxBackoffSeconds": 60}}`)
			exit := world.Stays
			w.Exit = func(*corev1.Pod) int { return exit }
			n := w.Node("n")
			l, other := w.Lead(), w.Lead()
			other.Steps(2)
			if tc.shown {
				l.Deliver()
			}
			before, _ := w.Get(n.Name)
			if exit = tc.code; tc.recorded {
				other.Until(10*time.Second, func() bool { return len(w.Pods(n.Name)) == 0 })
			} else {
				w.Loses(&w.Pods(n.Name)[0])
			}
			if left := w.Pods(n.Name); len(left) > 0 {
				t.Fatalf("%d workers are left", len(left))
			}
			l.StaleNodes[n.Name], l.StalePods = before, &corev1.PodList{}
			for range 3 {
				l.ReconcileAll() // the referee counts workers that occupy the node
			}
			if again := len(w.Pods(n.Name)) > 0; again != tc.again || len(l.Errs) > 0 {
				t.Errorf("it starts again: %t; record %+v, errors %v", again, w.Record(n.Name), l.Errs)
			}
			delete(l.StaleNodes, n.Name)
			l.StalePods, exit = nil, 0
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated || !f.Labelled || f.Record.LastOutcome != attempt.Passed || len(l.Errs) > 0 {
				t.Errorf("gated %t, record %+v, errors %v", f.Gated, f.Record, l.Errs)
			}
		})
	}
}

// Somebody removes or breaks a node's record while a worker is running that the cache does not show. Attempts count
// from 1 again, and the first one waits for that worker.
func TestNoWorkerBesideOneThatNoCacheShows(t *testing.T) {
	for name, record := range map[string]string{"removed": `null`, "unreadable": `"{"`} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, "")
			holds := true
			w.Exit = func(*corev1.Pod) int {
				if holds {
					return world.Stays
				}
				return 0
			}
			n := w.Node("n", func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionFalse, Reason: marks.ReasonChecksFailed})
			})
			w.WriteRecord(n, marks.Record{Sequence: 2, Attempts: 1, LastOutcome: attempt.Failed, LastReason: attempt.ReasonChecksFailed})
			l := w.Lead()
			l.Steps(2) // attempt 3 is under way
			patch := `{"metadata":{"annotations":{"node-ready/record":` + record + `}}}`
			w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
			successor := w.Lead()
			successor.StalePods = &corev1.PodList{}
			for range 3 {
				successor.ReconcileAll() // the referee counts workers that occupy the node
			}
			if pods := w.Pods(n.Name); len(pods) != 1 || len(successor.Errs) > 0 {
				t.Errorf("%d workers, errors %v", len(pods), successor.Errs)
			}
			successor.StalePods, holds = nil, false
			successor.Drive()
			if _, f := w.Get(n.Name); f.Gated || !f.Labelled || f.Record.LastOutcome != attempt.Passed || len(successor.Errs) > 0 {
				t.Errorf("gated %t, record %+v, errors %v", f.Gated, f.Record, successor.Errs)
			}
		})
	}
}
