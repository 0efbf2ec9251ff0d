package decide

import (
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// probeKeptFor is how long a finished probe stays, so that nodes which fail together share it.
const probeKeptFor = 30 * time.Second

// Member is what decisions need to know of a node among the others.
type Member struct {
	Name, UID, BootID, Pool string
	// Unhealthy: it failed and has not passed since.
	Unhealthy bool
	// Control: it is verified and well, a probe may run on it.
	Control bool
}

// MemberOf tells a node's part among the others.
func MemberOf(f node.Facts) Member {
	r := f.Record
	return Member{Name: f.Name, UID: f.UID, BootID: f.BootID, Pool: f.Pool,
		Unhealthy: r.Attempts > 0 && r.LastOutcome != node.OutcomePassed,
		Control:   f.Labelled && !f.Gated && f.Ready && !f.Deleting && !f.Skip && r.LastOutcome == node.OutcomePassed,
	}
}

// Probe asks for a probe pod.
type Probe struct {
	On      workerpod.Target
	Subject string
}

// Attribute decides whose failure a failed attempt is: the node's own, if the same checks pass on a
// verified node at the same time, and then it is recorded as failed. If they fail there too, or there is nowhere
// to run them, it says nothing about the node. A non-nil Probe is to be created; a plan without a step waits for one.
func Attribute(in Input, failed workerpod.Observation, probes []workerpod.Observation, fleet []Member, now time.Time) (Plan, *Probe) {
	plan, s := Plan{Step: StepNone}, run(in)
	tried := map[string]bool{}
	var passed bool
	for _, p := range probes {
		if p.Created.Before(failed.Created) {
			continue // it may have passed before the trouble began
		}
		tried[p.Node] = true
		switch {
		case p.State != workerpod.Finished:
			plan.wait(time.Second) // its end is an event; this is for one that was missed
			return plan, nil
		case p.Outcome == node.OutcomeFailed:
			plan.share(in, s, failed, now, fmt.Sprintf("the same checks fail on verified node %s too (%s)", p.Node, why(p)))
			return plan, nil
		case p.Outcome == node.OutcomePassed:
			passed = true
		}
	}
	if passed && in.Node.Record.Held == GuardControlProbe {
		// The attempt may still have seen the outage whose end the probe has seen.
		failed.Outcome = node.OutcomeInconclusive
		plan.record(in, s, &failed, now)
		return plan, nil
	}
	if passed {
		plan.record(in, s, &failed, now)
		plan.Change.Record.Probed = true
		return plan, nil
	}
	if on, ok := control(in, failed, fleet, tried); ok {
		return plan, &Probe{On: on, Subject: fmt.Sprintf("%s/%d", in.Node.UID, failed.Attempt)}
	}
	plan.share(in, s, failed, now, "there is no verified node on which the same checks could be run for comparison")
	return plan, nil
}

func why(p workerpod.Observation) string {
	if p.Check != "" {
		return p.Check + ": " + p.Reason
	}
	return p.Reason
}

// share records a failure that is not held against the node.
func (p *Plan) share(in Input, s spent, failed workerpod.Observation, now time.Time, message string) {
	heldBefore := in.Node.Record.Held == GuardControlProbe
	failed.Outcome = node.OutcomeInconclusive
	p.record(in, s, &failed, now)
	p.Change.Record.Held, p.Change.Record.HeldMessage = GuardControlProbe, message
	if in.Node.Record.Verified() {
		p.Change.Gate, p.Change.Label = node.GateClose, ptr.To(false) // a failed re-verification closes the gate
	}
	p.Events = nil
	if !heldBefore {
		p.Events = []Event{{Type: corev1.EventTypeWarning, Reason: EventHeld, Sequence: failed.Attempt,
			Message: fmt.Sprintf("%s; not held against this node: %s", Fault(p.Change.Record), message)}}
	}
}

// control chooses the verified node for a probe: of the same pool if there is one, and another one for each
// attempt, so that one odd control node does not speak for the cluster for ever.
func control(in Input, failed workerpod.Observation, fleet []Member, tried map[string]bool) (workerpod.Target, bool) {
	var best *Member
	var bestRank uint64
	for i, m := range fleet {
		if !m.Control || m.UID == in.Node.UID || tried[m.Name] {
			continue
		}
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d/%s/%s", failed.Attempt, in.Node.UID, m.UID) // a hash takes everything
		rank := h.Sum64() >> 1
		if m.Pool == in.Node.Pool {
			rank |= 1 << 63
		}
		if best == nil || rank > bestRank {
			best, bestRank = &fleet[i], rank
		}
	}
	if best == nil {
		return workerpod.Target{}, false
	}
	return workerpod.Target{Name: best.Name, UID: best.UID, BootID: best.BootID}, true
}
