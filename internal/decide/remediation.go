package decide

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Ledger is what is known of the actions of the last hour or window, the oldest first. An action is added only if the
// ledger still has its Version.
type Ledger struct {
	ledger.Contents
	// Problem is why the actions are unknown, so no limit can be checked.
	Problem string
}

// Workloads are ordinary pods on a node: those that do not belong to the node itself.
type Workloads struct {
	// Names are some of them, as namespace/name, sorted.
	Names []string
	// More: there are others.
	More bool
	// Stale: they were listed earlier. That is enough to hold a deletion, but not to add a taint that evicts.
	Stale bool
	// Problem says why they are not known.
	Problem string
}

// remediate decides whether to delete a node that exhausted its retries, or that is past its deadline by its own fault.
// If confirmed is true, the reason for the deletion was observed recently.
func (d *decision) remediate(confirmed bool) {
	r := d.in.Node.Record
	if r.Deletion != nil {
		if d.ev.Owner == nil {
			d.Need = NeedOwner
			return
		}
		switch {
		case d.ev.Owner.Terminating && r.Held == "":
			return // no attempt while the owner is deleted
		case d.ev.Owner.Terminating:
			d.recordIntent(d.ev.Owner.Target) // an earlier lookup failed, this one succeeded
			return
		case d.ev.Owner.Problem != "" && r.Deletion.Kind != owner.Node:
			d.recordHeld(owner.Guard, d.ev.Owner.Problem) // it may be terminating already
			return
		case !confirmed:
			// The intent is old, or from before a reboot or another configuration, and the deletion did not happen. A new
			// attempt must confirm it. A list of owners that is a few seconds old may not show the deletion.
			if !d.ev.Fresh {
				d.Need = NeedFresh
				return
			}
			r.Deletion, r.Held, r.HeldMessage = nil, "", ""
			d.Step, d.Change = StepRecord, marks.Change{Record: r}
			return
		}
	}
	if guard, message := d.heldBy(); guard != "" {
		d.recordHeld(guard, message)
		return
	} else if d.Need != NeedNothing {
		return
	}
	if !d.ev.Fresh {
		d.Need = NeedFresh // all evidence is then loaded again from the API server
		return
	}
	target := d.ev.Owner.Target
	switch last := lastAction(r); {
	case d.ev.Owner.Terminating:
		d.recordIntent(target)
		return
	case last != nil && last.State == marks.RemediationStarted && last.Condition != "":
		r.Remediations = withState(r.Remediations, marks.RemediationReverting) // before the next entry is tried
		d.Step, d.Change = StepRecord, marks.Change{Record: r}
		return
	case NextAction(d.in).Delete == nil:
		d.startAction()
		return
	}
	d.recordIntent(target)
	d.Step, d.Target, d.Cause = StepDelete, target, d.deletionCause()
	d.Events = []Event{{Reason: EventDeleted(target.Kind), Key: target.UID,
		Message: fmt.Sprintf("Deleted %s %s: %s", target.Kind, target.Name, d.Cause)}}
}

// resolveIntent handles an intended deletion before the result of an attempt that was running when the deletion was
// decided. A node must not be released or tried again while its owner is being deleted. It reports whether there was
// such an intent.
func (d *decision) resolveIntent(current *workerpod.Observation) bool {
	r := d.in.Node.Record
	if r.Deletion == nil || !d.in.Config.NodeManagement.DeleteFailedNodes ||
		current == nil && d.in.VanishedAttempt != r.Sequence+1 {
		return false
	}
	d.Condition = d.betweenAttempts()
	d.remediate(false)
	return true
}

// deletionCause says why the node is to be deleted.
func (d *decision) deletionCause() string {
	r := d.in.Node.Record
	if d.exhausted() && r.LastOutcome == attempt.Failed || r.DeadlineCause == nil {
		return fmt.Sprintf("%d attempts failed, last: %s", r.Attempts, LastFailure(r))
	}
	limit := time.Duration(d.in.Profile.VerificationDeadlineSeconds) * time.Second
	return fmt.Sprintf("not verified within %s: %s", limit, attempt.Text(r.DeadlineCause.Message))
}

// targetKind is the kind of the object that a deletion of the node would delete, as far as that is known.
func (d *decision) targetKind() string {
	if a := NextAction(d.in); a.Condition != nil {
		return marks.KindCondition
	} else if a.Object != nil {
		_, kind, _ := a.Object.Identity()
		return kind
	}
	if d.ev.Owner != nil && d.ev.Owner.Name != "" {
		return d.ev.Owner.Kind
	}
	return d.in.Node.Owner.Kind
}

// recordIntent records the object that is about to be deleted. The API server refuses the write if the node has changed
// since.
func (d *decision) recordIntent(t owner.Target) {
	r := d.in.Node.Record
	r.Deletion = &marks.Deletion{Kind: t.Kind, Name: t.Name, UID: t.UID, Time: d.now.UTC().Truncate(time.Second)}
	r.NextAttemptTime, r.Held, r.HeldMessage = nil, "", ""
	d.Step, d.Change = StepRecord, marks.Change{Record: r}
	d.closeGate()
}

// recordHeld records the guard that holds the deletion. It emits an event if the guard is another one than before. The
// guard's message is recorded once, because it may contain a count or an error that changes all the time.
func (d *decision) recordHeld(guard, message string) {
	r := d.in.Node.Record
	// Without the node's owner, the controller cannot tell whether an intended deletion has begun.
	if r.Deletion != nil && (guard != owner.Guard || r.Deletion.Kind == owner.Node) {
		r.Deletion = nil
	}
	r.Remediations = cancelIntended(r)
	sameIntent := (r.Deletion == nil) == (d.in.Node.Record.Deletion == nil) &&
		slices.Equal(r.Remediations, d.in.Node.Record.Remediations)
	if r.Held == guard && sameIntent && (d.in.Node.Gated || protected(d.in)) {
		return
	}
	d.Target.Kind = d.targetKind()
	if r.Held != guard {
		r.Held, r.HeldMessage = guard, attempt.Text(message)
		e := Event{Reason: EventHeld, Key: guard + "/" + eventKey(r),
			Message: fmt.Sprintf("Remediation is held by %s: %s", guard, r.HeldMessage)}
		if guard == GuardNeverVerifiedOnly {
			e.Reason = EventQuarantined
		}
		d.Events = []Event{e}
	}
	if at, ok := d.nextAttemptTime(); ok && !d.spent.first && r.Deletion == nil {
		r.NextAttemptTime = ptr.To(at)
	}
	d.Step, d.Change = StepRecord, marks.Change{Record: r}
	d.closeGate()
}
