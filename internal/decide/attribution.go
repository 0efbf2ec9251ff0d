package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// maxProbes is how many control probes may prove nothing (no room, no image) before the failed attempt is recorded without.
const maxProbes = 3

// Probe asks for a probe pod.
type Probe struct {
	On workerpod.Target
	// Subject is the failed attempt, Group the nodes whose failures the probe explains.
	Subject, Group string
}

// failure is what is held against a node only once the same checks passed on a verified one: a failed attempt, or that the node
// is past its deadline.
type failure struct {
	// subject identifies it, in a probe's name too.
	subject string
	// at is when it was seen; after, past the deadline, when that was: a probe must have been made after it.
	at, after time.Time
	// unobserved: it was there when this process first saw the attempt, so at says nothing of when it came.
	unobserved bool
	// attempt and result are to be recorded; a node that waits for prerequisites has no result.
	attempt attempt.Attempt
	result  *attempt.Result
	// blockedBy says what keeps a node past its deadline; empty for a failed attempt.
	blockedBy string
}

func attemptSubject(in Input, pod workerpod.Observation) string {
	return fmt.Sprintf("%s/%d", in.Node.UID, pod.Attempt.Number)
}

// ProbeGroup names the nodes for whose failures one probe serves.
func ProbeGroup(in Input) string { return workerpod.Group(in.Node.Owner.Pool, in.Profile.Profile) }

// attribute decides whose failure a failed attempt is: the node's own, if the same checks pass at the same time on a
// verified node. If they fail there too, or there is nowhere to run them, it proves nothing about the node.
func (p *Plan) attribute(in Input, s budget, f failure, ev Evidence, now time.Time) {
	if f.blockedBy == "" {
		p.Condition = inProgressCondition(in, s, fmt.Sprintf("Attempt %d failed; the same checks are run on a verified node to tell whose fault it is", f.attempt.Number), now, now)
	}
	if ev.Probes == nil {
		p.need(NeedProbes)
		return
	}
	if p.recordUnobserved(in, s, f, *ev.Probes, now) {
		return
	}
	var passed, awaited bool
	tried := map[string]bool{}
	for _, probe := range *ev.Probes {
		if !probeCounts(in, f, probe) {
			continue
		}
		tried[probe.Node] = true
		r := probe.Attempt.Result
		switch {
		case r == nil:
			awaited = awaited || now.Before(abandonedAt(in, probe))
		case r.Outcome == attempt.Failed:
			p.recordSharedFault(in, s, f, now, fmt.Sprintf("the same checks fail on verified node %s too (%s)", probe.Node, orElse(r.Check, r.Reason)))
			return
		case r.Outcome == attempt.Passed:
			passed = true
		}
	}
	late := f.result != nil && !now.Before(f.at.Add(maxAttemptDuration(in))) // the first probe has all its time
	switch {
	case awaited && !late:
		p.requeueAfter(probeRetry) // its result is a watch event; this is for one that was missed, and for one that has no room
	case passed:
		p.recordNodeFault(in, s, f, now)
	case ev.ProbeRefused != "":
		p.recordSharedFault(in, s, f, now, "the same checks could not be run on a verified node: "+ev.ProbeRefused)
	case len(tried) >= maxProbes:
		p.recordSharedFault(in, s, f, now, fmt.Sprintf("the same checks could not be run on any of %d verified nodes", len(tried)))
	case late:
		p.recordSharedFault(in, s, f, now, "the same checks could not be run on a verified node in time")
	case ev.Fleet == nil:
		p.need(NeedFleet)
	default:
		p.startProbe(in, s, f, ev, tried, now)
	}
}

// probeRetry is how soon a node looks again for a probe whose result it missed.
const probeRetry = 5 * time.Second

const noControlNode = "there is no other verified node of the same profile on which the same checks could be run for comparison"

func (p *Plan) startProbe(in Input, s budget, f failure, ev Evidence, tried map[string]bool, now time.Time) {
	on, ok := controlNode(in, f.attempt.Number, *ev.Fleet, tried)
	if !ok {
		p.recordSharedFault(in, s, f, now, noControlNode)
		return
	}
	p.Probe = Probe{On: on, Subject: f.subject, Group: ProbeGroup(in)}
	if !p.slotFree(ev, now) {
		return
	}
	p.Step = StepProbe
	p.requeueAfter(probeRetry)
}

// probeCounts reports whether a probe ran the same checks at the same time as the attempt that failed: its end was seen to come
// after the failure's. Where nobody saw it come, because the controller was another one then, only that counts which was made
// because of this failure.
func probeCounts(in Input, f failure, probe workerpod.Observation) bool {
	own := probe.Subject == f.subject
	switch {
	case probe.Attempt.Basis.Checks != in.Checks:
		return false
	case probe.Seen.First.Before(f.after):
		return false
	case probe.Attempt.Result == nil:
		return true
	case probe.Seen.Witnessed:
		return probe.Seen.Result.After(f.at) || own && probe.Seen.Result.Equal(f.at)
	}
	return own
}

// recordNodeFault records a failure beside which a probe passed.
func (p *Plan) recordNodeFault(in Input, s budget, f failure, now time.Time) {
	before := in.Node.Record
	after := before.Held == GuardControlProbe // the failure may be of the outage whose end the probe has seen
	switch {
	case f.blockedBy != "" && (after || before.DeadlineCause != nil && before.DeadlineCause.Fault == marks.FaultShared):
		p.recordCause(in, s, f, marks.FaultUnclear, "verified nodes have just ceased to share what kept it", now)
	case f.blockedBy != "":
		p.recordCause(in, s, f, marks.FaultNode, f.blockedBy, now)
	case after:
		f.result.Outcome = attempt.Inconclusive
		s.shared = 0
		p.record(in, s, f.attempt, f.result, now)
	default:
		p.record(in, s, f.attempt, f.result, now)
		p.Change.Record.Probed = true
	}
}

// recordSharedFault records a failure that proves nothing about the node: others share it, or that cannot be found out.
func (p *Plan) recordSharedFault(in Input, s budget, f failure, now time.Time, message string) {
	before := in.Node.Record
	if f.blockedBy != "" {
		p.recordCause(in, s, f, marks.FaultShared, message, now)
		return
	}
	f.result.Outcome = attempt.Inconclusive
	s.shared++
	p.record(in, s, f.attempt, f.result, now)
	r := &p.Change.Record
	r.Held, r.HeldMessage = GuardControlProbe, attempt.Text(message)
	p.Target.Kind = targetKind(in, Evidence{})
	if before.MayHaveVerified() {
		p.closeGate(in) // a failed re-verification closes the gate
	}
	p.Events = nil
	if before.Held != GuardControlProbe {
		p.Events = []Event{{Reason: EventHeld, Key: GuardControlProbe + "/" + eventKey(*r),
			Message: fmt.Sprintf("%s; not held against this node: %s", LastFailure(*r), r.HeldMessage)}}
	}
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// recordUnobserved records as inconclusive a failure that no controller saw come, and reports whether it did. A control probe
// that runs now says nothing of the time at which the worker failed: an outage that ended since explains the failure,
// and would pass the probe. It does so once until the next failure is counted, or a controller that is restarted during
// every attempt would never exhaust a node. A probe that was made for this failure shows that an earlier leader saw it
// come.
func (p *Plan) recordUnobserved(in Input, s budget, f failure, probes []workerpod.Observation, now time.Time) bool {
	before := in.Node.Record
	own := func(o workerpod.Observation) bool { return o.Subject == f.subject }
	if !f.unobserved || before.Unseen && !s.first || slices.ContainsFunc(probes, own) {
		return false
	}
	result := *f.result
	why := LastFailure(marks.Record{LastCheck: result.Check, LastReason: result.Reason, LastMessage: result.Message})
	result.Outcome, result.Check, result.Reason = attempt.Inconclusive, "", attempt.ReasonFailureUnseen
	result.Message = attempt.Text(fmt.Sprintf(
		"the worker failed before this controller first saw it, so no control probe ran at the same time (%s)", why))
	p.record(in, s, f.attempt, &result, now)
	r := &p.Change.Record
	r.Unseen = true
	if before.Held == GuardControlProbe {
		r.Held, r.HeldMessage = before.Held, before.HeldMessage // the shared outage may not have ended
	}
	if before.MayHaveVerified() {
		p.closeGate(in) // a failed re-verification closes the gate
	}
	return true
}
