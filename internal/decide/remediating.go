package decide

import (
	"fmt"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// lookAtRemediating sees an intended deletion through, before the result of an attempt that was running when it was
// decided. A node must not be released or tried again while its owner is being deleted. While a condition asks a
// repairer to act, attempts go on.
func lookAtRemediating(in Input, ev Evidence, now time.Time) Plan {
	r := in.Node.Record
	switch {
	case r.Deletion == nil:
		return lookAtExhausted(in, ev, now)
	case CurrentPod(r, in.Pods) != nil || in.Vanished.Number == r.Sequence+1:
		return remedied(in, ev, Plan{Condition: betweenAttempts(in, now)}, false, now)
	case localUnderWay(in): // nobody deletes the owner of a node that verifies itself
		return lookAtVerifying(in, ev, now)
	}
	p, _ := between(in, now)
	if in.Node.Leaving != "" {
		return p // it is leaving because we deleted it, or others remove it
	}
	return remedied(in, ev, p, failureConfirmed(in, now), now)
}

// remedied is the plan p of a node that exhausted its retries, with what remedyOf decides.
func remedied(in Input, ev Evidence, p Plan, confirmed bool, now time.Time) Plan {
	r, found := in.Node.Record, remedyOf(in, ev, confirmed, now)
	switch target := found.target; found.action {
	case actionDrop:
		r.Deletion, r.Held, r.HeldMessage = nil, "", ""
		p.Step, p.Change = StepRecord, marks.Change{Record: r}
	case actionHold, actionAsk:
		return recordGuard(in, ev, p, found.held.guard, found.held.message, now)
	case actionIntend:
		p.Step, p.Change = StepRecord, intent(in, target, now)
	case actionDelete:
		p.Step, p.Change, p.Target, p.Cause = StepDelete, intent(in, target, now), target, remediationCause(in)
		p.Events = []Event{remediationStarted(r, fmt.Sprintf("%s %s is deleted", target.Kind, target.Name), p.Cause),
			{Reason: EventDeleted(target.Kind), Key: target.UID,
				Message: fmt.Sprintf("Deleted %s %s: %s", target.Kind, target.Name, p.Cause)}}
	default:
		p.Need = found.need
	}
	return p
}

// remediationStarted is the event about an action that begins.
func remediationStarted(r marks.Record, what, cause string) Event {
	message := fmt.Sprintf("Remediation: %s: %s", what, cause)
	return Event{Reason: EventRemediationStarted, Key: eventKey(r), Message: message}
}

// remediationCause says why an action is taken on the node.
func remediationCause(in Input) string {
	r := in.Node.Record
	if recordsDeadline(r) {
		return overdue(in, r)
	}
	return fmt.Sprintf("%d attempts failed, last: %s", r.Attempts, LastFailure(r))
}

// targetKind is the kind of the object that a deletion of the node would delete, as far as that is known, or
// marks.KindCondition.
func targetKind(in Input, ev Evidence) string {
	if in.Config.NodeManagement.Remediation.Action == config.ActionCondition {
		return marks.KindCondition
	}
	if ev.Owner != nil && ev.Owner.Name != "" {
		return ev.Owner.Kind
	}
	return in.Node.Owner.Kind
}

// intent is the change that records the object that is about to be deleted. The API server refuses the write if the
// node has changed since.
func intent(in Input, t owner.Target, now time.Time) marks.Change {
	r := in.Node.Record
	r.Deletion = &marks.Deletion{Kind: t.Kind, Name: t.Name, UID: t.UID, Time: now.UTC().Truncate(time.Second)}
	r.NextAttemptTime, r.Held, r.HeldMessage = nil, "", ""
	c := marks.Change{Record: r}
	closeGate(&c, in)
	return c
}
