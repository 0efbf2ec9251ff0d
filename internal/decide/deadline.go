package decide

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// RoundStart is since when the node must be verified: a node that never passed since it was created, any other as its record
// says; ok is false where it does not, or cannot be believed.
func RoundStart(in Input, now time.Time) (at time.Time, ok bool) {
	r := in.Node.Record
	switch {
	case !r.MayHaveVerified():
		return in.Node.Created, !in.Node.Created.IsZero()
	case r.Since == nil || r.Since.After(now.Add(clockTolerance)):
		return time.Time{}, false
	case r.VerifiedTime != nil && !r.VerifiedTime.After(now) && r.Since.Before(*r.VerifiedTime):
		return time.Time{}, false // of a round that ended; a pass from the future is forged, and no measure
	}
	return *r.Since, true
}

// beginRound writes down when the next round of a node begins that passed before, and closes its gate first where the configuration
// wants that: it must not stay open for as long as a prerequisite is missing. It reports whether there is anything to write.
func (p *Plan) beginRound(in Input, s budget, current *workerpod.Observation, now time.Time) bool {
	r := in.Node.Record
	if !r.MayHaveVerified() {
		return false
	}
	_, began := RoundStart(in, now)
	dates := in.Profile.VerificationDeadlineSeconds > 0 && !began
	closes := current == nil && s.first && in.Config.NodeManagement.Reverify.Taint && !in.Node.Gated && !protected(in) && in.Node.Leaving == ""
	if !dates && !closes {
		return false
	}
	r.NodeUID = in.Node.UID // what was saved of a record that cannot be read has none
	if dates {
		r.Since = ptr.To(now.UTC().Truncate(time.Microsecond))
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	if closes {
		p.Change.Gate, p.Change.GateTaints, p.Change.Label = marks.GateClose, in.Profile.Taints, ptr.To(false)
	}
	return true
}

// maxAttemptDuration is the longest that one attempt may take.
func maxAttemptDuration(in Input) time.Duration {
	return time.Duration(in.Config.Worker.StartTimeoutSeconds+in.Profile.TimeoutSeconds)*time.Second + deadlineGrace
}

// verificationDeadline is when the round counts as failed; ok is false where it never does. A process that has just come to know of the
// node grants it a full attempt: the time before may have been the controller's own outage.
func verificationDeadline(in Input, now time.Time) (at time.Time, ok bool) {
	began, ok := RoundStart(in, now)
	if !ok || in.Profile.VerificationDeadlineSeconds <= 0 || in.NeedsVerificationSince.IsZero() {
		return time.Time{}, false
	}
	at = began.Add(time.Duration(in.Profile.VerificationDeadlineSeconds) * time.Second)
	if granted := in.NeedsVerificationSince.Add(maxAttemptDuration(in)); granted.After(at) {
		at = granted
	}
	return at, true
}

// deadlinePassed reports whether the node is past its deadline.
func deadlinePassed(in Input, now time.Time) bool {
	at, ok := verificationDeadline(in, now)
	return ok && !now.Before(at)
}

// ReportsDeadlineExceeded reports whether the node's condition says that it is past its deadline. That is for people, metrics and the fleet's
// health: what may delete goes by the deadline itself.
func ReportsDeadlineExceeded(in Input) bool {
	return in.Node.Condition != nil && in.Node.Condition.Reason == marks.ReasonDeadlineExceeded
}

// reportDeadline has a node that is past its deadline say so, whatever it waits for. What a leader said its successor goes on saying,
// although it grants the node another attempt: an alert must not begin anew with every leader.
func (p *Plan) reportDeadline(in Input, s budget, ev Evidence, now time.Time) {
	at, ok := verificationDeadline(in, now)
	began, _ := RoundStart(in, now)
	limit := time.Duration(in.Profile.VerificationDeadlineSeconds) * time.Second
	switch {
	case !ok:
		return
	case now.Before(at) && (!ReportsDeadlineExceeded(in) || now.Before(began.Add(limit))):
		p.requeueAfter(at.Sub(now))
		return
	case p.Step != StepNone:
		p.Condition = nil // what comes of the step says it
		return
	case p.Condition != nil && (p.Condition.Reason == marks.ReasonRetriesExhausted || p.Condition.Reason == marks.ReasonRemediationHeld):
		return
	}
	r, kept := in.Node.Record, attempt.Text(p.blockedBy(in, s, ev))
	if r.Held != "" {
		p.Condition = heldCondition(r, kept, "")
		p.Condition.Since = at
		return
	}
	then := "; it is released as soon as it passes"
	switch o := r.DeadlineCause; {
	case r.Deletion != nil:
		then = beingDeleted(*r.Deletion)
	case in.Config.NodeManagement.DeleteFailedNodes && o != nil && o.Fault != marks.FaultNode:
		then = "; not deleted: " + attempt.Text(o.Message)
	}
	p.Condition = &marks.Condition{Status: "False", Reason: marks.ReasonDeadlineExceeded, Since: at,
		Message: fmt.Sprintf("Not verified within %s (since %s): %s%s", limit, began.UTC().Format(time.RFC3339), kept, then)}
	if !ReportsDeadlineExceeded(in) {
		p.Events = append(p.Events, Event{Reason: EventFailed, Key: fmt.Sprintf("deadline@%d", began.UnixMicro()), Message: p.Condition.Message})
	}
}

// blockedBy says what keeps the node from passing, in words that stay the same from one attempt to the next.
func (p *Plan) blockedBy(in Input, s budget, ev Evidence) string {
	if ev.Unmet != nil && len(*ev.Unmet) > 0 {
		return unmetMessage(*ev.Unmet)
	}
	if c := p.Condition; c != nil {
		switch c.Reason {
		case marks.ReasonWaitingForPrerequisites, marks.ReasonWaitingForRegistration, marks.ReasonWaitingForSlot,
			marks.ReasonRulesUnavailable:
			return c.Message
		}
	}
	if s.first {
		return "no attempt has ended yet"
	}
	return LastFailure(in.Node.Record)
}

// mayBeNodeFault reports whether an attempt that proved nothing ended as a fault of its node alone can have it end: the kubelet
// refused the pod, or did not start it. That the images were there for it to start takes a fresh node to know.
func mayBeNodeFault(in Input, pod workerpod.Observation, r attempt.Result) bool {
	if unavailableReason(in) != "" || r.Outcome != attempt.Inconclusive || r.Check != "" || otherBoot(pod.Attempt.Basis.BootID, in.Node.BootID) {
		return false
	}
	return r.Reason == attempt.ReasonKubeletRejected || r.Reason == attempt.ReasonStartTimeout && len(pod.Images) > 0
}

// evaluatePastDeadline handles the end of an attempt, past the deadline, that may lie on the node: what is no fault of it is recorded as
// any attempt that proved nothing.
func (p *Plan) evaluatePastDeadline(in Input, s budget, pod workerpod.Observation, at time.Time, result attempt.Result, ev Evidence, now time.Time) {
	if result.Reason == attempt.ReasonStartTimeout && !ev.Fresh {
		p.need(NeedFresh)
		return
	}
	r := in.Node.Record
	switch {
	case result.Reason == attempt.ReasonStartTimeout && !workerpod.ImagesPresent(pod.Images, in.Node.Images):
		p.record(in, s, pod.Attempt, &result, now) // the registry's
	case causeKnown(in, now):
		p.record(in, s, pod.Attempt, &result, now)
		p.Change.Record.DeadlineCause, p.Change.Record.Held, p.Change.Record.HeldMessage = r.DeadlineCause, r.Held, r.HeldMessage
	default:
		after, _ := verificationDeadline(in, now)
		p.attribute(in, s, failure{subject: attemptSubject(in, pod), at: at, after: after, attempt: pod.Attempt, result: &result, blockedBy: result.Reason + ": " + result.Message}, ev, now)
	}
}

// comparePrerequisites seeks, for a node past its deadline that waits for prerequisites, whether they hold on a verified one.
func (p *Plan) comparePrerequisites(in Input, s budget, ev Evidence, now time.Time) {
	at, _ := verificationDeadline(in, now)
	if !in.Config.NodeManagement.DeleteFailedNodes || !deadlinePassed(in, now) || causeKnown(in, now) {
		return
	}
	if ev.Fleet == nil {
		p.need(NeedFleet)
		return
	}
	last := time.Time{} // a comparison has probes of its own, which are not those of one before, or of another leader's
	if o := in.Node.Record.DeadlineCause; o != nil {
		last = o.Time
	}
	f := failure{subject: fmt.Sprintf("%s/deadline/%d/%d", in.Node.UID, at.UnixMicro(), last.UnixMicro()), at: at, after: at, attempt: attempt.Attempt{Number: in.Node.Record.Sequence + 1}, blockedBy: unmetMessage(*ev.Unmet)}
	on, ok := controlNode(in, f.attempt.Number, *ev.Fleet, nil)
	shared := noControlNode
	switch {
	case !ok:
	case ev.ControlUnmet == nil:
		p.need(NeedControlPrerequisites)
		p.Probe.On = on
		return
	case len(*ev.ControlUnmet) > 0:
		shared = fmt.Sprintf("verified node %s lacks what it needs too (%s)", on.Name, unmetMessage(*ev.ControlUnmet))
	default:
		p.attribute(in, s, f, ev, now)
		return
	}
	if o := in.Node.Record.DeadlineCause; o == nil || o.Fault != marks.FaultShared || o.Message != attempt.Text(shared) { // it is written once
		p.recordSharedFault(in, s, f, now, shared)
	}
}

// causeKnown reports whether it was found out lately, in this boot, whose fault it is that the node is past its deadline.
func causeKnown(in Input, now time.Time) bool {
	o := in.Node.Record.DeadlineCause
	return o != nil && recent(&o.Time, now) && !otherBoot(o.BootID, in.Node.BootID)
}

// nodeAtFault reports whether a node past its deadline may be deleted for what was found out: it is still what keeps the node. Of a
// node that waits for prerequisites only they can say so.
func nodeAtFault(in Input, s budget, now time.Time) bool {
	r := in.Node.Record
	if !in.Config.NodeManagement.DeleteFailedNodes || !causeKnown(in, now) || r.DeadlineCause.Fault != marks.FaultNode || unavailableReason(in) != "" || !deadlinePassed(in, now) {
		return false
	}
	return awaitsPrerequisites(in, s) || r.LastOutcome == attempt.Inconclusive && (r.LastReason == attempt.ReasonKubeletRejected || r.LastReason == attempt.ReasonStartTimeout)
}

// recordCause writes down whose fault it is, with the attempt that showed it where there was one.
func (p *Plan) recordCause(in Input, s budget, f failure, fault, message string, now time.Time) {
	before := in.Node.Record
	if f.result != nil {
		p.record(in, s, f.attempt, f.result, now)
	} else {
		r := before
		r.NodeUID, r.Held, r.HeldMessage = in.Node.UID, "", ""
		p.Step, p.Change = StepRecord, marks.Change{Record: r}
	}
	r := &p.Change.Record
	r.DeadlineCause = &marks.DeadlineCause{Time: now.UTC().Truncate(time.Microsecond), BootID: in.Node.BootID, Fault: fault, Message: attempt.Text(message)}
	if fault == marks.FaultNode && before.Held != GuardControlProbe {
		r.Held, r.HeldMessage = before.Held, before.HeldMessage // the guard decides again, and only a change is an event
	}
}
