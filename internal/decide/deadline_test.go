package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// missedDeadline is a node that is two hours old and had to pass within one hour. This process has known it for all
// that time.
func missedDeadline(in *Input) {
	in.Profile.VerificationDeadlineSeconds = 3600
	in.Node.Created, in.NeedsVerificationSince = now.Add(-2*time.Hour), now.Add(-2*time.Hour)
	in.Config.NodeManagement.DeleteFailedNodes = true
	in.Node.HasRecord = true
	if in.Node.Record.NodeUID == "" {
		in.Node.Record = marks.Record{NodeUID: "u1", BootID: "b1", Checks: checks}
	}
}

// inconclusively is a worker that ended a second ago for the reason.
func inconclusively(reason string) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		ended(attempt.Inconclusive)(o)
		o.Seen.Result = failedAt
		o.Attempt.Result = attempt.NewInconclusive(reason, "why")
	}
}

// stuck is a worker that has not started in time.
func stuck(o *workerpod.Observation) {
	pending(o)
	o.Seen.First, o.StartTimeout = failedAt.Add(-time.Minute), time.Minute
}

func TestDeadlineOf(t *testing.T) {
	takes := maxAttemptDuration(given())
	passedAgo := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Node.Record.VerifiedTime = ago(d) }
	}
	since := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Node.Record.Since = ago(d) }
	}
	known := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.NeedsVerificationSince = now.Add(-d) }
	}
	old := func(in *Input) { in.Node.Created = now.Add(-30 * 24 * time.Hour) }
	for name, tc := range map[string]struct {
		in   Input
		want *time.Time
	}{
		"from the creation":                          {given(missedDeadline), ago(time.Hour)},
		"whatever the boot":                          {given(missedDeadline, rebootedTo("b2")), ago(time.Hour)},
		"none is configured":                         {given(missedDeadline, func(in *Input) { in.Profile.VerificationDeadlineSeconds = 0 }), nil},
		"nobody keeps account":                       {given(missedDeadline, func(in *Input) { in.NeedsVerificationSince = time.Time{} }), nil},
		"a new leader grants a full attempt":         {given(missedDeadline, known(0)), ptr.To(now.Add(takes))},
		"and no more":                                {given(missedDeadline, known(takes)), ago(0)},
		"a month-old node without a record, too":     {given(missedDeadline, old, known(time.Minute), func(in *Input) { in.Node.Record = marks.Record{} }), ptr.To(now.Add(takes - time.Minute))},
		"once it passed, from when it was needed":    {given(missedDeadline, old, passedAgo(3*time.Hour), since(90*time.Minute)), ago(30 * time.Minute)},
		"and a full attempt there as well":           {given(missedDeadline, old, passedAgo(3*time.Hour), since(2*time.Hour), known(0)), ptr.To(now.Add(takes))},
		"that was not written yet":                   {given(missedDeadline, old, passedAgo(3*time.Hour)), nil},
		"that is of a round before":                  {given(missedDeadline, old, passedAgo(time.Hour), since(2*time.Hour)), nil},
		"that is the future":                         {given(missedDeadline, old, passedAgo(3*time.Hour), since(-time.Hour)), nil},
		"a pass in the future is no measure":         {given(missedDeadline, old, passedAgo(-time.Hour), since(90*time.Minute)), ago(30 * time.Minute)},
		"nor is its creation where its past is lost": {given(missedDeadline, func(in *Input) { in.Node.Record.VerifiedTime = &in.Node.Created }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := verificationDeadline(tc.in, now)
			if ok != (tc.want != nil) || ok && !at.Equal(*tc.want) {
				t.Errorf("%s, %v; want %s", at, ok, tc.want)
			}
			if got := deadlinePassed(tc.in, now); got != (ok && !at.After(now)) {
				t.Errorf("expired: %v", got)
			}
		})
	}
}

// The start of a verified node's next round is recorded once. If the node's gate is closed, the same write does both.
func TestTheRoundIsDated(t *testing.T) {
	limit := func(in *Input) { in.Profile.VerificationDeadlineSeconds = 3600 }
	taint := func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }
	again := verified(unlabelled, limit)
	plan, _ := ask(t, again, world{})
	if r := plan.Change.Record; plan.Step != StepRecord || r.Since == nil || !r.Since.Equal(now) || plan.Change.Gate != gateKeep || plan.Recorded != nil {
		t.Fatalf("%+v", plan)
	}
	again.Node.Record = plan.Change.Record
	if plan, _ = ask(t, again, world{}); plan.Step != StepStart {
		t.Errorf("after it %+v", plan)
	}
	if plan, _ = ask(t, verified(unlabelled, limit, taint), world{}); plan.Change.Gate != gateClose || plan.Change.Record.Since == nil {
		t.Errorf("with the taint: %+v", plan.Change)
	}
	if plan, _ = ask(t, verified(unlabelled), world{}); plan.Step != StepStart {
		t.Errorf("without a deadline: %+v", plan)
	}
	if plan, _ = ask(t, given(limit), world{}); plan.Step != StepStart {
		t.Errorf("a node that never passed: %+v", plan)
	}
	again.Pods = []workerpod.Observation{pod(2, ended(attempt.Passed), openGate)}
	if plan, _ = ask(t, again, world{}); plan.Recorded == nil || plan.Change.Record.Since != nil {
		t.Errorf("after a pass: %+v", plan.Change.Record)
	}
}

// Past its deadline, a node reports that, whatever it waits for. The text is the same at every reconcile.
func TestWhatANodePastItsDeadlineSays(t *testing.T) {
	waits := world{waits: []Unmet{{Kind: "nodeReady", Message: "the node's condition Ready to be True"}}}
	noDeletion := func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }
	unregistered := func(in *Input) { in.Node.Owner = owner.Signs{Kind: "NodeClaim", Managed: true} }
	for name, tc := range map[string]struct {
		in    Input
		world world
		says  string // of the message; empty: another condition
		else_ string
	}{
		"a prerequisite":    {in: given(missedDeadline, noDeletion), world: waits, says: "Waiting for the node's condition Ready"},
		"a slot":            {in: given(missedDeadline), world: world{full: true}, says: "maxConcurrentVerifications"},
		"the kubelet":       {in: given(missedDeadline, lost), says: "Waiting for the kubelet"},
		"registration":      {in: given(missedDeadline, unregistered, with(pod(1, ended(attempt.Passed)))), says: owner.LabelRegistered},
		"the first attempt": {in: given(missedDeadline, with(pod(1))), says: "no attempt has ended"},
		"between attempts":  {in: puzzling(3, missedDeadline), says: "ImagePull: no such image"},
		"another attempt":   {in: puzzling(3, missedDeadline, with(pod(4))), says: "ImagePull: no such image"},
		"a failed check":    {in: failing(2, missedDeadline), says: "check dns: Timeout: no answer"},
		"a deletion":        {in: puzzling(3, missedDeadline, func(in *Input) { in.Node.Record.Deletion = &marks.Deletion{Kind: owner.Node, Name: "n"} }), world: world{owner: owner.Owner{Terminating: true}}, says: "Node n is being deleted"},
		"exhausted":         {in: failing(5, missedDeadline, noDeletion), else_: marks.ReasonRetriesExhausted},
		"held":              {in: failing(5, missedDeadline, deleting, heldBy(GuardSparePods)), world: world{fleet: deletable().fleet, workloads: Workloads{Names: []string{"a/b"}}}, else_: marks.ReasonRemediationHeld},
		"before it":         {in: given(missedDeadline, with(pod(1)), func(in *Input) { in.NeedsVerificationSince = now }), else_: marks.ReasonVerifying},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, tc.world)
			c := plan.Condition
			if tc.says == "" {
				if reasonOf(c) != tc.else_ {
					t.Errorf("says %+v, want %s", c, tc.else_)
				}
				return
			}
			if reasonOf(c) != marks.ReasonDeadlineExceeded || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, tc.says) || !strings.Contains(c.Message, "within 1h0m0s (since 2026-03-01T10:00:00Z)") {
				t.Fatalf("says %+v", c)
			}
			if got := reasons(plan.Events); got[len(got)-1] != EventFailed.Name {
				t.Errorf("events %v", got)
			}
			tc.in.Node.Condition = &corev1.NodeCondition{Type: marks.ConditionType, Status: c.Status, Reason: c.Reason, Message: c.Message}
			later, _ := askAt(t, tc.in, tc.world, now.Add(100*time.Millisecond))
			if later.Condition == nil || *later.Condition != *c || len(later.Events) >= len(plan.Events) {
				t.Errorf("a moment later %+v, events %v", later.Condition, later.Events)
			}
			if got := StatusOf(tc.in, now); got != StatusFailed {
				t.Errorf("status %s", got)
			}
			if !SummaryOf(tc.in).Unhealthy {
				t.Error("the fleet counts it as healthy")
			}
			// A new leader keeps reporting it, but takes no action before a full attempt.
			tc.in.NeedsVerificationSince = now
			if next, _ := ask(t, tc.in, tc.world); reasonOf(next.Condition) != marks.ReasonDeadlineExceeded || next.Step == StepDelete {
				t.Errorf("its successor: %+v", next)
			}
		})
	}
}
