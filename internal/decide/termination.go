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

// occupyingWorker is a worker of an earlier attempt that still occupies the node, or nil. podWork deletes it.
func occupyingWorker(in Input) *workerpod.Observation {
	for i := range in.Pods {
		if pod := &in.Pods[i]; pod.Purpose == workerpod.PurposeVerify && pod.Occupies {
			return pod
		}
	}
	return nil
}

// stuckAt is when a terminating worker that still runs counts as a fault of its node. It does not (ok is false) if a
// finalizer keeps the pod or the node is not Ready. The time starts again once the finalizer is gone or the node is
// Ready again.
func stuckAt(in Input, pod workerpod.Observation) (at time.Time, ok bool) {
	if at = pod.EndsBy(); at.IsZero() || !pod.HasRunningContainer || len(pod.Finalizers) > 0 || !in.Node.Ready {
		return time.Time{}, false
	}
	seen := pod.Seen
	began := slices.MaxFunc([]time.Time{seen.Terminating, seen.FinalizersGone, in.NotReadySeen}, time.Time.Compare)
	return at.Add(began.Sub(seen.Terminating)), true
}

// recordsStuck reports whether the last recorded failure is a worker that did not end. A result that names a check does
// not count: its reason is the worker's own and may be anything.
func recordsStuck(r marks.Record) bool {
	return r.LastOutcome == attempt.Failed && r.LastCheck == "" && r.LastReason == attempt.ReasonWorkerStuck
}

// stuckResolved reports whether the record names a stuck worker that is gone now, or that this process has not yet
// observed for long enough itself. Such a record does not delay the next attempt, and does not lead to an action.
func stuckResolved(in Input, now time.Time) bool {
	if !recordsStuck(in.Node.Record) {
		return false
	}
	pod := occupyingWorker(in)
	if pod == nil {
		return true
	}
	at, ok := stuckAt(in, *pod)
	return !ok || now.Before(at)
}

// awaitTermination is the plan p of a node that waits for a worker to end before the next attempt starts. If the worker
// is stuck, the next attempt cannot start and is recorded as failed.
func awaitTermination(in Input, ev Evidence, p Plan, pod *workerpod.Observation, now time.Time) Plan {
	p.Condition = terminationCondition(in, pod, now)
	at, ok := stuckAt(in, *pod)
	switch {
	case !ok:
	case now.Before(at):
		p.requeueAfter(at.Sub(now))
	case !ev.Fresh:
		p.Need = NeedFresh // a stale cache may show a worker that has ended
	default:
		return recordStuck(in, ev, p, pod, at, now)
	}
	return p
}

// recordStuck records the next attempt as failed because it cannot start.
func recordStuck(in Input, ev Evidence, p Plan, pod *workerpod.Observation, at, now time.Time) Plan {
	a := in.NextAttempt()
	result := attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonWorkerStuck,
		Message: fmt.Sprintf("worker %s does not end: its container still runs long after its grace period, and no "+
			"attempt can start before it ends", pod.Name)}
	if !needsControlProbe(in) {
		return p.recording(recordResult(in, budgetOf(in), a, result, now))
	}
	if due, ok := nextAttemptAt(in, now); ok && !budgetOf(in).first && due.After(at) {
		at = due // the attempt before had a failure of its own
	}
	return settle(in, ev, p, failure{subject: subjectOf(in, a.Number), at: at, attempt: a, result: result}, now)
}

// terminationCondition is the condition of a node that waits for a worker to end.
func terminationCondition(in Input, pod *workerpod.Observation, now time.Time) *marks.Condition {
	if !budgetOf(in).first && recordsStuck(in.Node.Record) {
		return betweenAttempts(in, now)
	}
	reason := marks.ReasonVerifying
	message := fmt.Sprintf("Waiting for worker %s of attempt %d to end", pod.Name, pod.Attempt.Number)
	if pod.Terminating && !pod.Seen.Terminating.IsZero() {
		message += ": it has been terminating since " + pod.Seen.Terminating.UTC().Format(time.RFC3339) + " or earlier"
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
	if !budgetOf(in).first && in.Node.Record.Held != "" {
		c := betweenAttempts(in, now)
		c.Message = attempt.Text(message + "; previous result: " + c.Message)
		return c
	}
	return unknownCondition(reason, message, now)
}
