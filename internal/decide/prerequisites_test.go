package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// The hold counts from the node's creation, whichever process leads. The condition reports it together with everything
// else that the node waits for.
func TestMinimumHold(t *testing.T) {
	holding := func(age time.Duration) func(*Input) {
		return func(in *Input) {
			in.Config.NodeManagement.MinimumHoldSeconds = 60
			in.Node.Created = now.Add(-age)
		}
	}
	unmet := world{waits: []Unmet{{Kind: "nodeReady", Name: "Ready", Message: "the node to be Ready"}}}
	for name, tc := range map[string]struct {
		in    Input
		world world
		step  Step
		says  string // part of the condition
		wait  time.Duration
	}{
		"young":                              {given(holding(20 * time.Second)), world{}, StepNone, "the end of nodeManagement.minimumHoldSeconds (60) at 2026-03-01T12:00:40Z", 40 * time.Second},
		"young, without checks":              {given(unchecked, holding(20*time.Second)), world{}, StepNone, "minimumHoldSeconds", 40 * time.Second},
		"young, and waits for something":     {given(unchecked, holding(20*time.Second)), unmet, StepNone, "the node to be Ready; the end of nodeManagement.minimumHoldSeconds", 40 * time.Second},
		"over":                               {given(holding(time.Minute)), world{}, StepStart, "", 0},
		"over, without checks":               {given(unchecked, holding(time.Minute)), world{}, StepRecord, "", 0},
		"over, and waits for something":      {given(unchecked, holding(time.Minute)), unmet, StepNone, "the node to be Ready", 0},
		"not gated":                          {given(ungated, unlabelled, holding(0), func(in *Input) { in.Node.HasRecord = true }), world{}, StepStart, "", 0},
		"created on a clock ahead of ours":   {given(holding(-30 * time.Second)), world{}, StepNone, "minimumHoldSeconds", 90 * time.Second},
		"the taint came back to an old node": {verified(unchecked, gated, holding(time.Hour)), world{}, StepRecord, "", 0},
		"rebooted while it is held":          {failing(1, due, rebootedTo("b2"), holding(20*time.Second)), world{}, StepNone, "minimumHoldSeconds", 40 * time.Second},
	} {
		plan, _ := ask(t, tc.in, tc.world)
		said := ""
		if plan.Condition != nil && plan.Condition.Reason == marks.ReasonWaitingForPrerequisites {
			said = plan.Condition.Message
		}
		if plan.Step != tc.step || !strings.Contains(said, tc.says) || (tc.says == "") != (said == "") || plan.RequeueAfter != tc.wait {
			t.Errorf("%s: %q, %v, waits %s: %+v", name, plan.Step, said, plan.RequeueAfter, plan)
		}
		if slices.ContainsFunc(plan.Events, func(e Event) bool { return e.Reason == EventPrerequisiteStuck }) {
			t.Errorf("%s: %+v", name, plan.Events)
		}
	}
	// The message stays the same while the node waits.
	in := given(holding(0))
	first, _ := ask(t, in, world{})
	later, _ := askAt(t, in, world{}, now.Add(30*time.Second))
	if first.Condition.Message != later.Condition.Message {
		t.Errorf("%s, then %s", first.Condition.Message, later.Condition.Message)
	}
	if plan, _ := askAt(t, given(unchecked, holding(0)), world{}, now.Add(time.Minute)); plan.Change.Gate != gateOpen || plan.Change.Record.LastOutcome != attempt.Passed {
		t.Errorf("%+v", plan)
	}
}

// A hint counts as what a person has to change once the node has waited for a minute, and not before.
func TestHints(t *testing.T) {
	const hint = "use the preset gpu-nvidia-dra"
	waits := []Unmet{{Kind: "nodeReady", Name: "Ready", Message: "it to be Ready"},
		{Kind: "allocatable", Name: "nvidia.com/gpu", Message: "1 nvidia.com/gpu allocatable (the node offers none)", Hint: hint}}
	for name, tc := range map[string]struct {
		since  time.Time
		said   bool
		within time.Duration // until it is looked at again because of it; 0 for not
	}{
		"not tracked":   {time.Time{}, false, 0},
		"just now":      {now, false, time.Minute},
		"half a minute": {now.Add(-30 * time.Second), false, 30 * time.Second},
		"a minute":      {now.Add(-time.Minute), true, 0},
		"for long":      {now.Add(-time.Hour), true, 0},
	} {
		in := given(func(in *Input) { in.NeedsVerificationSince = tc.since })
		plan := Next(in, Evidence{Unmet: &waits}, now)
		said := strings.Contains(plan.Condition.Message, "(the node offers none): "+hint)
		if said != tc.said || (len(plan.Events) == 1) != tc.said || plan.RequeueAfter != tc.within {
			t.Errorf("%s: %q, events %+v, again in %s", name, plan.Condition.Message, plan.Events, plan.RequeueAfter)
		}
	}
	if waits[1].Remedy != "" {
		t.Error("the evidence was changed")
	}
}
