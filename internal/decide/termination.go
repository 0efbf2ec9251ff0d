package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// forceDelete deletes a terminating pod without grace once it should have ended, if none of its containers runs: a
// container runtime that hangs does not confirm the end of what it never started.
func (p *Plan) forceDelete(pod workerpod.Observation, now time.Time) {
	at := pod.EndsBy()
	if pod.HasRunningContainer || !pod.Occupies || at.IsZero() {
		return
	}
	if now.Before(at) {
		p.requeueAfter(at.Sub(now))
		return
	}
	p.ForceDelete = append(p.ForceDelete, pod)
}

// occupyingWorker is a worker of the node that still occupies it; nil where there is none. tidy has it deleted.
func occupyingWorker(in Input) *workerpod.Observation {
	for i := range in.Pods {
		if pod := &in.Pods[i]; pod.Purpose == workerpod.PurposeVerify && pod.Occupies {
			return pod
		}
	}
	return nil
}

// stuckAt is from when a terminating worker that still runs is a fault of its node. A foreign finalizer, or a time in
// which the kubelet could not report, explains it otherwise; then ok is false or the time begins anew.
func stuckAt(in Input, pod workerpod.Observation) (at time.Time, ok bool) {
	if at = pod.EndsBy(); at.IsZero() || !pod.HasRunningContainer || len(pod.Finalizers) > 0 || !in.Node.Ready {
		return time.Time{}, false
	}
	began := slices.MaxFunc([]time.Time{pod.Seen.Terminating, pod.Seen.FinalizersGone, in.NotReadySeen}, time.Time.Compare)
	return at.Add(began.Sub(pod.Seen.Terminating)), true
}

// workerStuck reports whether a worker that cannot be ended is in the way of the next one.
func workerStuck(in Input, now time.Time) bool {
	pod := occupyingWorker(in)
	if pod == nil {
		return false
	}
	at, ok := stuckAt(in, *pod)
	return ok && !now.Before(at)
}

// recordsStuck reports whether r records that a worker could not be ended. A check's reason is the worker's word.
func recordsStuck(r marks.Record) bool {
	return r.LastOutcome == attempt.Failed && r.LastCheck == "" && r.LastReason == attempt.ReasonWorkerStuck
}

// stuckResolved reports whether the worker that the record says could not be ended is gone, or is not known to this process
// to be stuck. Such a record neither delays the next attempt nor leads to a deletion.
func stuckResolved(in Input, now time.Time) bool {
	return recordsStuck(in.Node.Record) && !workerStuck(in, now)
}

// awaitTermination waits for a worker to end before the next attempt starts. Where it cannot be ended and that is a fault of
// the node, it is the failure of the next attempt, which cannot start.
func (p *Plan) awaitTermination(in Input, s budget, pod *workerpod.Observation, ev Evidence, now time.Time) {
	p.Condition = terminationCondition(in, s, pod, now)
	at, ok := stuckAt(in, *pod)
	switch {
	case !ok:
	case now.Before(at):
		p.requeueAfter(at.Sub(now))
	case !ev.Fresh:
		p.need(NeedFresh) // a cache that lags would take a worker that has ended for one that does not
	default:
		p.recordStuck(in, s, pod, at, ev, now)
	}
}

// recordStuck records that the next attempt cannot start, which the node is blamed for as for any failure.
func (p *Plan) recordStuck(in Input, s budget, pod *workerpod.Observation, at time.Time, ev Evidence, now time.Time) {
	a := in.NextAttempt()
	result := &attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonWorkerStuck,
		Message: fmt.Sprintf("worker %s cannot be ended: its container still runs long after its grace period, "+
			"and no attempt can start beside it", pod.Name)}
	if !needsControlProbe(in.Config) {
		p.record(in, s, a, result, now)
		return
	}
	if due, ok := nextAttemptTime(in.Config, in.Node.Record, in.Node.UID, now); ok && !s.first && due.After(at) {
		at = due // this attempt's failure is not that of the one before
	}
	subject := fmt.Sprintf("%s/%d", in.Node.UID, a.Number)
	p.attribute(in, s, failure{subject: subject, at: at, attempt: a, result: result}, ev, now)
}

// terminationCondition is the condition of a node that waits for a worker to end.
func terminationCondition(in Input, s budget, pod *workerpod.Observation, now time.Time) *marks.Condition {
	if !s.first && recordsStuck(in.Node.Record) {
		return betweenAttempts(in, s, now)
	}
	reason := marks.ReasonVerifying
	message := fmt.Sprintf("Waiting for worker %s of attempt %d to end", pod.Name, pod.Attempt.Number)
	if pod.Terminating && !pod.Seen.Terminating.IsZero() {
		message += ": it is terminating since " + pod.Seen.Terminating.UTC().Format(time.RFC3339) + " at the latest"
		if pod.HasRunningContainer {
			message += ", and its container has not ended"
		}
		if !now.Before(pod.EndsBy()) {
			reason = marks.ReasonWorkerInconclusive
		}
	}
	if len(pod.Finalizers) > 0 {
		message += "; finalizers: " + strings.Join(pod.Finalizers, ", ")
	}
	if !s.first && in.Node.Record.Held != "" {
		c := betweenAttempts(in, s, now)
		c.Message = attempt.Text(message + "; before: " + c.Message)
		return c
	}
	return unknownCondition(reason, message, now)
}
