package decide

import (
	"cmp"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Phase is a part of the time from a new node's registration to its release.
type Phase string

// The phases. They do not overlap.
const (
	PhasePrerequisites Phase = "prerequisites" // they do not hold, or minimumHoldSeconds is not over
	PhaseSlot          Phase = "slot"          // reconciliation.maxConcurrentVerifications workers run
	PhaseStart         Phase = "start"         // its worker may start, and does not run yet
	PhaseInit          Phase = "init"          // the init containers of its worker's pod run
	PhaseChecks        Phase = "checks"        // from a worker's start until one passed, with all failed attempts
	PhaseRegistration  Phase = "registration"  // it passed, and Karpenter has not registered it
	PhaseRelease       Phase = "release"       // it passed, and the taint is being removed
)

// Phases lists the phases in their order.
func Phases() []Phase {
	return []Phase{PhasePrerequisites, PhaseSlot, PhaseStart, PhaseInit, PhaseChecks, PhaseRegistration, PhaseRelease}
}

// Timeline measures the phases of one node, on the clock of its caller.
type Timeline struct {
	phase     Phase
	since     time.Time
	durations map[Phase]time.Duration
}

// NewTimeline starts the timeline of a node that is observed for the first time.
func NewTimeline(now time.Time) *Timeline {
	return &Timeline{phase: PhaseStart, since: now, durations: map[Phase]time.Duration{}}
}

// enter ends the present phase at the given time, unless a later phase has already begun.
func (t *Timeline) enter(p Phase, at time.Time) {
	if p == t.phase || !at.After(t.since) {
		return
	}
	t.durations[t.phase] += at.Sub(t.since)
	t.phase, t.since = p, at
}

// Observe notes the phase that the node is in, given what was decided about it. Between attempts the phase does not
// change.
func (t *Timeline) Observe(in Input, plan Plan, now time.Time) {
	at := now
	if pod := CurrentPod(in.Node.Record, in.Pods); pod != nil {
		t.enter(PhaseStart, pod.Seen.First)
		t.enter(PhaseInit, pod.Seen.Init)
		t.enter(PhaseStart, pod.Seen.InitEnded)
		t.enter(PhaseChecks, runningSince(*pod))
		if pod.Passed() && t.phase != PhaseRegistration {
			at = pod.Seen.Result
		}
	}
	switch {
	case len(plan.Unmet) > 0:
		phases := map[string]Phase{UnmetSlot: PhaseSlot, UnmetRegistration: PhaseRegistration}
		t.enter(cmp.Or(phases[plan.Unmet[0].Kind], PhasePrerequisites), at)
	case plan.Step == StepStart:
		t.enter(PhaseStart, at)
	case plan.Releases():
		t.enter(PhaseRelease, at)
	}
}

// runningSince is when a pod's worker was observed to run. If the worker was only observed before and after it ran, the
// duration in its own report counts.
func runningSince(pod workerpod.Observation) time.Time {
	if pod.Seen.Running.IsZero() && pod.Attempt.Result != nil {
		return pod.Seen.Result.Add(-pod.Attempt.Result.Duration)
	}
	return pod.Seen.Running
}

// End is how long the node spent in each phase that it was in, released at the given time.
func (t *Timeline) End(now time.Time) map[Phase]time.Duration {
	t.enter("", now)
	return t.durations
}
