package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// lookAtHeld does what follows for the node without the guard, which is evaluated again. Only its condition differs.
func lookAtHeld(in Input, ev Evidence, now time.Time) Plan {
	if spentAll(in) {
		return lookAtExhausted(in, ev, now)
	}
	if _, due := nextAttempt(in, now); due {
		return lookAtWaiting(in, ev, now)
	}
	return lookAtBackingOff(in, ev, now)
}

// heldCondition is the condition of a node that a guard holds. fault is what is wrong with it.
func heldCondition(r marks.Record, fault, then string) *marks.Condition {
	return &marks.Condition{Status: corev1.ConditionUnknown, Reason: marks.ReasonRemediationHeld, Since: lastTime(r),
		Message: fmt.Sprintf("%s; remediation is held by %s: %s%s",
			fault, attempt.Text(r.Held), attempt.Text(r.HeldMessage), then)}
}

// recordGuard is the plan p of a node, with the record of the guard that holds the action, or that none does, and the
// gate closed. It emits an event if the guard is another one than before. The guard's message is recorded once, because
// it may contain a count or an error that changes all the time.
func recordGuard(in Input, ev Evidence, p Plan, guard, message string, now time.Time) Plan {
	r := in.Node.Record
	// Without the node's owner, the controller cannot tell whether an intended deletion has begun.
	if r.Deletion != nil && (guard != owner.Guard || r.Deletion.Kind == owner.Node) {
		r.Deletion = nil
	}
	sameIntent := (r.Deletion == nil) == (in.Node.Record.Deletion == nil)
	if r.Held == guard && sameIntent && (in.Closed() || protected(in)) {
		return p // no write follows, so recent evidence is enough
	}
	if guard == "" && !ev.Fresh {
		p.Need = NeedFresh
		return p
	}
	p.Target.Kind = targetKind(in, ev)
	if r.Held != guard {
		r.Held, r.HeldMessage = guard, attempt.Text(message)
		if guard != "" {
			p.Events = []Event{heldEvent(r, guard, message)}
		}
	}
	if at, ok := nextAttemptAt(in, now); ok && !budgetOf(in).first && r.Deletion == nil {
		r.NextAttemptTime = ptr.To(at)
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	closeGate(&p.Change, in)
	return p
}

// heldEvent is the event about a guard that holds an action.
func heldEvent(r marks.Record, guard, message string) Event {
	e := Event{Reason: EventHeld, Key: guard + "/" + eventKey(r),
		Message: fmt.Sprintf("Remediation is held by %s: %s", guard, attempt.Text(message))}
	if guard == GuardNeverVerifiedOnly {
		e.Reason = EventQuarantined
	}
	return e
}
