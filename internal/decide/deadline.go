package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// RoundStart is the time since which the node must be verified: its creation if it never passed, or else the time in
// its record. The value ok is false if the record has no plausible time.
func RoundStart(in Input, now time.Time) (at time.Time, ok bool) {
	r := in.Node.Record
	switch {
	case !r.MayHaveVerified():
		return in.Node.Created, !in.Node.Created.IsZero()
	case r.Since == nil || r.Since.After(now.Add(clockTolerance)):
		return time.Time{}, false
	case r.VerifiedTime != nil && !r.VerifiedTime.After(now) && r.Since.Before(*r.VerifiedTime):
		return time.Time{}, false // of an earlier round; a pass in the future is forged and ignored
	}
	return *r.Since, true
}

// beginRound records the start of another round for a node that passed before. If reverify.taint is on, it closes the
// gate first, so that the gate does not stay open while prerequisites are unmet. It reports whether there is anything
// to write.
func (d *decision) beginRound(current *workerpod.Observation) bool {
	r := d.in.Node.Record
	if !r.MayHaveVerified() {
		return false
	}
	_, began := RoundStart(d.in, d.now)
	setSince := d.in.Profile.VerificationDeadlineSeconds > 0 && !began
	closeGate := d.in.Config.NodeManagement.Reverify.Taint && current == nil && d.spent.first && r.Suspicion == nil &&
		!d.in.Closed() &&
		!protected(d.in) && d.in.Node.Leaving == ""
	if !setSince && !closeGate {
		return false
	}
	r.NodeUID = d.in.Node.UID // a record that could not be read has none
	if setSince {
		r.Since = ptr.To(timestamp(d.now))
	}
	d.Step, d.Change = StepRecord, marks.Change{Record: r}
	if closeGate {
		d.closeGate()
	}
	return true
}

// maxAttemptDuration is how long one attempt may take.
func maxAttemptDuration(in Input) time.Duration {
	return time.Duration(in.Profile.AttemptSeconds())*time.Second + deadlineGrace
}

// verificationDeadline is when the round counts as failed; ok is false if it never does, as while others share the
// node's failure. A new leader grants the node one full attempt, because the controllers themselves may have been down
// before.
func verificationDeadline(in Input, now time.Time) (at time.Time, ok bool) {
	began, ok := RoundStart(in, now)
	if !ok || SharesFailure(in) || in.Profile.VerificationDeadlineSeconds <= 0 || in.NeedsVerificationSince.IsZero() {
		return time.Time{}, false
	}
	at = began.Add(time.Duration(in.Profile.VerificationDeadlineSeconds) * time.Second)
	if grace := in.NeedsVerificationSince.Add(maxAttemptDuration(in)); grace.After(at) {
		at = grace
	}
	return at, true
}

// deadlinePassed reports whether the node is past its deadline, and an action on it may follow. None follows for a node
// in service: only its own failures close its gate.
func deadlinePassed(in Input, now time.Time) bool {
	at, ok := verificationDeadline(in, now)
	return ok && !now.Before(at) && !inService(in)
}

// ReportsDeadlineExceeded reports whether the node's condition is DeadlineExceeded. It serves people, metrics and the
// counts of unhealthy nodes. Deletions depend on the deadline itself.
func ReportsDeadlineExceeded(in Input) bool {
	return in.Node.Condition != nil && in.Node.Condition.Reason == marks.ReasonDeadlineExceeded
}

// reportDeadline sets the condition of a node past its deadline to DeadlineExceeded, whatever the node waits for. While
// a new leader grants the node another attempt, it keeps the condition. Otherwise every new leader would make alerts
// start again.
func (d *decision) reportDeadline() {
	at, ok := verificationDeadline(d.in, d.now)
	began, _ := RoundStart(d.in, d.now)
	limit := time.Duration(d.in.Profile.VerificationDeadlineSeconds) * time.Second
	switch {
	case !ok:
		return
	case d.now.Before(at) && (!ReportsDeadlineExceeded(d.in) || d.now.Before(began.Add(limit))):
		d.requeueAfter(at.Sub(d.now))
		return
	case d.Step != StepNone:
		d.Condition = nil // the next decision, after the step, sets it
		return
	case d.Condition != nil && (d.Condition.Reason == marks.ReasonRetriesExhausted ||
		d.Condition.Reason == marks.ReasonRemediationHeld && !releasedUnverified(d.in)):
		return
	}
	r, blockedBy := d.in.Node.Record, attempt.Text(d.blockedBy())
	if r.Held != "" && !releasedUnverified(d.in) {
		d.Condition = heldCondition(r, blockedBy, "")
		d.Condition.Since = at
		return
	}
	then := "; the node is released as soon as it passes"
	switch {
	case r.Deletion != nil:
		then = beingDeleted(*r.Deletion)
	case releasedUnverified(d.in):
		then = "; the node was released unverified at " + r.Released.UTC().Format(time.RFC3339)
	}
	d.Condition = &marks.Condition{Status: corev1.ConditionFalse, Reason: marks.ReasonDeadlineExceeded, Since: at,
		Message: fmt.Sprintf("Not verified within %s (since %s): %s%s",
			limit, began.UTC().Format(time.RFC3339), blockedBy, then)}
	if !ReportsDeadlineExceeded(d.in) {
		key := fmt.Sprintf("deadline@%d", began.UnixMicro())
		d.Events = append(d.Events, Event{Reason: EventFailed, Key: key, Message: d.Condition.Message})
	}
}

// blockedBy says what keeps the node from passing. The text is the same from one attempt to the next.
func (d *decision) blockedBy() string {
	if d.ev.Unmet != nil && len(*d.ev.Unmet) > 0 {
		return unmetMessage(*d.ev.Unmet)
	}
	if c := d.Condition; c != nil {
		switch c.Reason {
		case marks.ReasonWaitingForPrerequisites, marks.ReasonWaitingForRegistration, marks.ReasonWaitingForSlot,
			marks.ReasonRulesUnavailable, marks.ReasonReleaseRefused:
			return c.Message
		}
	}
	if why, _ := takenBack(d.in, d.now); why != "" {
		return why
	}
	if d.spent.first {
		return "no attempt has ended yet"
	}
	if r := d.in.Node.Record; recordsDeadline(r) {
		return attempt.Text(r.LastMessage)
	}
	return LastFailure(d.in.Node.Record)
}

// recordsDeadline reports whether the last recorded attempt stands for a missed deadline. A result that names a check
// does not count: its reason is the worker's own and may be anything.
func recordsDeadline(r marks.Record) bool {
	return r.LastCheck == "" && r.LastReason == attempt.ReasonDeadline
}

// overdue says what kept a node whose last recorded attempt stands for a missed deadline.
func overdue(in Input, r marks.Record) string {
	limit := time.Duration(in.Profile.VerificationDeadlineSeconds) * time.Second
	return fmt.Sprintf("not verified within %s: %s", limit, attempt.Text(r.LastMessage))
}

// expire does what onDeadline asks for about a node past its deadline that no attempt runs on. due is whether the next
// attempt was due and could not start.
func (d *decision) expire(due bool) {
	r := d.in.Node.Record
	if d.Step != StepNone || d.Need != NeedNothing || !expires(d.in, d.now) {
		return
	}
	if d.in.Config.Reconciliation.OnDeadline == config.OnDeadlineRelease {
		d.releaseUnverified()
		return
	}
	at, _ := verificationDeadline(d.in, d.now)
	if next, ok := nextAttemptAt(d.in, d.now); ok && due && !d.spent.first && next.After(at) {
		at = next
	} else if !due && r.LastTime != nil && r.LastTime.After(at) {
		at = *r.LastTime
	}
	d.recordDeadline(at)
}

// expires reports whether the node is past its deadline, and onDeadline asks for an action on it.
func expires(in Input, now time.Time) bool {
	n := in.Node
	if !deadlinePassed(in, now) || n.Leaving != "" || n.Record.Deletion != nil {
		return false
	}
	switch in.Config.Reconciliation.OnDeadline {
	case config.OnDeadlineRemediate:
		return in.Config.NodeManagement.DeleteFailedNodes && !in.Profile.Unchecked()
	case config.OnDeadlineRelease:
		// Karpenter puts the taints back until it has registered the node. Before a cloud provider has initialized it, its
		// profile, and so its deadline, may be another one.
		initialized := n.Uninitialized == "" && (!n.Owner.Managed || n.Owner.Registered)
		return n.Gated && n.Record.Released == nil && initialized && !n.Lost && !spentAll(in)
	}
	return false
}

// releaseUnverified opens the gate of a node past its deadline, once. The node gets no verified label and its attempts
// continue.
func (d *decision) releaseUnverified() {
	if !d.ev.Fresh {
		d.Need = NeedFresh // a stale cache may lack a worker that runs, or a result
		return
	}
	began, _ := RoundStart(d.in, d.now)
	message := fmt.Sprintf("Not verified within %s, so the gating taints are removed without the verified label "+
		"(reconciliation.onDeadline: release): %s",
		time.Duration(d.in.Profile.VerificationDeadlineSeconds)*time.Second, attempt.Text(d.blockedBy()))
	r := d.in.Node.Record
	r.NodeUID, r.Released = d.in.Node.UID, ptr.To(timestamp(d.now)) // a record that could not be read has no UID
	d.Step, d.Change = StepRecord, marks.Change{Record: r, Gate: marks.GateOpen}
	if d.in.Node.Labelled { // the taint came back
		d.Change.Label = ptr.To(false)
	}
	d.Events = []Event{{Reason: EventReleasedUnverified, Key: fmt.Sprintf("release@%d", began.UnixMicro()),
		Message: message}}
}

// releasedUnverified reports whether the node's gate was opened past its deadline without a pass, and is still open.
func releasedUnverified(in Input) bool { return in.Node.Record.Released != nil && !in.Node.Gated }

// inconclusiveAttempt reports whether the last attempt of the run left the node unverified and its retries unspent, so
// that the deadline need not wait for another one. After one that stands for a deadline, a real one comes first: what
// verified nodes shared may be over.
func inconclusiveAttempt(in Input) bool {
	r := in.Node.Record
	changed := r.LastCheck == "" && r.LastReason == attempt.ReasonChecksChanged
	return (!budgetOf(in).first || changed) && !recordsDeadline(r) &&
		(r.LastOutcome == attempt.Inconclusive || !spentAll(in))
}

// recordDeadline records the next attempt as failed because the deadline passed at the given time.
func (d *decision) recordDeadline(at time.Time) {
	a := d.in.NextAttempt()
	result := attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonDeadline,
		Message: attempt.Text(d.blockedBy())}
	if !needsControlProbe(d.in) {
		d.record(a, &result)
		return
	}
	shown := d.Condition
	d.settle(failure{subject: subjectOf(d.in, a.Number), at: at, attempt: a, result: result})
	if d.Step != StepRecord {
		d.Condition = shown // no attempt failed; reportDeadline says what keeps the node
	}
}
