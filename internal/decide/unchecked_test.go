package decide

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// A node without checks is released once its prerequisites hold: no worker, no slot, and one write as for any pass.
func TestANodeWithoutChecksIsReleased(t *testing.T) {
	for name, in := range map[string]Input{
		"new":                              given(unchecked),
		"its taint came back":              verified(unchecked, gated),
		"label removed":                    verified(unchecked, unlabelled),
		"rebooted":                         verified(unchecked, rebootedTo("b2")),
		"it failed when there were checks": failing(2, unchecked),
		"exhausted when there were checks": failing(5, unchecked, deleting),
		"held when there were checks":      failing(5, unchecked, deleting, heldBy(GuardDoNotDelete)),
	} {
		plan, asked := ask(t, in, world{full: true, fleet: deletable().fleet})
		c, r := plan.Change, plan.Change.Record
		if plan.Step != StepRecord || !slices.Equal(asked, []Need{NeedPrerequisites}) || c.Label == nil || !*c.Label || (c.Gate == gateOpen) != in.Node.Gated {
			t.Errorf("%s: asked for %v, then %+v", name, asked, plan)
			continue
		}
		if r.Sequence != in.Node.Record.Sequence+1 || r.LastOutcome != attempt.Passed || r.VerifiedTime == nil || r.Held != "" || r.Deletion != nil || plan.Recorded == nil {
			t.Errorf("%s: the record is %+v", name, r)
		}
		if e := plan.Events; len(e) != 1 || e[0].Reason != EventPassed || !strings.HasPrefix(e[0].Message, "No checks are configured; all prerequisites hold") {
			t.Errorf("%s: events %+v", name, e)
		}
		in.Node.Record, in.Node.HasRecord, in.Node.Gated, in.Node.Labelled = r, true, false, true
		in.Node.BootID = r.BootID
		plan, asked = ask(t, in, world{})
		if plan.Step != StepNone || len(asked) > 0 || plan.Condition.Status != corev1.ConditionTrue || !strings.HasPrefix(plan.Condition.Message, "No checks are configured") {
			t.Errorf("%s: then %+v", name, plan)
		}
	}
}

func TestANodeWithoutChecksWaits(t *testing.T) {
	unmet := world{waits: []Unmet{{Kind: "nodeReady", Message: "the node to be Ready"}}}
	for name, tc := range map[string]struct {
		in     Input
		world  world
		reason string
		asks   []Need
	}{
		"for a prerequisite":            {given(unchecked), unmet, marks.ReasonWaitingForPrerequisites, []Need{NeedPrerequisites}},
		"for it after failures too":     {failing(2, unchecked), unmet, marks.ReasonWaitingForPrerequisites, []Need{NeedPrerequisites}},
		"for its registration":          {given(unchecked, managed), world{}, marks.ReasonWaitingForRegistration, []Need{NeedPrerequisites}},
		"for its kubelet":               {given(unchecked, lost), world{}, marks.ReasonWaitingForPrerequisites, nil},
		"because it leaves":             {given(unchecked, leaving), world{}, marks.ReasonWaitingForPrerequisites, nil},
		"for a NodeClaim that is going": {failing(5, unchecked, deleting, intended), world{owner: owner.Owner{Target: nodeClaim("c", "cu"), Terminating: true}}, marks.ReasonRetriesExhausted, []Need{NeedOwner}},
	} {
		plan, asked := ask(t, tc.in, tc.world)
		if plan.Step != StepNone || reasonOf(plan.Condition) != tc.reason || !slices.Equal(asked, tc.asks) {
			t.Errorf("%s: asked for %v, then %+v", name, asked, plan)
		}
	}
	// An intended deletion that did not happen is not tried again, because nothing shows any more that the node is at
	// fault.
	plan, _ := ask(t, failing(5, unchecked, deleting, intended), deletable())
	if plan.Step != StepRecord || plan.Change.Record.Deletion != nil || plan.Recorded != nil {
		t.Errorf("%+v", plan)
	}
	// A domain to resolve is a check.
	in := given(unchecked, func(in *Input) { in.Profile.DNSTestDomains = []string{"example.com"} })
	if plan, _ := ask(t, in, world{}); plan.Step != StepStart {
		t.Errorf("with a domain to resolve: %+v", plan)
	}
	// A worker from before the checks were removed is not waited for.
	if plan, _ := ask(t, given(unchecked, with(pod(1, otherChecks))), world{}); plan.Step != StepRecord || plan.Change.Record.LastReason != attempt.ReasonChecksChanged {
		t.Errorf("a worker under way: %+v", plan)
	}
}
