package decide

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// shownEnded is a worker whose first observation showed that it had ended.
func shownEnded(o *workerpod.Observation) { o.Seen.UnderWay, o.Seen.Witnessed = false, false }

// A failure that no controller saw come is not compared with a probe of now, once until the next failure is counted.
func TestFailureThatNobodySaw(t *testing.T) {
	passing := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}}
	own := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", subject("u1/1"), ended(attempt.Passed), unwitnessed)}}
	ran := with(pod(1, ended(attempt.Failed), resultSeen(failedAt), shownEnded))
	before := func(in *Input) { in.Node.Record.Unseen = true }
	inRun := func(in *Input) { in.Node.Record.LastOutcome = attempt.Inconclusive }
	for name, tc := range map[string]struct {
		in     Input
		w      world
		reason string
		spent  int32
		unseen bool
	}{
		"seen to come":                      {failed(1), passing, "Timeout", 1, false},
		"nobody saw it":                     {failed(1, ran), passing, attempt.ReasonFailureUnseen, 0, true},
		"and there is no verified node":     {failed(1, ran), world{}, attempt.ReasonFailureUnseen, 0, true},
		"an earlier leader saw it":          {failed(1, ran), own, "Timeout", 1, false},
		"again":                             {failed(1, ran, before, inRun), passing, "Timeout", 1, false},
		"again, in the run after a pass":    {failed(1, ran, before), passing, attempt.ReasonFailureUnseen, 0, true},
		"no probe would judge it":           {failed(1, ran, noProbe), passing, "Timeout", 1, false},
		"deletion is off":                   {given(ran), passing, "Timeout", 1, false},
		"it hangs, and its time is over":    {failed(1, with(pod(1, seenFor(1<<40), shownEnded))), passing, attempt.ReasonTimeout, 1, false},
		"a check's reason of the same name": {failed(1, with(pod(1, ended(attempt.Failed), resultSeen(failedAt), reported(attempt.ReasonFailureUnseen)))), passing, attempt.ReasonFailureUnseen, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, plan := recorded(t, tc.in, tc.w)
			if r.LastReason != tc.reason || r.Attempts != tc.spent || r.Unseen != tc.unseen || (r.LastOutcome == attempt.Failed) != (tc.spent > 0) {
				t.Errorf("%s %s, %d spent, unseen %v; want %s, %d, %v", r.LastOutcome, r.LastReason, r.Attempts, r.Unseen, tc.reason, tc.spent, tc.unseen)
			}
			if tc.unseen && (r.LastCheck != "" || !strings.Contains(r.LastMessage, "check dns: Timeout: no answer") || r.Held != "" || r.NextAttemptTime == nil || reasons(plan.Events)[0] != EventInconclusive.Name) {
				t.Errorf("%+v, events %v", r, plan.Events)
			}
		})
	}
}

func reported(reason string) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) { o.Attempt.Result.Reason = reason }
}

// A node that fails is exhausted even if another controller leads at each failure.
func TestFailuresThatNobodySawExhaustANode(t *testing.T) {
	passing := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}}
	in := failed(1)
	most := in.Config.Reconciliation.MaxRetries
	for n := int32(1); n <= 2*most; n++ {
		in.Pods = []workerpod.Observation{pod(n, ended(attempt.Failed), resultSeen(failedAt), shownEnded)}
		in.Node.Record, _ = recorded(t, in, passing)
	}
	if r := in.Node.Record; r.Attempts != most || r.Inconclusive != most || r.Sequence != 2*most {
		t.Errorf("%+v", r)
	}
}

// The next failure after a shared outage is inconclusive as well: one that nobody saw in between does not end the outage.
func TestAFailureThatNobodySawEndsNoOutage(t *testing.T) {
	r, _ := recorded(t, failed(2, heldBy(GuardControlProbe), with(pod(2, ended(attempt.Failed), resultSeen(failedAt), shownEnded))), world{})
	if r.LastReason != attempt.ReasonFailureUnseen || r.Held != GuardControlProbe {
		t.Errorf("%+v", r)
	}
}

// A failed re-verification closes the gate, whoever saw it fail.
func TestAFailureThatNobodySawClosesTheGateOfAVerifiedNode(t *testing.T) {
	in := verified(unlabelled, deleting, with(pod(2, openGate, ended(attempt.Failed), resultSeen(failedAt), shownEnded)))
	if r, plan := recorded(t, in, world{}); plan.Change.Gate != gateClose || r.LastReason != attempt.ReasonFailureUnseen {
		t.Errorf("%+v", plan.Change)
	}
}
