package decide

import (
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// byItself makes a process on the node verify it. The process has not run an attempt yet.
func byItself(in *Input) { in.LocalWorker = &LocalWorker{} }

// ran is a process that runs, or has run, the attempt that the pod would have run.
func ran(pod workerpod.Observation) func(*Input) {
	return func(in *Input) { in.LocalWorker = &LocalWorker{Attempt: pod.Attempt, Began: pod.Seen.Running} }
}

// A process on the node gets the same decisions as a controller with a pod. Each case compares both.
func TestAProcessOnTheNodeIsDecidedLikeAPod(t *testing.T) {
	longAgo := func(in *Input) { in.Node.Record.LastTime = ago(time.Hour) }
	for name, tc := range map[string]struct {
		given func(change ...func(*Input)) Input
		pod   *workerpod.Observation
	}{
		"nothing yet":      {given, nil},
		"between attempts": {func(c ...func(*Input)) Input { return failing(2, c...) }, nil},
		"the next is due":  {func(c ...func(*Input)) Input { return failing(2, append(c, longAgo)...) }, nil},
		"exhausted":        {func(c ...func(*Input)) Input { return failing(5, c...) }, nil},
		"verified":         {verified, nil},
		"the node is lost": {func(c ...func(*Input)) Input { return given(append(c, lost)...) }, nil},
		"passed":           {given, new(pod(1, ended(attempt.Passed)))},
		"failed":           {given, new(pod(1, ended(attempt.Failed)))},
		"failed the last":  {func(c ...func(*Input)) Input { return failing(4, c...) }, new(pod(5, ended(attempt.Failed)))},
		"inconclusive":     {given, new(pod(1, ended(attempt.Inconclusive)))},
		"rebooted":         {given, new(pod(1, fromBoot, ended(attempt.Passed)))},
		"other checks":     {given, new(pod(1, otherChecks, ended(attempt.Passed)))},
		"gate came back":   {given, new(pod(1, openGate, ended(attempt.Passed)))},
		"recorded already": {func(c ...func(*Input)) Input { return failing(2, c...) }, new(pod(2, ended(attempt.Failed)))},
		"not registered":   {func(c ...func(*Input)) Input { return given(append(c, managed)...) }, new(pod(1, ended(attempt.Passed)))},
	} {
		t.Run(name, func(t *testing.T) {
			changePod, changeSelf := []func(*Input){}, []func(*Input){byItself}
			if tc.pod != nil {
				changePod, changeSelf = append(changePod, with(*tc.pod)), append(changeSelf, ran(*tc.pod))
			}
			byPod, _ := ask(t, tc.given(changePod...), world{})
			bySelf, _ := ask(t, tc.given(changeSelf...), world{})
			if bySelf.Step != byPod.Step || bySelf.Number != byPod.Number || bySelf.RequeueAfter != byPod.RequeueAfter || reasonOf(bySelf.Condition) != reasonOf(byPod.Condition) {
				t.Errorf("by itself %+v\nby a pod  %+v", bySelf, byPod)
			}
			one, other := marks.Change{Record: bySelf.Change.Record, Gate: bySelf.Change.Gate, Label: bySelf.Change.Label}, marks.Change{Record: byPod.Change.Record, Gate: byPod.Change.Gate, Label: byPod.Change.Label}
			if one.Record.Encode() != other.Record.Encode() || one.Gate != other.Gate || (one.Label == nil) != (other.Label == nil) || one.Label != nil && *one.Label != *other.Label {
				t.Errorf("by itself %+v\nby a pod  %+v", one, other)
			}
		})
	}
}

// While the process runs the checks, the node's condition says so, whatever it said before.
func TestAProcessUnderWay(t *testing.T) {
	running := pod(3)
	plan, asked := ask(t, failing(2, ran(running)), world{})
	if plan.Step != StepNone || len(asked) != 0 || reasonOf(plan.Condition) != marks.ReasonVerifying || plan.Condition.Since != running.Seen.Running {
		t.Errorf("%+v, asked for %v", plan, asked)
	}
	if want := "The node's own pod runs the checks, attempt 3; previous result: check dns: Timeout: no answer"; plan.Condition.Message != want {
		t.Errorf("says %q, want %q", plan.Condition.Message, want)
	}
}

// A verified label that was added by hand removes the taints, and nothing else. The record keeps the result of the
// checks.
func TestALabelByHandReleases(t *testing.T) {
	labelled := func(in *Input) { in.Node.Labelled = true }
	released := func(in *Input) { in.LocalWorker.Released = true }
	for name, tc := range map[string]struct {
		in     Input
		forced bool
	}{
		"before any attempt":        {given(byItself, labelled), true},
		"under way":                 {given(ran(pod(1)), labelled), true},
		"after failures":            {failing(5, byItself, labelled), true},
		"verified before":           {verified(byItself, gated), true},
		"not gated":                 {verified(byItself), false},
		"not labelled":              {given(byItself), false},
		"a controller":              {given(labelled), false},
		"opted out":                 {given(byItself, labelled, skipped), false},
		"not selected":              {given(byItself, labelled, unselected), false},
		"by the process, and again": {verified(byItself, gated, released), false},
	} {
		plan, _ := ask(t, tc.in, world{})
		if forced := plan.Step == StepRecord && plan.Change.KeepRecord && plan.Change.Gate == gateOpen && plan.Change.Label == nil; forced != tc.forced {
			t.Errorf("%s: %+v", name, plan)
		}
		if tc.forced && plan.Condition != nil {
			t.Errorf("%s: says %+v", name, plan.Condition)
		}
	}
}

// The condition that a node will have once it is released is known before the release, and only for a pass.
func TestNextCondition(t *testing.T) {
	for outcome, want := range map[attempt.Outcome]string{attempt.Passed: marks.ReasonChecksPassed, attempt.Failed: "", attempt.Inconclusive: ""} {
		in := given(ran(pod(1, ended(outcome))))
		plan, _ := ask(t, in, world{})
		if got := reasonOf(plan.NextCondition(in)); got != want {
			t.Errorf("%s: %q, want %q", outcome, got, want)
		}
		if outcome != attempt.Passed {
			continue
		}
		in.Node.Record, in.Node.Gated, in.Node.Labelled, in.Node.HasRecord = plan.Change.Record, false, true, true
		after, _ := ask(t, in, world{})
		if *after.Condition != *plan.NextCondition(in) {
			t.Errorf("says %+v, and then %+v", plan.NextCondition(in), after.Condition)
		}
	}
}

// In DaemonSet mode, a control-plane node is verified and labelled, because the pod would otherwise wait on it forever.
// It is never tainted. With a controller, it is left alone.
func TestAControlPlaneNodeByItself(t *testing.T) {
	if plan, _ := ask(t, given(controlplane, ungated, verifyUntainted, byItself), world{}); plan.Step != StepStart {
		t.Errorf("it is not verified: %+v", plan)
	}
	passes := given(controlplane, ungated, verifyUntainted, ran(pod(1, openGate, ended(attempt.Passed))))
	if plan, _ := ask(t, passes, world{}); plan.Change.Label == nil || !*plan.Change.Label {
		t.Errorf("it passed: %+v", plan.Change)
	}
	fails := given(controlplane, ungated, verifyUntainted, ran(pod(1, openGate, ended(attempt.Failed))))
	if plan, _ := ask(t, fails, world{}); plan.Recorded == nil || plan.Change.Gate == gateClose {
		t.Errorf("it failed: %+v", plan)
	}
	worker := fails
	worker.LocalWorker = nil
	if plan, _ := ask(t, worker, world{}); plan.Step != StepNone {
		t.Errorf("with a controller: %+v", plan)
	}
}
