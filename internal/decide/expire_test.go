package decide

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// What follows a deadline, with reconciliation.onDeadline hold and remediate.
func TestWhatFollowsADeadline(t *testing.T) {
	lacks := []Unmet{{Kind: "pods", Message: "a pod of the agent"}}
	passing := []workerpod.Observation{probe("m0", ended(attempt.Passed), subject("u1/1"))}
	failingToo := []workerpod.Observation{probe("m0", ended(attempt.Failed), subject("u1/1"))}
	leaving := func(in *Input) { in.Node.Leaving = "it is draining" }
	justNow := func(in *Input) { in.NeedsVerificationSince = now.Add(-maxAttemptDuration(*in)) }
	for name, tc := range map[string]struct {
		in      Input
		world   world
		step    Step            // with remediate
		outcome attempt.Outcome // that is recorded with it
	}{
		"unmet":                 {given(missedDeadline), world{waits: lacks, probes: passing}, StepRecord, attempt.Failed},
		"unmet, to be compared": {given(missedDeadline, justNow), world{waits: lacks, fleet: healthyNodes(3, "")}, StepProbe, ""},
		"unmet, and shared":     {given(missedDeadline), world{waits: lacks, probes: failingToo}, StepRecord, attempt.Inconclusive},
		"unmet, none compares":  {given(missedDeadline), world{waits: lacks}, StepRecord, attempt.Inconclusive},
		"after an outage":       {given(missedDeadline, heldBy(GuardControlProbe)), world{waits: lacks, probes: passing}, StepRecord, attempt.Inconclusive},
		"no slot":               {given(missedDeadline), world{full: true, fleet: healthyNodes(3, ""), probes: passing}, StepRecord, attempt.Failed},
		"the kubelet is gone":   {given(missedDeadline, lost), world{probes: passing}, StepRecord, attempt.Failed},
		"an attempt runs":       {given(missedDeadline, with(pod(1))), world{probes: passing}, StepNone, ""},
		"an attempt can start":  {given(missedDeadline), world{probes: passing}, StepStart, ""},
		"leaving":               {given(missedDeadline, leaving), world{probes: passing}, StepNone, ""},
		"before it":             {given(missedDeadline, func(in *Input) { in.NeedsVerificationSince = now }), world{waits: lacks, probes: passing}, StepNone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if plan, _ := ask(t, tc.in, tc.world); plan.Step != StepNone && plan.Step != StepStart {
				t.Errorf("hold: %q", plan.Step)
			}
			tc.in.Config.Reconciliation.OnDeadline = config.OnDeadlineRemediate
			plan, _ := ask(t, tc.in, tc.world)
			if plan.Step != tc.step || tc.outcome != "" && plan.Recorded.Result.Outcome != tc.outcome {
				t.Fatalf("%q, %+v; want %q", plan.Step, plan.Recorded, tc.step)
			}
			if r := plan.Change.Record; tc.outcome == attempt.Failed && (r.Attempts != tc.in.Config.Reconciliation.MaxRetries || r.LastReason != attempt.ReasonDeadline) {
				t.Errorf("%+v", r)
			}
			for _, e := range plan.Events {
				if strings.Contains(e.Message, "attempts failed") || strings.Contains(e.Message, "failure 1") {
					t.Errorf("no attempt failed: %q", e.Message)
				}
			}
			if tc.outcome == "" {
				return
			}
			tc.in.Node.Record, tc.world.fleet = plan.Change.Record, deletable().fleet
			want := map[attempt.Outcome]Step{attempt.Failed: StepDelete}[tc.outcome]
			plan, _ = ask(t, tc.in, tc.world)
			if plan.Step != want {
				t.Errorf("then %q: %+v", plan.Step, plan)
			}
			if c := plan.Condition; c != nil && strings.Contains(c.Message, "attempts failed") {
				t.Errorf("no attempt failed: %q", c.Message)
			}
		})
	}
}
