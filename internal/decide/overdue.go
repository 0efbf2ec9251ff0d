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

// begin writes down when the next round of a node begins that passed before, and closes its gate first where the configuration
// wants that: it must not stay open for as long as a prerequisite is missing. It reports whether there is anything to write.
func (p *Plan) begin(in Input, s spent, current *workerpod.Observation, now time.Time) bool {
	r := in.Node.Record
	if !r.MayHaveVerified() {
		return false
	}
	_, began := RoundStart(in, now)
	dates := in.Profile.VerificationDeadlineSeconds > 0 && !began
	closes := current == nil && s.first && in.Config.NodeManagement.Reverify.Taint && !in.Node.Gated && !spared(in) && in.Node.Leaving == ""
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

// attemptTakes is the longest that one attempt may take.
func attemptTakes(in Input) time.Duration {
	return time.Duration(in.Config.Worker.StartTimeoutSeconds+in.Profile.TimeoutSeconds)*time.Second + deadlineGrace
}

// deadlineOf is when the round counts as failed; ok is false where it never does. A process that has just come to know of the
// node grants it a full attempt: the time before may have been the controller's own outage.
func deadlineOf(in Input, now time.Time) (at time.Time, ok bool) {
	began, ok := RoundStart(in, now)
	if !ok || in.Profile.VerificationDeadlineSeconds <= 0 || in.NeedsVerificationSince.IsZero() {
		return time.Time{}, false
	}
	at = began.Add(time.Duration(in.Profile.VerificationDeadlineSeconds) * time.Second)
	if granted := in.NeedsVerificationSince.Add(attemptTakes(in)); granted.After(at) {
		at = granted
	}
	return at, true
}

// expired reports whether the node is past its deadline.
func expired(in Input, now time.Time) bool {
	at, ok := deadlineOf(in, now)
	return ok && !now.Before(at)
}

// ReportsDeadlineExceeded reports whether the node's condition says that it is past its deadline. That is for people, metrics and the fleet's
// health: what may delete goes by the deadline itself.
func ReportsDeadlineExceeded(in Input) bool {
	return in.Node.Condition != nil && in.Node.Condition.Reason == marks.ReasonDeadlineExceeded
}

// expire has a node that is past its deadline say so, whatever it waits for. What a leader said its successor goes on saying,
// although it grants the node another attempt: an alert must not begin anew with every leader.
func (p *Plan) expire(in Input, s spent, ev Evidence, now time.Time) {
	at, ok := deadlineOf(in, now)
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
	r, kept := in.Node.Record, attempt.Text(p.kept(in, s, ev))
	if r.Held != "" {
		p.Condition = held(r, kept, "")
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

// kept says what keeps the node from passing, in words that stay the same from one attempt to the next.
func (p *Plan) kept(in Input, s spent, ev Evidence) string {
	if ev.Unmet != nil && len(*ev.Unmet) > 0 {
		return waitsFor(*ev.Unmet)
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

// mayLieOnNode reports whether an attempt that proved nothing ended as a fault of its node alone can have it end: the kubelet
// refused the pod, or did not start it. That the images were there for it to start takes a fresh node to know.
func mayLieOnNode(in Input, pod workerpod.Observation, r attempt.Result) bool {
	if absent(in) != "" || r.Outcome != attempt.Inconclusive || r.Check != "" || otherBoot(pod.Attempt.Basis.BootID, in.Node.BootID) {
		return false
	}
	return r.Reason == attempt.ReasonKubeletRejected || r.Reason == attempt.ReasonStartTimeout && len(pod.Images) > 0
}

// evaluateOverdue handles the end of an attempt, past the deadline, that may lie on the node: what is no fault of it is recorded as
// any attempt that proved nothing.
func (p *Plan) evaluateOverdue(in Input, s spent, pod workerpod.Observation, at time.Time, result attempt.Result, ev Evidence, now time.Time) {
	if result.Reason == attempt.ReasonStartTimeout && !ev.Fresh {
		p.need(NeedFresh)
		return
	}
	r := in.Node.Record
	switch {
	case result.Reason == attempt.ReasonStartTimeout && !workerpod.ImagesPresent(pod.Images, in.Node.Images):
		p.record(in, s, pod.Attempt, &result, now) // the registry's
	case found(in, now):
		p.record(in, s, pod.Attempt, &result, now)
		p.Change.Record.DeadlineCause, p.Change.Record.Held, p.Change.Record.HeldMessage = r.DeadlineCause, r.Held, r.HeldMessage
	default:
		after, _ := deadlineOf(in, now)
		p.attribute(in, s, failure{subject: attemptSubject(in, pod), at: at, after: after, attempt: pod.Attempt, result: &result, overdue: result.Reason + ": " + result.Message}, ev, now)
	}
}

// compare seeks, for a node past its deadline that waits for prerequisites, whether they hold on a verified one.
func (p *Plan) compare(in Input, s spent, ev Evidence, now time.Time) {
	at, _ := deadlineOf(in, now)
	if !in.Config.NodeManagement.DeleteFailedNodes || !expired(in, now) || found(in, now) {
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
	f := failure{subject: fmt.Sprintf("%s/deadline/%d/%d", in.Node.UID, at.UnixMicro(), last.UnixMicro()), at: at, after: at, attempt: attempt.Attempt{Number: in.Node.Record.Sequence + 1}, overdue: waitsFor(*ev.Unmet)}
	on, ok := control(in, f.attempt.Number, *ev.Fleet, nil)
	shared := noControl
	switch {
	case !ok:
	case ev.ControlUnmet == nil:
		p.need(NeedControlPrerequisites)
		p.Probe.On = on
		return
	case len(*ev.ControlUnmet) > 0:
		shared = fmt.Sprintf("verified node %s lacks what it needs too (%s)", on.Name, waitsFor(*ev.ControlUnmet))
	default:
		p.attribute(in, s, f, ev, now)
		return
	}
	if o := in.Node.Record.DeadlineCause; o == nil || o.Fault != marks.FaultShared || o.Message != attempt.Text(shared) { // it is written once
		p.notHeldAgainst(in, s, f, now, shared)
	}
}

// found reports whether it was found out lately, in this boot, whose fault it is that the node is past its deadline.
func found(in Input, now time.Time) bool {
	o := in.Node.Record.DeadlineCause
	return o != nil && fresh(&o.Time, now) && !otherBoot(o.BootID, in.Node.BootID)
}

// atFault reports whether a node past its deadline may be deleted for what was found out: it is still what keeps the node. Of a
// node that waits for prerequisites only they can say so.
func atFault(in Input, s spent, now time.Time) bool {
	r := in.Node.Record
	if !in.Config.NodeManagement.DeleteFailedNodes || !found(in, now) || r.DeadlineCause.Fault != marks.FaultNode || absent(in) != "" || !expired(in, now) {
		return false
	}
	return awaitsPrerequisites(in, s) || r.LastOutcome == attempt.Inconclusive && (r.LastReason == attempt.ReasonKubeletRejected || r.LastReason == attempt.ReasonStartTimeout)
}

// find writes down whose fault it is, with the attempt that showed it where there was one.
func (p *Plan) find(in Input, s spent, f failure, fault, message string, now time.Time) {
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
