package decide

import (
	"fmt"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
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

// failure is a failed attempt whose cause is sought.
type failure struct {
	pod    workerpod.Observation
	at     time.Time // when the failure was seen
	result attempt.Result
}

func (f failure) subject(in Input) string {
	return fmt.Sprintf("%s/%d", in.Node.UID, f.pod.Attempt.Number)
}

// Group names the nodes for whose failures one probe serves.
func Group(in Input) string { return workerpod.Group(in.Node.Karpenter.Pool, in.Profile.Profile) }

// attribute decides whose failure a failed attempt is: the node's own, if the same checks pass at the same time on a
// verified node. If they fail there too, or there is nowhere to run them, it proves nothing about the node.
func (p *Plan) attribute(in Input, s spent, f failure, ev Evidence, now time.Time) {
	p.Condition = underWay(in, s, fmt.Sprintf("Attempt %d failed; the same checks are run on a verified node to tell whose fault it is", f.pod.Attempt.Number), now, now)
	if ev.Probes == nil {
		p.need(NeedProbes)
		return
	}
	var passed, awaited bool
	tried := map[string]bool{}
	for _, probe := range *ev.Probes {
		if !concurs(in, f, probe) {
			continue
		}
		tried[probe.Node] = true
		r := probe.Attempt.Result
		switch {
		case r == nil:
			awaited = awaited || now.Before(givenUp(in, probe))
		case r.Outcome == attempt.Failed:
			p.sharedOutage(in, s, f, now, fmt.Sprintf("the same checks fail on verified node %s too (%s)", probe.Node, orElse(r.Check, r.Reason)))
			return
		case r.Outcome == attempt.Passed:
			passed = true
		}
	}
	late := !now.Before(f.at.Add(attributedIn(in)))
	switch {
	case awaited && !late:
		p.wait(probeRetry) // its result is a watch event; this is for one that was missed, and for one that has no room
	case passed && in.Node.Record.Held == GuardControlProbe:
		// The attempt may still have seen the outage whose end the probe has seen.
		f.result.Outcome = attempt.Inconclusive
		p.record(in, s, f.pod.Attempt, &f.result, now)
	case passed:
		p.record(in, s, f.pod.Attempt, &f.result, now)
		p.Change.Record.Probed = true
	case ev.ProbeRefused != "":
		p.sharedOutage(in, s, f, now, "the same checks could not be run on a verified node: "+ev.ProbeRefused)
	case len(tried) >= maxProbes:
		p.sharedOutage(in, s, f, now, fmt.Sprintf("the same checks could not be run on any of %d verified nodes", len(tried)))
	case late:
		p.sharedOutage(in, s, f, now, "the same checks could not be run on a verified node in time")
	case ev.Fleet == nil:
		p.need(NeedFleet)
	default:
		p.probe(in, s, f, ev, tried, now)
	}
}

// attributedIn bounds how long the cause of a failure is sought, whatever becomes of the probes: the first has all its time.
func attributedIn(in Input) time.Duration {
	return time.Duration(in.Config.Worker.StartTimeoutSeconds+in.Profile.TimeoutSeconds)*time.Second + deadlineGrace
}

// probeRetry is how soon a node looks again for a probe whose result it missed.
const probeRetry = 5 * time.Second

func (p *Plan) probe(in Input, s spent, f failure, ev Evidence, tried map[string]bool, now time.Time) {
	on, ok := control(in, f.pod.Attempt.Number, *ev.Fleet, tried)
	if !ok {
		p.sharedOutage(in, s, f, now, "there is no other verified node of the same profile on which the same checks could be run for comparison")
		return
	}
	p.Probe = Probe{On: on, Subject: f.subject(in), Group: Group(in)}
	if !p.slot(ev, now) {
		return
	}
	p.Step = StepProbe
	p.wait(probeRetry)
}

// concurs reports whether a probe ran the same checks at the same time as the attempt that failed: its end was seen to come
// after the failure's. Where nobody saw it come, because the controller was another one then, only that counts which was made
// because of this failure.
func concurs(in Input, f failure, probe workerpod.Observation) bool {
	own := probe.Subject == f.subject(in)
	switch {
	case probe.Attempt.Basis.Checks != in.Checks:
		return false
	case probe.Attempt.Result == nil:
		return true
	case probe.Seen.Witnessed:
		return probe.Seen.Result.After(f.at) || own && probe.Seen.Result.Equal(f.at)
	}
	return own
}

// sharedOutage records a failure that is not held against the node.
func (p *Plan) sharedOutage(in Input, s spent, f failure, now time.Time, message string) {
	before := in.Node.Record
	f.result.Outcome = attempt.Inconclusive
	p.record(in, s, f.pod.Attempt, &f.result, now)
	r := &p.Change.Record
	r.Held, r.HeldMessage = GuardControlProbe, attempt.Text(message)
	p.Target.Kind = kindOf(in, Evidence{})
	if before.MayHaveVerified() {
		p.close(in) // a failed re-verification closes the gate
	}
	p.Events = nil
	if before.Held != GuardControlProbe {
		p.Events = []Event{{Reason: EventHeld, Key: GuardControlProbe + "/" + key(*r),
			Message: fmt.Sprintf("%s; not held against this node: %s", Fault(*r), r.HeldMessage)}}
	}
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
