package decide

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// maxProbes is how many control probes may be inconclusive (no space, no image) before the failed attempt is recorded
// as inconclusive.
const maxProbes = 3

// Probe describes a control probe: the same checks on a verified node.
type Probe struct {
	On workerpod.Target
	// Subject is the failed attempt, Group the nodes whose failures share the probe.
	Subject, Group string
}

// failure is a failed attempt. It counts against a node only after the same checks passed on a verified one.
type failure struct {
	// subject identifies the failure, also in the probe's name.
	subject string
	// at is when it was observed.
	at time.Time
	// unobserved: the attempt had already failed when this process first observed it, so the time of the failure is
	// unknown.
	unobserved bool
	// attempt and result are recorded.
	attempt attempt.Attempt
	result  *attempt.Result
}

// deadline reports whether the failure stands for a missed deadline, so that no attempt failed at a certain time.
func (f failure) deadline() bool {
	return f.result.Check == "" && f.result.Reason == attempt.ReasonDeadline
}

// subject identifies the failure of an attempt.
func (d *decision) subject(number int32) string { return fmt.Sprintf("%s/%d", d.in.Node.UID, number) }

// ProbeGroup names the nodes that are compared with each other: those of one pool and profile, so of the same checks.
// The probes of the group run on its nodes, and failures share them.
func ProbeGroup(in Input) string { return workerpod.Group(in.Node.Owner.Pool, in.Profile.Profile) }

// probeGroupElsewhere names the probes for nodes of the group that run in another pool, as one may before a deletion.
func probeGroupElsewhere(in Input) string {
	return workerpod.Group(in.Node.Owner.Pool, in.Profile.Profile, "elsewhere")
}

// ProbeGroups names the groups of the probes that count for a failure of the node. Only its own group shows whether a
// node that worked is at fault.
func ProbeGroups(in Input) []string {
	if gateAtStake(in) {
		return []string{ProbeGroup(in)}
	}
	return []string{ProbeGroup(in), probeGroupElsewhere(in)}
}

// attribute runs a control probe to decide whether the node is at fault. It is at fault if the same checks pass at the
// same time on a verified node. If they fail there too, or cannot run there, the failure proves nothing about the node.
func (d *decision) attribute(f failure) {
	d.Condition = d.inProgressCondition(fmt.Sprintf("Attempt %d failed. A control probe runs the same checks on a "+
		"verified node, to show whether this node is at fault", f.attempt.Number), d.now)
	if d.ev.Probes == nil {
		d.Need = NeedProbes
		return
	}
	if d.recordUnobserved(f) {
		return
	}
	var passed, awaited bool
	tried := map[string]bool{}
	for _, probe := range *d.ev.Probes {
		if !d.probeCounts(f, probe) {
			continue
		}
		tried[probe.Node] = true
		r := probe.Attempt.Result
		switch {
		case r == nil:
			awaited = awaited || d.now.Before(abandonedAt(d.in, probe))
		case r.Outcome == attempt.Failed:
			message := fmt.Sprintf("the same checks fail on verified node %s too (%s)", probe.Node, cmp.Or(r.Check, r.Reason))
			d.recordSharedFault(f, message)
			return
		case r.Outcome == attempt.Passed:
			passed = true
		}
	}
	late := !d.now.Before(f.at.Add(maxAttemptDuration(d.in))) // the first probe has all its time
	switch {
	case awaited && !late:
		d.requeueAfter(probeRetry) // in case the watch event of its result is missed, or it has no room
	case passed:
		d.recordNodeFault(f)
	case d.ev.ProbeRefused != "":
		d.recordSharedFault(f, "the same checks could not be run on a verified node: "+d.ev.ProbeRefused)
	case len(tried) >= maxProbes:
		d.recordSharedFault(f, fmt.Sprintf("the same checks could not be run on any of %d verified nodes", len(tried)))
	case late:
		d.recordSharedFault(f, "the same checks could not be run on a verified node in time")
	case d.ev.Fleet == nil:
		d.Need = NeedFleet
	default:
		d.startProbe(f, tried)
	}
}

// probeRetry is how soon a node checks again on a probe whose result it missed.
const probeRetry = 5 * time.Second

const (
	noControlNode        = "no other verified node of the same profile can run the same checks"
	noControlNodeInGroup = "no other verified node of the same pool and profile can run the same checks"
)

func (d *decision) startProbe(f failure, tried map[string]bool) {
	on, ok := d.controlNode(f.attempt.Number, tried)
	switch {
	case ok:
	case gateAtStake(d.in):
		d.recordSharedFault(f, noControlNodeInGroup)
		return
	default:
		d.recordSharedFault(f, noControlNode)
		return
	}
	group := ProbeGroup(d.in)
	if on.Pool != d.in.Node.Owner.Pool {
		group = probeGroupElsewhere(d.in)
	}
	d.Probe = Probe{On: on.target(), Subject: f.subject, Group: group}
	if !d.slotFree() {
		return
	}
	d.Step = StepProbe
	d.requeueAfter(probeRetry)
}

// controlNode chooses the verified node for a probe. It has the same profile, because the checks may not suit another
// one, and is in the same pool: for the gate of a node that worked always, for a deletion if possible. One of the
// node's architecture comes first, because an image may lack the other, then one in its zone. Each attempt gets a
// different control node, so that one faulty node cannot decide every comparison.
func (d *decision) controlNode(number int32, tried map[string]bool) (NodeSummary, bool) {
	var best *NodeSummary
	inGroup := gateAtStake(d.in)
	var bestRank uint64
	for i, m := range *d.ev.Fleet {
		if !m.CanHostProbe || m.Excluded || m.UID == d.in.Node.UID || m.Profile != d.in.Profile.Profile || tried[m.Name] {
			continue
		}
		if inGroup && m.Pool != d.in.Node.Owner.Pool {
			continue
		}
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d/%s/%s", number, d.in.Node.UID, m.UID) // a hash takes everything
		rank := h.Sum64() >> 3
		if m.Pool == d.in.Node.Owner.Pool {
			rank |= 1 << 63
		}
		if m.Arch == d.in.Node.Arch {
			rank |= 1 << 62
		}
		if m.Zone == d.in.Node.Zone {
			rank |= 1 << 61
		}
		if best == nil || rank > bestRank {
			best, bestRank = &(*d.ev.Fleet)[i], rank
		}
	}
	if best == nil {
		return NodeSummary{}, false
	}
	return *best, true
}

// probeCounts reports whether a probe ran the same checks at the same time as the failed attempt: this process observed
// its result after the failure. If an earlier leader did, only a probe that was created for this failure counts. One on
// the node itself, for another node, compares nothing.
func (d *decision) probeCounts(f failure, probe workerpod.Observation) bool {
	own := probe.Subject == f.subject
	switch {
	case probe.Attempt.Basis.Checks != d.in.Checks, probe.Node == d.in.Node.Name:
		return false
	case probe.Attempt.Result == nil:
		return true
	case own && f.deadline():
		return true // an earlier leader's deadline was earlier, and its probe may have ended before this leader's
	case probe.Seen.Witnessed:
		return probe.Seen.Result.After(f.at) || own && probe.Seen.Result.Equal(f.at)
	}
	return own
}

// recordNodeFault records a failure during which a control probe passed. The first such failure after a shared outage
// is recorded as inconclusive: the outage may have caused the failure and ended before the probe. For a node in service
// that is not needed, because its gate stays open until the next failure.
func (d *decision) recordNodeFault(f failure) {
	before := d.in.Node.Record
	shared := before.Held == GuardControlProbe || SharesFailure(d.in) && !inService(d.in)
	if shared || f.deadline() && d.spent.shared > 0 {
		f.result.Outcome = attempt.Inconclusive
		d.spent.shared = 0
		d.record(f.attempt, f.result)
		return
	}
	d.record(f.attempt, f.result)
	d.Change.Record.Probed = true
}

// recordSharedFault records a failure as inconclusive, because verified nodes share it or there is no way to compare.
func (d *decision) recordSharedFault(f failure, message string) {
	before := d.in.Node.Record
	d.spent.shared++
	if gateAtStake(d.in) {
		d.spent.attempts = 0 // a row of failures is broken
		r := f.result
		here := LastFailure(marks.Record{LastCheck: r.Check, LastReason: r.Reason, LastMessage: r.Message})
		result := *f.result
		result.Outcome, result.Check, result.Reason = attempt.Inconclusive, "", attempt.ReasonSharedFailure
		result.Message = attempt.Text(message + "; here: " + here)
		d.record(f.attempt, &result)
		if r := &d.Change.Record; r.Since != nil {
			r.Since = r.LastTime // the deadline does not run meanwhile
		}
		return
	}
	f.result.Outcome = attempt.Inconclusive
	d.record(f.attempt, f.result)
	r := &d.Change.Record
	r.Held, r.HeldMessage = GuardControlProbe, attempt.Text(message)
	d.Target.Kind = targetKind(d.in, d.ev)
	d.Events = nil
	if before.Held != GuardControlProbe {
		d.Events = []Event{{Reason: EventHeld, Key: GuardControlProbe + "/" + eventKey(*r),
			Message: fmt.Sprintf("%s; not counted against this node: %s", LastFailure(*r), r.HeldMessage)}}
	}
}

// recordUnobserved records a failure as inconclusive if no controller observed when it happened, and reports whether it
// did. A control probe that runs now proves nothing about that time, because an outage may have ended since. If there
// is already a probe for this failure, an earlier leader observed it.
func (d *decision) recordUnobserved(f failure) bool {
	before := d.in.Node.Record
	own := func(o workerpod.Observation) bool { return o.Subject == f.subject }
	if !f.unobserved || slices.ContainsFunc(*d.ev.Probes, own) {
		return false
	}
	result := *f.result
	why := LastFailure(marks.Record{LastCheck: result.Check, LastReason: result.Reason, LastMessage: result.Message})
	result.Outcome, result.Check, result.Reason = attempt.Inconclusive, "", attempt.ReasonFailureUnseen
	result.Message = attempt.Text(fmt.Sprintf(
		"the worker failed before this controller observed it, so no control probe ran at the same time (%s)", why))
	d.record(f.attempt, &result)
	if before.Held == GuardControlProbe {
		r := &d.Change.Record
		r.Held, r.HeldMessage = before.Held, before.HeldMessage // the shared outage may not have ended
	}
	return true
}
