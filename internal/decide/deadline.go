package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
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
// counts of unhealthy nodes. Actions depend on the deadline itself.
func ReportsDeadlineExceeded(in Input) bool {
	return in.Node.Condition != nil && in.Node.Condition.Reason == marks.ReasonDeadlineExceeded
}

// withDeadline is the plan p of a node, whose condition past the deadline is DeadlineExceeded, whatever the node waits
// for. While a new leader grants the node another attempt, it keeps the condition. Otherwise every new leader would
// make alerts start again.
func withDeadline(in Input, ev Evidence, p Plan, now time.Time) Plan {
	at, ok := verificationDeadline(in, now)
	began, _ := RoundStart(in, now)
	limit := time.Duration(in.Profile.VerificationDeadlineSeconds) * time.Second
	switch {
	case !ok:
		return p
	case now.Before(at) && (!ReportsDeadlineExceeded(in) || now.Before(began.Add(limit))):
		p.requeueAfter(at.Sub(now))
		return p
	case p.Step != StepNone:
		p.Condition = nil // the next decision, after the step, sets it
		return p
	case p.Condition != nil && (p.Condition.Reason == marks.ReasonRetriesExhausted ||
		p.Condition.Reason == marks.ReasonRemediationHeld && !releasedUnverified(in)):
		return p
	}
	r, why := in.Node.Record, attempt.Text(blockedBy(in, ev, p.Condition, now))
	if r.Held != "" && !releasedUnverified(in) {
		p.Condition = heldCondition(r, why, "")
		p.Condition.Since = at
		return p
	}
	then := "; the node is released as soon as it passes"
	switch {
	case r.Deletion != nil:
		then = beingDeleted(*r.Deletion)
	case releasedUnverified(in):
		then = "; the node was released unverified at " + r.Released.UTC().Format(time.RFC3339)
	}
	p.Condition = &marks.Condition{Status: corev1.ConditionFalse, Reason: marks.ReasonDeadlineExceeded, Since: at,
		Message: fmt.Sprintf("Not verified within %s (since %s): %s%s",
			limit, began.UTC().Format(time.RFC3339), why, then)}
	if !ReportsDeadlineExceeded(in) {
		key := fmt.Sprintf("deadline@%d", began.UnixMicro())
		p.Events = append(p.Events, Event{Reason: EventFailed, Key: key, Message: p.Condition.Message})
	}
	return p
}

// blockedBy says what keeps the node from passing. The text is the same from one attempt to the next. shown is the
// node's condition without the deadline.
func blockedBy(in Input, ev Evidence, shown *marks.Condition, now time.Time) string {
	if ev.Unmet != nil && len(*ev.Unmet) > 0 {
		return unmetMessage(*ev.Unmet)
	}
	if shown != nil {
		switch shown.Reason {
		case marks.ReasonWaitingForPrerequisites, marks.ReasonWaitingForRegistration, marks.ReasonWaitingForSlot,
			marks.ReasonRulesUnavailable, marks.ReasonReleaseRefused:
			return shown.Message
		}
	}
	if why, _ := takenBack(in, now); why != "" {
		return why
	}
	if budgetOf(in).first {
		return "no attempt has ended yet"
	}
	if r := in.Node.Record; recordsDeadline(r) {
		return attempt.Text(r.LastMessage)
	}
	return LastFailure(in.Node.Record)
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

// expired is the plan p of a node that no attempt runs on. Past the deadline, it does what onDeadline asks for, unless
// p has a step already. due is whether the next attempt was due and could not start.
func expired(in Input, ev Evidence, p Plan, due bool, now time.Time) Plan {
	r := in.Node.Record
	if p.Step != StepNone || p.Need != NeedNothing || !expires(in, now) {
		return p
	}
	if in.Config.Reconciliation.OnDeadline == config.OnDeadlineRelease {
		return releaseUnverified(in, ev, p, now)
	}
	at, _ := verificationDeadline(in, now)
	if next, ok := nextAttemptAt(in, now); ok && due && !budgetOf(in).first && next.After(at) {
		at = next
	} else if !due && r.LastTime != nil && r.LastTime.After(at) {
		at = *r.LastTime
	}
	return recordDeadline(in, ev, p, at, now)
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
func releaseUnverified(in Input, ev Evidence, p Plan, now time.Time) Plan {
	if !ev.Fresh {
		p.Need = NeedFresh // a stale cache may lack a worker that runs, or a result
		return p
	}
	began, _ := RoundStart(in, now)
	message := fmt.Sprintf("Not verified within %s, so the gating taints are removed without the verified label "+
		"(reconciliation.onDeadline: release): %s", time.Duration(in.Profile.VerificationDeadlineSeconds)*time.Second,
		attempt.Text(blockedBy(in, ev, p.Condition, now)))
	r := in.Node.Record
	r.NodeUID, r.Released = in.Node.UID, ptr.To(timestamp(now)) // a record that could not be read has no UID
	p.Step, p.Change = StepRecord, marks.Change{Record: r, Gate: marks.GateOpen}
	if in.Node.Labelled { // the taint came back
		p.Change.Label = ptr.To(false)
	}
	p.Events = []Event{{Reason: EventReleasedUnverified, Key: fmt.Sprintf("release@%d", began.UnixMicro()),
		Message: message}}
	return p
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
func recordDeadline(in Input, ev Evidence, p Plan, at, now time.Time) Plan {
	a := in.NextAttempt()
	result := attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonDeadline,
		Message: attempt.Text(blockedBy(in, ev, p.Condition, now))}
	if !needsControlProbe(in) {
		return p.recording(recordResult(in, budgetOf(in), a, result, now))
	}
	settled := settle(in, ev, p, failure{subject: subjectOf(in, a.Number), at: at, attempt: a, result: result}, now)
	if settled.Step != StepRecord {
		settled.Condition = p.Condition // no attempt failed; withDeadline says what keeps the node
	}
	return settled
}
