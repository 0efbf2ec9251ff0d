package decide

import (
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// A pass opens only the gate under which its worker began.
func TestAPassOpensTheGateItBeganUnder(t *testing.T) {
	opened := func(at time.Duration) func(*Input) {
		return func(in *Input) { in.GateOpenSeen = now.Add(at) }
	}
	retried := func(in *Input) { in.Node.HasRecord, in.Node.Record.LastOutcome = true, attempt.Inconclusive }
	for name, tc := range map[string]struct {
		in     Input
		reason string // empty: it counts; "-": nothing is recorded
		gate   string
	}{
		"it never opened":                     {given(with(pod(1, ended(attempt.Passed)))), "", "opened"},
		"it opened before the worker began":   {given(opened(-time.Minute), with(pod(1, ended(attempt.Passed)))), "", "opened"},
		"it opened since":                     {given(opened(-time.Second), with(pod(1, ended(attempt.Passed)))), attempt.ReasonGateRemoved, ""},
		"under way":                           {given(opened(-time.Second), with(pod(1))), attempt.ReasonGateRemoved, ""},
		"under way, before the worker began":  {given(opened(-time.Minute), with(pod(1))), "-", ""},
		"under way, it is open":               {given(retried, ungated, with(pod(1))), attempt.ReasonGateRemoved, ""},
		"passed, it is open":                  {given(retried, ungated, opened(0), with(pod(1, ended(attempt.Passed)))), "", ""},
		"failed, it opened since":             {given(opened(-time.Second), with(pod(1, ended(attempt.Failed)))), "Timeout", "closed"},
		"under way since it was open":         {verified(unlabelled, with(pod(2, openGate))), "-", ""},
		"passed, and deleted since":           {given(with(pod(1, ended(attempt.Passed), terminating))), attempt.ReasonGateRemoved, ""},
		"passed, deleted since, it is open":   {given(retried, ungated, with(pod(1, ended(attempt.Passed), terminating))), "", ""},
		"other checks, and it opened since":   {given(opened(-time.Second), with(pod(1, otherChecks))), attempt.ReasonGateRemoved, ""},
		"waits for Karpenter, it opened then": {given(managed, opened(-time.Second), with(pod(1, ended(attempt.Passed)))), attempt.ReasonGateRemoved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, world{})
			if tc.reason == "-" {
				if plan.Step != StepNone {
					t.Errorf("%+v", plan)
				}
				return
			}
			r := plan.Change.Record
			gate := map[int]string{int(gateKeep): "", int(gateOpen): "opened", int(gateClose): "closed"}[int(plan.Change.Gate)]
			if plan.Recorded == nil || r.LastReason != tc.reason || gate != tc.gate {
				t.Fatalf("recorded %+v, reason %q, gate %q; want %q, %q", plan.Recorded, r.LastReason, gate, tc.reason, tc.gate)
			}
			if tc.reason == attempt.ReasonGateRemoved && (r.Superseded != 1 || r.Attempts != 0 || r.NextAttemptTime == nil || !r.NextAttemptTime.Equal(now)) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Somebody who takes the taint off a node of which nothing is recorded ends its verification, and no record begins another.
func TestAnUntaintedNodeWithoutARecordIsLeftAlone(t *testing.T) {
	for name, p := range map[string]workerpod.Observation{"runs": pod(1), "passed": pod(1, ended(attempt.Passed))} {
		plan, _ := ask(t, given(ungated, with(p)), world{})
		if plan.Step != StepNone || len(plan.Delete) != 1 {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}
