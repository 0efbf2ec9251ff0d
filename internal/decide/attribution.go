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
	result  attempt.Result
}

// deadline reports whether the failure stands for a missed deadline, so that no attempt failed at a certain time.
func (f failure) deadline() bool {
	return f.result.Check == "" && f.result.Reason == attempt.ReasonDeadline
}

// what says in one line what failed.
func (f failure) what() string {
	r := f.result
	return LastFailure(marks.Record{LastCheck: r.Check, LastReason: r.Reason, LastMessage: r.Message})
}

// inconclusive is the failure's result where it proves nothing about the node. The reason replaces what failed.
func (f failure) inconclusive(reason, message string) attempt.Result {
	r := f.result
	r.Outcome, r.Check, r.Reason, r.Message = attempt.Inconclusive, "", reason, attempt.Text(message)
	return r
}

// subjectOf identifies the failure of an attempt.
func subjectOf(in Input, number int32) string { return fmt.Sprintf("%s/%d", in.Node.UID, number) }

// ProbeGroup names the nodes that are compared with each other: those of one pool and profile, so of the same checks.
// The probes of the group run on its nodes, and failures share them.
func ProbeGroup(in Input) string { return workerpod.Group(in.Node.Owner.Pool, in.Profile.Profile) }

// probeGroupElsewhere names the probes for nodes of the group that run in another pool, as one may before an action.
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

// cause is what a failure is attributed to.
type cause string

const (
	causeNode   cause = "node"   // the same checks passed on a verified node at the same time
	causeShared cause = "shared" // they failed there too, or could not be run there
	causeUnseen cause = "unseen" // no controller observed when the failure happened
)

// finding is what attributionOf found. One of need, probe and cause is set, or none while the result of a probe is
// awaited.
type finding struct {
	// cause is what the failure is attributed to, and why says why if that is not the node.
	cause cause
	why   string
	// probe is the control probe to create.
	probe *Probe
	need  Need
}

// attributionOf finds out by a control probe whether the node is at fault. It is at fault if the same checks pass at
// the same time on a verified node. If they fail there too, or cannot run there, the failure proves nothing about the
// node. Nor does a failure whose time nobody knows: an outage may have ended since. If there is already a probe for it,
// an earlier leader observed the failure.
func attributionOf(in Input, ev Evidence, f failure, now time.Time) finding {
	if ev.Probes == nil {
		return finding{need: NeedProbes}
	}
	own := func(o workerpod.Observation) bool { return o.Subject == f.subject }
	if f.unobserved && !slices.ContainsFunc(*ev.Probes, own) {
		return finding{cause: causeUnseen, why: fmt.Sprintf("the worker failed before this controller observed it, so no "+
			"control probe ran at the same time (%s)", f.what())}
	}
	compared := compare(in, f, *ev.Probes, now)
	late := !now.Before(f.at.Add(maxAttemptDuration(in))) // the first probe has all its time
	shared := finding{cause: causeShared}
	switch {
	case compared.failed != "":
		shared.why = compared.failed
	case compared.awaited && !late:
		return finding{}
	case compared.passed:
		return finding{cause: causeNode}
	case ev.ProbeRefused != "":
		shared.why = "the same checks could not be run on a verified node: " + ev.ProbeRefused
	case len(compared.tried) >= maxProbes:
		shared.why = fmt.Sprintf("the same checks could not be run on any of %d verified nodes", len(compared.tried))
	case late:
		shared.why = "the same checks could not be run on a verified node in time"
	case ev.Fleet == nil:
		return finding{need: NeedFleet}
	default:
		return probeFor(in, *ev.Fleet, f, compared.tried)
	}
	return shared
}

// comparison is what the control probes of a failure show.
type comparison struct {
	// failed says which probe failed first; empty if none did.
	failed string
	// passed: one passed. awaited: one has no result yet.
	passed, awaited bool
	// tried are the names of the nodes that they ran on.
	tried map[string]bool
}

func compare(in Input, f failure, probes []workerpod.Observation, now time.Time) comparison {
	c := comparison{tried: map[string]bool{}}
	for _, probe := range probes {
		if !probeCounts(in, f, probe) {
			continue
		}
		c.tried[probe.Node] = true
		switch r := probe.Attempt.Result; {
		case r == nil:
			c.awaited = c.awaited || now.Before(abandonedAt(in, probe))
		case r.Outcome == attempt.Failed:
			c.failed = cmp.Or(c.failed, fmt.Sprintf("the same checks fail on verified node %s too (%s)",
				probe.Node, cmp.Or(r.Check, r.Reason)))
		case r.Outcome == attempt.Passed:
			c.passed = true
		}
	}
	return c
}

// probeFor is the next control probe for the failure. Without a node to run it on, the failure counts as shared.
func probeFor(in Input, fleet []NodeSummary, f failure, tried map[string]bool) finding {
	on, ok := controlNode(in, fleet, f.attempt.Number, tried)
	if !ok {
		same := "profile"
		if gateAtStake(in) {
			same = "pool and profile"
		}
		return finding{cause: causeShared, why: "no other verified node of the same " + same + " can run the same checks"}
	}
	group := ProbeGroup(in)
	if on.Pool != in.Node.Owner.Pool {
		group = probeGroupElsewhere(in)
	}
	return finding{probe: &Probe{On: on.target(), Subject: f.subject, Group: group}}
}

// probeRetry is how soon a node checks again on a probe whose result it missed.
const probeRetry = 5 * time.Second

// settle is the plan p of a node, with what follows from the attribution of a failure: evidence to load, a control
// probe, or the record.
func settle(in Input, ev Evidence, p Plan, f failure, now time.Time) Plan {
	p.Condition = inProgressCondition(in, fmt.Sprintf("Attempt %d failed. A control probe runs the same checks on a "+
		"verified node, to show whether this node is at fault", f.attempt.Number), now, now)
	found := attributionOf(in, ev, f, now)
	switch {
	case found.need != NeedNothing:
		p.Need = found.need
	case found.probe != nil:
		p.Probe = *found.probe
		free := false
		if p, free = takesSlot(in, ev, p, now); free {
			p.Step = StepProbe
			p.requeueAfter(probeRetry)
		}
	case found.cause == causeNode:
		return p.recording(nodeFault(in, f, now))
	case found.cause == causeShared:
		return p.recording(sharedFault(in, ev, f, found.why, now))
	case found.cause == causeUnseen:
		return p.recording(unseenFault(in, f, found.why, now))
	default:
		p.requeueAfter(probeRetry) // in case the watch event of its result is missed, or it has no slot
	}
	return p
}

// controlNode chooses the verified node for a probe. It has the same profile, because the checks may not suit another
// one, and is in the same pool: for the gate of a node that worked always, for an action if possible. One of the
// node's architecture comes first, because an image may lack the other, then one in its zone. Each attempt gets a
// different control node, so that one faulty node cannot decide every comparison.
func controlNode(in Input, fleet []NodeSummary, number int32, tried map[string]bool) (NodeSummary, bool) {
	var best *NodeSummary
	inGroup := gateAtStake(in)
	var bestRank uint64
	for i, m := range fleet {
		if !m.CanHostProbe || m.Excluded || m.UID == in.Node.UID || m.Profile != in.Profile.Profile || tried[m.Name] {
			continue
		}
		if inGroup && m.Pool != in.Node.Owner.Pool {
			continue
		}
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d/%s/%s", number, in.Node.UID, m.UID) // a hash takes everything
		rank := h.Sum64() >> 3
		if m.Pool == in.Node.Owner.Pool {
			rank |= 1 << 63
		}
		if m.Arch == in.Node.Arch {
			rank |= 1 << 62
		}
		if m.Zone == in.Node.Zone {
			rank |= 1 << 61
		}
		if best == nil || rank > bestRank {
			best, bestRank = &fleet[i], rank
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
func probeCounts(in Input, f failure, probe workerpod.Observation) bool {
	own := probe.Subject == f.subject
	switch {
	case probe.Attempt.Basis.Checks != in.Checks, probe.Node == in.Node.Name:
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

// nodeFault records a failure during which a control probe passed. The first such failure after a shared outage is
// recorded as inconclusive: the outage may have caused the failure and ended before the probe. For a node in service
// that is not needed, because its gate stays open until the next failure.
func nodeFault(in Input, f failure, now time.Time) Plan {
	spent := budgetOf(in)
	shared := in.Node.Record.Held == GuardControlProbe || SharesFailure(in) && !inService(in)
	if shared || f.deadline() && spent.shared > 0 {
		f.result.Outcome, spent.shared = attempt.Inconclusive, 0
		return recordResult(in, spent, f.attempt, f.result, now)
	}
	p := recordResult(in, spent, f.attempt, f.result, now)
	p.Change.Record.Probed = true
	return p
}

// sharedFault records a failure as inconclusive, because verified nodes share it or there is no way to compare.
func sharedFault(in Input, ev Evidence, f failure, message string, now time.Time) Plan {
	spent := budgetOf(in)
	spent.shared++
	if gateAtStake(in) {
		spent.attempts = 0 // a row of failures is broken
		p := recordResult(in, spent, f.attempt, f.inconclusive(attempt.ReasonSharedFailure, message+"; here: "+f.what()), now)
		if r := &p.Change.Record; r.Since != nil {
			r.Since = r.LastTime // the deadline does not run meanwhile
		}
		return p
	}
	f.result.Outcome = attempt.Inconclusive
	p := recordResult(in, spent, f.attempt, f.result, now)
	r := &p.Change.Record
	r.Held, r.HeldMessage = GuardControlProbe, attempt.Text(message)
	p.Target.Kind = targetKind(in, ev)
	p.Events = nil
	if in.Node.Record.Held != GuardControlProbe {
		p.Events = []Event{{Reason: EventHeld, Key: GuardControlProbe + "/" + eventKey(*r),
			Message: fmt.Sprintf("%s; not counted against this node: %s", LastFailure(*r), r.HeldMessage)}}
	}
	return p
}

// unseenFault records a failure as inconclusive because no controller observed when it happened.
func unseenFault(in Input, f failure, message string, now time.Time) Plan {
	before := in.Node.Record
	p := recordResult(in, budgetOf(in), f.attempt, f.inconclusive(attempt.ReasonFailureUnseen, message), now)
	if r := &p.Change.Record; before.Held == GuardControlProbe {
		r.Held, r.HeldMessage = before.Held, before.HeldMessage // the shared outage may not have ended
	}
	return p
}
