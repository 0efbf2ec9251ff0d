package effects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// failedUnseen has a node's worker fail while nobody leads.
func (w *world) failedUnseen(l *leader, node string) {
	w.Helper()
	before := w.born("verify-" + node)
	for turn := 0; w.born("verify-"+node) == before; turn++ {
		if turn == 20 {
			w.Fatalf("no worker starts: %v, errors %v", l.writes, l.errs)
		}
		l.turns(1)
	}
	for _, p := range w.pods(node) {
		if p.Status.Phase == corev1.PodPending && p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify {
			w.terminate(&p, 1)
		}
	}
}

// A worker that failed in an outage, while no controller led, spends no budget once a probe of after the outage passes: with
// maxRetries 1 the node would be deleted for it.
func TestFailureBeforeAFailoverIsNotCounted(t *testing.T) {
	w := begin(t, `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {`+deletes+`}}`)
	w.exit = func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify && w.record(p.Annotations[workerpod.AnnotationNode]).Sequence == 0 {
			return stays
		}
		return 0
	}
	w.verified("control")
	n := w.node("n", pooled)
	w.claim(n)
	w.failedUnseen(w.leads(), n.Name)
	successor := w.leads()
	successor.drive()
	got, f := w.get(n.Name)
	if got == nil || w.deleting(n.Name) || f.Gated || !f.Labelled || f.Record.Sequence != 2 || f.Record.Inconclusive != 1 || f.Record.Attempts != 0 {
		t.Errorf("deleted %t, record %+v", w.deleting(n.Name), f.Record)
	}
	if e := w.emitted(n.Name, decide.EventInconclusive); e != 1 {
		t.Errorf("%d events %s", e, decide.EventInconclusive.Name)
	}
}

// A controller that dies during every attempt exhausts a node all the same.
func TestANodeIsExhaustedByACrashLoop(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"dryRun": true}}}`)
	w.exit = func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify {
			return stays
		}
		return 0
	}
	w.verified("control")
	n := w.node("n", pooled)
	w.claim(n)
	for range 4 {
		w.failedUnseen(w.leads(), n.Name)
	}
	w.leads().drive()
	if r := w.record(n.Name); r.Attempts != 2 || r.Inconclusive != 2 || r.LastOutcome != attempt.Failed || r.Held != decide.GuardDryRun {
		t.Errorf("record %+v", r)
	}
}

// Somebody removes the record of a node, or breaks it, while a worker is under way that the cache does not show. Attempts count from 1
// again, and the first one waits for that worker.
func TestNoWorkerBesideOneThatNoCacheShows(t *testing.T) {
	for name, record := range map[string]string{"removed": `null`, "unreadable": `"{"`} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, "")
			holds := true
			w.exit = func(*corev1.Pod) int {
				if holds {
					return stays
				}
				return 0
			}
			n := w.node("n", func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionFalse, Reason: marks.ReasonChecksFailed})
			})
			w.write(n, marks.Record{Sequence: 2, Attempts: 1, LastOutcome: attempt.Failed, LastReason: attempt.ReasonChecksFailed})
			l := w.leads()
			l.turns(2) // attempt 3 is under way
			patch := `{"metadata":{"annotations":{"node-ready/record":` + record + `}}}`
			w.must(api.Patch(w.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
			successor := w.leads()
			successor.stalePods = &corev1.PodList{}
			for range 3 {
				successor.pass() // the referee counts workers that occupy the node
			}
			if pods := w.pods(n.Name); len(pods) != 1 || len(successor.errs) > 0 {
				t.Errorf("%d workers, errors %v", len(pods), successor.errs)
			}
			successor.stalePods, holds = nil, false
			successor.drive()
			if _, f := w.get(n.Name); f.Gated || !f.Labelled || f.Record.LastOutcome != attempt.Passed || len(successor.errs) > 0 {
				t.Errorf("gated %t, record %+v, errors %v", f.Gated, f.Record, successor.errs)
			}
		})
	}
}
