package decide

import (
	"maps"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// seen is what a leader observed of a node at the given number of seconds after its creation.
type seen struct {
	at int
	in Input
	ev Evidence
}

func TestTimeline(t *testing.T) {
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	// begun is a pod that was made then, running one whose worker runs since then, and passed and failed one that has ended.
	begun := func(number int32, first int) workerpod.Observation {
		return pod(number, func(p *workerpod.Observation) {
			p.State, p.Seen = workerpod.Pending, workerpod.FirstSeen{First: at(first)}
		})
	}
	running := func(p workerpod.Observation, since int) workerpod.Observation {
		p.State, p.Seen.Running = workerpod.Running, at(since)
		return p
	}
	burnIn := func(p workerpod.Observation, since, until int) workerpod.Observation {
		if p.InitContainer, p.Seen.Init = "burn-in", at(since); until > 0 {
			p.InitContainer, p.Seen.InitEnded = "", at(until)
		}
		return p
	}
	ended := func(p workerpod.Observation, outcome attempt.Outcome, when int) workerpod.Observation {
		p.State, p.Occupies, p.Seen.Result = workerpod.Ended, false, at(when)
		p.Attempt.Result = &attempt.Result{Outcome: outcome, Duration: 2 * time.Second}
		return p
	}
	after := func(failures int32, last int) func(*Input) {
		return func(in *Input) {
			in.Node.HasRecord = true
			recorded := at(last)
			in.Node.Record = marks.Record{NodeUID: "u1", BootID: "b1", Checks: checks, Sequence: failures, Attempts: failures, LastOutcome: attempt.Failed, LastTime: &recorded}
		}
	}
	none, yes, no := []Unmet{}, true, false
	waits := []Unmet{{Kind: "nodeReady", Name: "Ready", Message: "it is not Ready"}}
	ready := Evidence{Unmet: &none, Slot: &yes, Fresh: true}
	registered := func(in *Input) { in.Node.Owner.Managed, in.Node.Owner.Registered = true, true }

	for name, tc := range map[string]struct {
		steps []seen
		end   int
		want  map[Phase]int // seconds
	}{
		"all of them": {[]seen{
			{1, given(), Evidence{Unmet: &waits}},
			{4, given(), Evidence{Unmet: &none, Slot: &no}},
			{6, given(), ready},
			{7, given(with(begun(1, 7))), Evidence{}},
			{9, given(with(running(begun(1, 7), 9))), Evidence{}},
			{14, given(managed, with(ended(running(begun(1, 7), 9), attempt.Passed, 14))), ready},
			{20, given(managed, with(ended(running(begun(1, 7), 9), attempt.Passed, 14))), ready},
			{21, given(registered, with(ended(running(begun(1, 7), 9), attempt.Passed, 14))), ready},
		}, 22, map[Phase]int{PhaseStart: 1 + 3, PhasePrerequisites: 3, PhaseSlot: 2, PhaseChecks: 5, PhaseRegistration: 7, PhaseRelease: 1}},
		"a late look": {[]seen{
			{0, given(), ready},
			{9, given(with(ended(running(begun(1, 1), 2), attempt.Passed, 5))), ready},
		}, 10, map[Phase]int{PhaseStart: 2, PhaseChecks: 3, PhaseRelease: 5}},
		"a worker that was never seen to run": {[]seen{
			{0, given(), ready},
			{5, given(with(ended(begun(1, 1), attempt.Passed, 5))), ready},
		}, 5, map[Phase]int{PhaseStart: 3, PhaseChecks: 2}},
		"an init container": {[]seen{
			{0, given(), ready},
			{2, given(with(burnIn(begun(1, 1), 2, 0))), Evidence{}},
			{3, given(with(burnIn(begun(1, 1), 2, 0))), Evidence{}},
			{9, given(with(burnIn(begun(1, 1), 2, 8))), Evidence{}},
			{11, given(with(running(burnIn(begun(1, 1), 2, 8), 10))), Evidence{}},
			{14, given(with(ended(running(burnIn(begun(1, 1), 2, 8), 10), attempt.Passed, 14))), ready},
		}, 15, map[Phase]int{PhaseStart: 2 + 2, PhaseInit: 6, PhaseChecks: 4, PhaseRelease: 1}},
		"a failure between": {[]seen{
			{0, given(), ready},
			{2, given(with(running(begun(1, 0), 2))), Evidence{}},
			{4, given(with(ended(running(begun(1, 0), 2), attempt.Failed, 4))), Evidence{}},
			{4, given(after(1, 4)), ready}, // it waits for its next attempt
			{11, given(after(1, 4)), ready},
			{12, given(after(1, 4), with(running(begun(2, 11), 12))), Evidence{}},
			{14, given(after(1, 4), with(ended(running(begun(2, 11), 12), attempt.Passed, 14))), ready},
		}, 14, map[Phase]int{PhaseStart: 2 + 1, PhaseChecks: 9 + 2}},
		"no checks": {[]seen{
			{1, given(unchecked), Evidence{Unmet: &waits}},
			{8, given(unchecked), Evidence{Unmet: &none}},
		}, 9, map[Phase]int{PhaseStart: 1, PhasePrerequisites: 7, PhaseRelease: 1}},
	} {
		line := NewTimeline(now)
		released := false
		for _, s := range tc.steps {
			plan := Next(s.in, s.ev, at(s.at))
			line.Observe(s.in, plan, at(s.at))
			released = plan.Releases()
		}
		if !released {
			t.Errorf("%s: the last step does not release the node", name)
		}
		want := map[Phase]time.Duration{}
		for p, seconds := range tc.want {
			want[p] = time.Duration(seconds) * time.Second
		}
		if got := line.End(at(tc.end)); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
