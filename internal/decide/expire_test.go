package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
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

// pastTheDeadline is a node past its deadline with the history of in.
func pastTheDeadline(in Input, change ...func(*Input)) Input {
	for _, f := range append([]func(*Input){missedDeadline}, change...) {
		f(&in)
	}
	if in.Node.Record.MayHaveVerified() {
		in.Node.Record.VerifiedTime, in.Node.Record.LastTime, in.Node.Record.Since = ago(3*time.Hour), ago(3*time.Hour), ago(2*time.Hour)
	}
	return in
}

// What each setting of reconciliation.onDeadline does about a node past its deadline. Only the user's word opens a gate
// without a pass, and only while nothing is under way and no other verdict stands.
func TestTheThreeSettingsPastADeadline(t *testing.T) {
	lacks := []Unmet{{Kind: "pods", Message: "a pod of the agent"}}
	passing := []workerpod.Observation{probe("m0", ended(attempt.Passed), subject("u1/1"), resultSeen(now.Add(time.Second)))}
	waits, free := world{waits: lacks, probes: passing}, world{probes: passing}
	labelled := func(in *Input) { in.Node.Labelled = true }
	closedAgain := func(in *Input) { in.Node.Gated, in.Node.Labelled = true, false }
	uninitialized := func(in *Input) { in.Node.Uninitialized = "node.cloudprovider.kubernetes.io/uninitialized" }
	rejected := func(in *Input) { in.Node.Record.LastReason = attempt.ReasonKubeletRejected }
	unregistered := func(in *Input) { in.Node.Owner = owner.Signs{Kind: "NodeClaim", Managed: true} }
	releasedBefore := func(in *Input) { in.Node.Record.Released = ago(time.Minute) }
	intended := func(in *Input) {
		in.Node.Record.Deletion = &marks.Deletion{Kind: owner.Node, Name: "n", UID: "u1", Time: now}
	}
	const records, opens = "a failed attempt", "the gate opens"
	for name, tc := range map[string]struct {
		in                       Input
		world                    world
		hold, remediate, release string // what follows: a step, records or opens
	}{
		"an unmet prerequisite":          {given(missedDeadline), waits, "", records, opens},
		"no slot":                        {given(missedDeadline), world{full: true, probes: passing}, "", records, opens},
		"the image is missing":           {pastTheDeadline(puzzling(1)), free, "", records, opens},
		"the kubelet rejects the pod":    {pastTheDeadline(puzzling(1), rejected), free, "", records, opens},
		"no checks, unmet":               {given(missedDeadline, unchecked), waits, "", "", opens},
		"a failure that is not the last": {pastTheDeadline(failing(2)), free, "", records, opens},
		"an attempt runs":                {given(missedDeadline, with(pod(1))), free, "", "", ""},
		"its pod cannot pull its image":  {given(missedDeadline, with(pod(1, imageMissing))), free, "record", "record", "record"},
		"its result awaits registration": {given(missedDeadline, unregistered, with(pod(1, ended(attempt.Passed)))), free, "", "", ""},
		"an attempt can start":           {given(missedDeadline), free, "start", "start", "start"},
		"shared, with deletion on":       {pastTheDeadline(puzzling(1), heldBy(GuardControlProbe)), free, "", "record", opens},
		"exhausted, and a guard holds":   {pastTheDeadline(failing(5), deleting, heldBy(GuardMaxUnhealthy)), world{fleet: []NodeSummary{self(""), {Name: "m", UID: "mu", Unhealthy: true}}, probes: passing}, "hold", "hold", "hold"},
		"a deletion is intended":         {pastTheDeadline(failing(5), deleting, intended), deletable(), "delete", "delete", "delete"},
		"leaving":                        {given(missedDeadline, leaving), waits, "", "", ""},
		"leaving, after an attempt":      {pastTheDeadline(puzzling(1), leaving), waits, "", "", ""},
		"the kubelet is gone":            {given(missedDeadline, lost), waits, "", records, ""},
		"Karpenter would taint it again": {given(missedDeadline, unregistered), waits, "", records, ""},
		"its profile is not known":       {given(missedDeadline, uninitialized), waits, "", records, ""},
		"verified again, gate open":      {pastTheDeadline(verified(unlabelled)), waits, "", "", ""},
		"verified again, gate closed":    {pastTheDeadline(verified(closedAgain)), waits, "", records, opens},
		"the taint came back":            {pastTheDeadline(verified(gated, labelled)), waits, "", records, opens},
		"its deadline is not past":       {given(missedDeadline, func(in *Input) { in.NeedsVerificationSince = now }), waits, "", "", ""},
		"released, and tainted again":    {given(missedDeadline, releasedBefore), waits, "", records, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for setting, want := range map[config.OnDeadline]string{config.OnDeadlineHold: tc.hold, config.OnDeadlineRemediate: tc.remediate, config.OnDeadlineRelease: tc.release} {
				c := *tc.in.Config
				in := tc.in
				in.Config, c.Reconciliation.OnDeadline = &c, setting
				plan, asked := ask(t, in, tc.world)
				got := string(plan.Step)
				switch r := plan.Change.Record; {
				case plan.Step != StepRecord:
				case plan.Recorded != nil && plan.Recorded.Result.Outcome == attempt.Failed && plan.Recorded.Result.Reason == attempt.ReasonDeadline:
					got = records
				case plan.Change.Gate == gateOpen:
					if got = opens; plan.Recorded != nil || r.Released == nil || !r.Released.Equal(now) || r.LastOutcome != in.Node.Record.LastOutcome || r.Sequence != in.Node.Record.Sequence {
						t.Errorf("%s: %+v", setting, plan)
					}
					if asked[len(asked)-1] != NeedPrerequisites && !slices.Contains(asked, NeedFresh) {
						t.Errorf("%s: opened on a cached node", setting)
					}
					if got := reasons(plan.Events); !slices.Equal(got, []string{EventReleasedUnverified.Name}) {
						t.Errorf("%s: events %v", setting, got)
					}
				case r.Held != "" && plan.Recorded == nil:
					got = "hold"
				}
				if got == "" && tc.hold == "hold" && plan.Condition != nil && plan.Condition.Reason == marks.ReasonRemediationHeld {
					got = "hold"
				}
				if got != want {
					t.Errorf("%s: %q, want %q: %+v", setting, got, want, plan)
				}
			}
		})
	}
}

// A node that was released past its deadline stays open, and says that it was not verified, until it passes or its own
// checks exhaust its retries. Its gate opens once.
func TestReleasedPastTheDeadline(t *testing.T) {
	lacks := world{waits: []Unmet{{Kind: "pods", Message: "a pod of the agent"}}}
	byRelease := func(in *Input) { in.Config.Reconciliation.OnDeadline = config.OnDeadlineRelease }
	off := func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }
	in := given(missedDeadline, byRelease, off)
	plan, _ := ask(t, in, lacks)
	if plan.Change.Gate != gateOpen || plan.Change.Label != nil {
		t.Fatalf("%+v", plan)
	}
	in.Node.Record, in.Node.Gated, in.Node.HasRecord = plan.Change.Record, false, true
	if !NeedsVerification(in, now) {
		t.Error("it needs no verification")
	}
	plan, _ = ask(t, in, lacks)
	c := plan.Condition
	if plan.Step != StepNone || reasonOf(c) != marks.ReasonDeadlineExceeded || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "a pod of the agent") || !strings.Contains(c.Message, "released unverified at 2026-03-01T12:00:00Z") {
		t.Fatalf("waits: %q, %+v", plan.Step, c)
	}
	in.Node.Condition = &corev1.NodeCondition{Type: marks.ConditionType, Status: c.Status, Reason: c.Reason, Message: c.Message}
	if StatusOf(in, now) != StatusFailed || !SummaryOf(in).Unhealthy {
		t.Error("it counts as healthy")
	}

	attempted := func(outcome attempt.Outcome, before int32) Plan {
		with := in
		if with.Node.Record.Attempts = before; before > 0 {
			with.Node.Record.LastOutcome, with.Node.Record.Checks, with.Node.Record.BootID = attempt.Failed, checks, "b1"
		}
		with.Pods = []workerpod.Observation{pod(1, ended(outcome), openGate)}
		plan, _ := ask(t, with, world{})
		return plan
	}
	if p := attempted(attempt.Passed, 0); p.Change.Label == nil || !*p.Change.Label || p.Change.Record.Released != nil {
		t.Errorf("a pass: %+v", p.Change)
	}
	if p := attempted(attempt.Inconclusive, 0); p.Change.Gate != gateKeep || p.Change.Record.Released == nil {
		t.Errorf("an attempt that proves nothing: %+v", p.Change)
	}
	if p := attempted(attempt.Failed, 0); p.Change.Gate != gateKeep || p.Change.Record.Attempts != 1 || p.Change.Record.Released == nil {
		t.Errorf("a failure: %+v", p.Change)
	}
	last := attempted(attempt.Failed, 4)
	if last.Change.Gate != gateClose || last.Change.Record.Attempts != 5 {
		t.Errorf("the last failure: %+v", last.Change)
	}
	in.Node.Record, in.Node.Gated, in.Node.Condition = last.Change.Record, true, nil
	if p, _ := ask(t, in, lacks); p.Step != StepNone || reasonOf(p.Condition) != marks.ReasonRetriesExhausted {
		t.Errorf("exhausted: %q, %+v", p.Step, p.Condition)
	}

	// What verified nodes share is shown as before, and the node stays open.
	held := given(missedDeadline, byRelease, ungated, heldBy(GuardControlProbe))
	held.Node.Record.Released = ago(time.Minute)
	if p, _ := ask(t, held, lacks); p.Step != StepNone || reasonOf(p.Condition) != marks.ReasonDeadlineExceeded {
		t.Errorf("held: %q, %+v", p.Step, p.Condition)
	}
	// The controller itself took the label.
	worked := pastTheDeadline(verified(gated, func(in *Input) { in.Node.Labelled = true }), byRelease)
	worked.Node.Record.VerifiedTime, worked.Node.Record.LastTime = ago(50*time.Second), ago(50*time.Second)
	worked.Node.Record.Since, worked.Profile.VerificationDeadlineSeconds, worked.NeedsVerificationSince = ago(45*time.Second), 30, now.Add(-time.Hour)
	worked.Node.Record.TakenBack = &marks.TakenBack{Passes: []time.Time{*worked.Node.Record.VerifiedTime}}
	plan, _ = ask(t, worked, lacks)
	if plan.Change.Gate != gateOpen || plan.Change.Label == nil || *plan.Change.Label {
		t.Fatalf("with its label: %+v", plan)
	}
	worked.Node.Record, worked.Node.Gated, worked.Node.Labelled = plan.Change.Record, false, false
	if got := undone(worked, now); got != "" {
		t.Errorf("another writer took back the %s", got)
	}
	if p, _ := ask(t, worked, lacks); p.Step != StepNone || reasonOf(p.Condition) != marks.ReasonDeadlineExceeded {
		t.Errorf("released with a pass of before: %q, %+v", p.Step, p.Condition)
	}
}

// Admission did not miss a node that was released past its deadline.
func TestReleasedPastTheDeadlineIsNotBackfilled(t *testing.T) {
	in := given(ungated, func(in *Input) {
		in.Config.Admission.Backfill, in.Node.HasRecord, in.Node.Created = true, true, now.Add(-time.Minute)
		in.Node.Record = marks.Record{NodeUID: "u1", Released: ago(time.Second)}
	})
	if got := MissedTaints(&corev1.Node{}, in, now); got != nil {
		t.Errorf("%v", got)
	}
	in.Node.Record.Released = nil
	if got := MissedTaints(&corev1.Node{}, in, now); len(got) == 0 {
		t.Error("the case shows nothing")
	}
}
