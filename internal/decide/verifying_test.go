package decide

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// recorded is what the plan records. It fails the test if the plan records nothing.
func recorded(t *testing.T, in Input, w world) (marks.Record, Plan) {
	t.Helper()
	plan, _ := ask(t, in, w)
	if plan.Step != StepRecord || plan.Recorded == nil {
		t.Fatalf("nothing is recorded: %+v", plan)
	}
	if r := plan.Change.Record; r.LastOutcome != plan.Recorded.Result.Outcome || r.Sequence != plan.Recorded.Number {
		t.Errorf("records %s of attempt %d, and counts %s of %d", r.LastOutcome, r.Sequence, plan.Recorded.Result.Outcome, plan.Recorded.Number)
	}
	return plan.Change.Record, plan
}

// A result counts only while the basis of its attempt still holds.
func TestSuperseded(t *testing.T) {
	for name, tc := range map[string]struct {
		in     Input
		reason string // empty: it counts
	}{
		"passed":                                  {given(with(pod(1, ended(attempt.Passed)))), ""},
		"failed":                                  {given(with(pod(1, ended(attempt.Failed)))), "Timeout"},
		"passed, other checks":                    {given(with(pod(1, otherChecks, ended(attempt.Passed)))), attempt.ReasonChecksChanged},
		"failed, other checks":                    {given(with(pod(1, otherChecks, ended(attempt.Failed)))), attempt.ReasonChecksChanged},
		"under way, other checks":                 {given(with(pod(1, otherChecks))), attempt.ReasonChecksChanged},
		"pending, other checks":                   {given(with(pod(1, otherChecks, pending))), attempt.ReasonChecksChanged},
		"past its deadline, other checks":         {given(with(pod(1, otherChecks, seenFor(time.Hour)))), attempt.ReasonChecksChanged},
		"other checks before registering":         {given(managed, with(pod(1, otherChecks, ended(attempt.Passed)))), attempt.ReasonChecksChanged},
		"inconclusive, other checks":              {given(with(pod(1, otherChecks, imageMissing))), attempt.ReasonImagePull},
		"passed before a reboot":                  {given(with(pod(1, fromBoot, ended(attempt.Passed)))), attempt.ReasonNodeRebooted},
		"failed before a reboot":                  {given(with(pod(1, fromBoot, ended(attempt.Failed)))), attempt.ReasonNodeRebooted},
		"past its deadline since before a reboot": {given(with(pod(1, fromBoot, seenFor(time.Hour)))), attempt.ReasonNodeRebooted},
		"before a reboot, onReboot off":           {given(notOnReboot, with(pod(1, fromBoot, ended(attempt.Passed)))), attempt.ReasonNodeRebooted},
		"the node reports no boot":                {given(rebootedTo(""), with(pod(1, fromBoot, ended(attempt.Passed)))), ""},
		"the pod knows no boot":                   {given(with(pod(1, func(o *workerpod.Observation) { o.Attempt.Basis.BootID = "" }, ended(attempt.Passed)))), ""},
		"passed before the taint":                 {verified(gated, with(pod(2, openGate, ended(attempt.Passed)))), attempt.ReasonGateReturned},
		"failed before the taint":                 {verified(gated, with(pod(2, openGate, ended(attempt.Failed)))), attempt.ReasonSharedFailure},
		"passed, and there is no gate":            {verified(unlabelled, with(pod(2, openGate, ended(attempt.Passed)))), ""},
		"passed, the gate was taken off":          {verified(unlabelled, with(pod(2, ended(attempt.Passed)))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, plan := recorded(t, tc.in, world{})
			if r.LastReason != tc.reason {
				t.Errorf("reason %q, want %q", r.LastReason, tc.reason)
			}
			if recordsSuperseded(r) {
				if r.LastOutcome != attempt.Inconclusive || r.Attempts != 0 || plan.Change.Gate != gateKeep {
					t.Errorf("%+v", plan.Change)
				}
			}
		})
	}
}

// Karpenter adds the NodeClaim's labels at registration, after the worker started; the worker ran another profile's
// checks. The present ones begin a run, after initialBackoffSeconds.
func TestOtherChecksAreInconclusiveAndTriedAgainSoon(t *testing.T) {
	for name, in := range map[string]Input{
		"new":                         given(with(pod(1, otherChecks, ended(attempt.Passed)))),
		"under way":                   given(with(pod(1, otherChecks))),
		"it pulls no image":           given(with(pod(1, otherChecks, imageMissing))),
		"after failures of these":     failing(4, with(pod(5, otherChecks, ended(attempt.Failed)))),
		"after failures of the other": failing(4, underOtherChecks, with(pod(5, otherChecks, ended(attempt.Failed)))),
		"after puzzles":               puzzling(9, with(pod(10, otherChecks, ended(attempt.Passed)))),
	} {
		r, plan := recorded(t, in, world{})
		if r.LastOutcome != attempt.Inconclusive || r.Checks != "c2" || r.Attempts != 0 || r.Inconclusive != 1 || plan.Change.Gate != gateKeep {
			t.Fatalf("%s: %+v", name, r)
		}
		if r.NextAttemptTime == nil || !r.NextAttemptTime.Equal(now.Add(time.Second)) {
			t.Errorf("%s: next attempt at %v", name, r.NextAttemptTime)
		}
		then := given(func(in *Input) { in.Node.Record, in.Node.HasRecord = r, true })
		plan, _ = ask(t, then, world{})
		if plan.Step != StepNone || plan.RequeueAfter != time.Second || reasonOf(plan.Condition) != marks.ReasonWorkerInconclusive || StateOf(then, now) != StateBackingOff {
			t.Errorf("%s: at once %+v, condition %+v", name, plan, plan.Condition)
		}
		later := now.Add(time.Second)
		if plan, _ = askAt(t, then, world{}, later); plan.Step != StepStart || plan.Number != r.Sequence+1 || StateOf(then, later) != StateWaiting {
			t.Errorf("%s: then %+v", name, plan)
		}
		// The label changes back. What failed before under those checks is no failure of this run.
		then.Checks = "c2"
		if spent := budgetOf(then); spent.attempts != 0 {
			t.Errorf("%s: %d failures count under the other checks", name, spent.attempts)
		}
	}
}

func underOtherChecks(in *Input) { in.Node.Record.Checks = "c2" }

// relabelled is a node whose labels selected another profile when it passed.
func relabelled(in *Input) {
	in.Config.Profiles = []config.Profile{{Name: "gpu"}}
	in.Node.Record.Profile = in.Config.Choice("gpu")
}

// A label that changes back and forth starts at most one worker in initialBackoffSeconds, whatever the results are.
func TestAChangingLabelStartsNoWorkerWithoutAPause(t *testing.T) {
	for name, in := range map[string]Input{
		"failed":            failing(2, underOtherChecks),
		"exhausted":         failing(5, underOtherChecks),
		"held":              failing(5, underOtherChecks, deleting, heldBy(GuardMaxUnhealthy)),
		"inconclusive":      puzzling(2, underOtherChecks),
		"passed, and gated": verified(gated, underOtherChecks, recordedAgo(0)),
		"passed":            verified(underOtherChecks, recordedAgo(0), relabelled),
	} {
		in.Config.Reconciliation.InitialBackoffSeconds = 7
		for wait, want := range map[time.Duration]Step{0: StepNone, 6900 * time.Millisecond: StepNone, 7 * time.Second: StepStart} {
			plan, _ := askAt(t, in, world{}, now.Add(wait))
			if plan.Step != want || want == StepNone && (plan.RequeueAfter <= 0 || plan.RequeueAfter > 7*time.Second-wait) {
				t.Errorf("%s, after %s: %q, looks again in %s", name, wait, plan.Step, plan.RequeueAfter)
			}
		}
	}
}

// A check's reason is the worker's own text. No such reason changes when the next attempt starts, or what it waits for.
func TestAReportedReasonIsNotOurs(t *testing.T) {
	for _, reason := range []string{attempt.ReasonChecksChanged, attempt.ReasonNodeRebooted, attempt.ReasonGateReturned} {
		for _, outcome := range []attempt.Outcome{attempt.Failed, attempt.Inconclusive} {
			last := pod(3, ended(outcome))
			last.Attempt.Result.Reason = reason
			r, _ := recorded(t, failing(2, with(last)), world{})
			if recordsSuperseded(r) || r.NextAttemptTime.Sub(now) != backoff(3) {
				t.Errorf("%s %s: next attempt in %s", outcome, reason, r.NextAttemptTime.Sub(now))
			}
		}
	}
}

// Only the controller's own observation times count. An observation contains no time from the clock of a kubelet, a
// scheduler or the API server, so it does not matter how wrong those clocks are. See also workerpod's
// TestObservationsHoldNoForeignTime.
func TestTimeoutsAreMeasuredOnOurOwnClock(t *testing.T) {
	start, run := 300*time.Second, 120*time.Second+deadlineGrace
	for name, tc := range map[string]struct {
		pod workerpod.Observation
		end time.Duration // from now
	}{
		"seen to run a second ago":            {pod(1, seenFor(time.Second)), run - time.Second},
		"pending for long, runs since now":    {pod(1, seenFor(time.Hour), func(o *workerpod.Observation) { o.Seen.Running = now }), run},
		"seen pending a second ago":           {pod(1, pending, seenFor(time.Second)), start - time.Second},
		"a successor counts from its own":     {pod(1, func(o *workerpod.Observation) { o.Seen = workerpod.FirstSeen{First: now, Running: now} }), run},
		"a clock that was set back meanwhile": {pod(1, seenFor(-time.Minute)), run + time.Minute},
	} {
		in := given(with(tc.pod))
		if got := podDeadline(in, tc.pod).Sub(now); got != tc.end {
			t.Errorf("%s: ends in %s, want %s", name, got, tc.end)
		}
		if plan := Next(in, Evidence{}, now); plan.Step != StepNone {
			t.Errorf("%s: %+v", name, plan)
		}
		if plan := Next(in, Evidence{}, now.Add(tc.end-1)); plan.Step != StepNone {
			t.Errorf("%s, just before its end: %+v", name, plan)
		}
		if plan := Next(in, Evidence{}, now.Add(tc.end)); plan.Need != NeedFresh {
			t.Errorf("%s, at its end, by the cache: %+v", name, plan)
		}
		if plan := Next(in, Evidence{Fresh: true, Warning: ptr.To("")}, now.Add(tc.end)); plan.Step != StepRecord {
			t.Errorf("%s, at its end: %+v", name, plan)
		}
	}
}

// The pod's own timeouts count, and not those of the present configuration.
func TestTimeoutsAreThePodsOwn(t *testing.T) {
	given10 := func(o *workerpod.Observation) {
		o.StartTimeout, o.InitTimeout, o.Timeout = 10*time.Second, 30*time.Second, 20*time.Second
	}
	// initSince is a pod that has been in its init phase since its creation. initEnded is a pod that left that phase at
	// the given age.
	initSince := func(age time.Duration) func(*workerpod.Observation) {
		return func(o *workerpod.Observation) {
			pending(o)
			seenFor(age)(o)
			o.InitContainer, o.Seen.Init = "burn-in", now.Add(-age)
		}
	}
	initEnded := func(age time.Duration) func(*workerpod.Observation) {
		return func(o *workerpod.Observation) { o.InitContainer, o.Seen.InitEnded = "", now.Add(-age) }
	}
	for name, tc := range map[string]struct {
		pod    workerpod.Observation
		reason string // empty: it goes on
		says   string
	}{
		"started too late":    {pod(1, given10, pending, seenFor(10*time.Second)), attempt.ReasonStartTimeout, "(10s)"},
		"may still start":     {pod(1, given10, pending, seenFor(9*time.Second)), "", ""},
		"ran too long":        {pod(1, given10, seenFor(25*time.Second)), attempt.ReasonTimeout, "(20s)"},
		"may still run":       {pod(1, given10, seenFor(24*time.Second)), "", ""},
		"longer than is now":  {pod(1, func(o *workerpod.Observation) { o.Timeout = time.Hour }, seenFor(30*time.Minute)), "", ""},
		"init, in its time":   {pod(1, given10, initSince(29*time.Second)), "", ""},
		"init, past it":       {pod(1, given10, initSince(30*time.Second)), attempt.ReasonInitTimeout, "init container burn-in did not end within worker.initTimeoutSeconds (30s)"},
		"after init, waits":   {pod(1, given10, initSince(39*time.Second), initEnded(9*time.Second)), "", ""},
		"after init, late":    {pod(1, given10, initSince(40*time.Second), initEnded(10*time.Second)), attempt.ReasonStartTimeout, "(10s)"},
		"does not say, init":  {pod(1, initSince(299*time.Second)), "", ""},
		"does not say, late":  {pod(1, initSince(300*time.Second)), attempt.ReasonInitTimeout, "(5m0s)"},
		"does not say, runs":  {pod(1, seenFor(125*time.Second)), attempt.ReasonTimeout, "(2m0s)"},
		"does not say, waits": {pod(1, pending, seenFor(299*time.Second)), "", ""},
	} {
		plan, _ := ask(t, given(with(tc.pod), burnsIn), world{})
		if plan.Change.Record.LastReason != tc.reason || !strings.Contains(plan.Change.Record.LastMessage, tc.says) {
			t.Errorf("%s: %q (%s), want %q %s", name, plan.Change.Record.LastReason, plan.Change.Record.LastMessage, tc.reason, tc.says)
		}
	}
}

// burnsIn gives the node's profile an init container.
func burnsIn(in *Input) {
	in.Config.Worker.InitContainers = []corev1.Container{{Name: "burn-in"}}
	in.Profile = in.Config.For(nil)
}

// A failure from before a reboot does not count for the boot after it.
func TestAFailureFromBeforeARebootIsNotCharged(t *testing.T) {
	in := failing(3, rebootedTo("b2"), with(pod(4, ended(attempt.Failed))))
	if r, plan := recorded(t, in, world{}); r.Attempts != 0 || r.LastReason != attempt.ReasonNodeRebooted || plan.Change.Gate == gateOpen {
		t.Errorf("%+v", r)
	}
	exhausted := failing(4, deleting, rebootedTo("b2"), with(pod(5, ended(attempt.Failed))))
	if r, _ := recorded(t, exhausted, deletable()); r.Attempts != 0 || r.LastOutcome != attempt.Inconclusive {
		t.Errorf("with deletion on: %+v", r)
	}
}

// The result of a worker from before a reboot is not an attempt of the run that begins with the reboot. The new run
// waits for the prerequisites, which the reboot reset, and has its full retry budget.
func TestARebootBeginsARunWhateverWasUnderWay(t *testing.T) {
	unmet := world{waits: []Unmet{{Kind: "pods", Message: "the CNI"}}}
	for name, last := range map[string]workerpod.Observation{
		"passed":        pod(4, ended(attempt.Passed)),
		"failed":        pod(4, ended(attempt.Failed)),
		"killed by it":  pod(4, ended(attempt.Inconclusive)),
		"never started": pod(4, pending, seenFor(time.Hour)),
		"other checks":  pod(4, otherChecks),
	} {
		in := failing(3, rebootedTo("b2"), with(last))
		r, _ := recorded(t, in, unmet)
		if r.BootID != "b1" || r.Attempts != 0 || r.LastOutcome != attempt.Inconclusive {
			t.Errorf("%s: %+v", name, r)
		}
		in.Node.Record, in.Pods = r, nil
		soon := now.Add(time.Second)
		if plan, _ := askAt(t, in, unmet, soon); plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWaitingForPrerequisites {
			t.Errorf("%s: then %+v", name, plan)
		}
		if plan, _ := askAt(t, in, world{}, soon); plan.Step != StepStart || plan.Number != 5 {
			t.Errorf("%s: once they hold %+v", name, plan)
		}
	}
}

func TestWhyAnAttemptWithoutAResultEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		in     Input
		reason string
	}{
		"timeout":       {given(with(pod(1, seenFor(time.Hour)))), attempt.ReasonTimeout},
		"start timeout": {given(with(pod(1, pending, seenFor(time.Hour)))), attempt.ReasonStartTimeout},
		"lost":          {given(lost, with(pod(1, seenFor(time.Hour)))), attempt.ReasonNodeLost},
		"lost, pending": {given(lost, with(pod(1, pending, seenFor(time.Hour)))), attempt.ReasonNodeLost},
		"deleted":       {given(with(pod(1, terminating, seenFor(time.Hour)))), attempt.ReasonPodDeleted},
		"vanished":      {given(func(in *Input) { in.Vanished.Number = 1 }), attempt.ReasonPodDeleted},
		"unschedulable": {given(with(pod(1, pending, unschedulable(time.Minute)))), attempt.ReasonUnschedulable},
	} {
		r, plan := recorded(t, tc.in, world{})
		if r.LastReason != tc.reason || r.LastMessage == "" {
			t.Errorf("%s: %q (%s), want %q", name, r.LastReason, r.LastMessage, tc.reason)
		}
		if spends := r.Attempts == 1; spends != (tc.reason == attempt.ReasonTimeout) || plan.Change.Gate == gateOpen {
			t.Errorf("%s: %+v", name, plan.Change)
		}
	}
}

// What a vanished attempt ran, and in which boot, is known. It does not count as one of the present boot, or the next
// attempt would not wait for prerequisites, and a new leader would not know that the node was rebooted.
func TestVanishedAttemptOfAnotherRun(t *testing.T) {
	for name, tc := range map[string]struct {
		basis attempt.Basis
		asks  bool
	}{
		"of this run":          {attempt.Basis{BootID: "b1", Checks: checks}, false},
		"of an earlier boot":   {attempt.Basis{BootID: "b0", Checks: checks}, true},
		"of other checks":      {attempt.Basis{BootID: "b1", Checks: "others"}, true},
		"whose pod names none": {attempt.Basis{}, false},
	} {
		in := failing(1, func(in *Input) { in.Vanished = attempt.Attempt{Number: 2, Basis: tc.basis} })
		r, _ := recorded(t, in, world{})
		if want := cmp.Or(tc.basis.BootID, "b1"); r.BootID != want || r.Sequence != 2 || r.LastReason != attempt.ReasonPodDeleted {
			t.Errorf("%s: %+v, want boot %s", name, r, want)
		}
		in.Node.Record, in.Vanished = r, attempt.Attempt{}
		_, asked := askAt(t, in, world{}, now.Add(time.Hour))
		if asks := slices.Contains(asked, NeedPrerequisites); asks != tc.asks {
			t.Errorf("%s: the next attempt asks for prerequisites: %t", name, asks)
		}
	}
}

// A refusal by the API server is reported to the operator, and does not count against the node.
func TestRefusedPodsAreRecordedAsInconclusive(t *testing.T) {
	plan := PodRefused(failing(2, due), 3, attempt.ReasonPodRefused, "namespaces \"workers\" not found\nmore", now)
	r := plan.Change.Record
	if plan.Step != StepRecord || r.Sequence != 3 || r.Attempts != 2 || r.Inconclusive != 1 || r.LastOutcome != attempt.Inconclusive ||
		r.LastReason != attempt.ReasonPodRefused || r.LastMessage != `namespaces "workers" not found more` {
		t.Errorf("%+v", r)
	}
	if plan.Change.Gate != gateKeep || plan.Change.Label != nil || len(plan.Events) != 1 || plan.Recorded == nil || plan.Recorded.Number != 3 {
		t.Errorf("%+v", plan)
	}
	in := failing(2)
	in.Node.Record = r
	plan, _ = ask(t, in, world{})
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWorkerInconclusive || !strings.Contains(plan.Condition.Message, "namespaces") || plan.RequeueAfter != backoff(3) {
		t.Errorf("then %+v", plan)
	}
	again := PodRefused(in, 4, attempt.ReasonPodRefused, "another text", now)
	if len(again.Events) != 0 {
		t.Errorf("the same refusal is another event: %+v", again.Events)
	}
}

// A pass from before the taint was put back does not remove that newer taint.
func TestAnOlderPassDoesNotOpenANewerGate(t *testing.T) {
	in := verified(gated, with(pod(2, openGate, ended(attempt.Passed))))
	r, plan := recorded(t, in, world{})
	if plan.Change.Gate != gateKeep || r.LastReason != attempt.ReasonGateReturned {
		t.Fatalf("%+v", plan.Change)
	}
	in.Node.Record, in.Pods = r, nil
	if plan, _ = askAt(t, in, world{}, now.Add(time.Second)); plan.Step != StepStart || plan.Number != 3 {
		t.Errorf("then %+v", plan)
	}
	in.Pods = []workerpod.Observation{pod(3, ended(attempt.Passed))}
	if _, plan = recorded(t, in, world{}); plan.Change.Gate != gateOpen {
		t.Errorf("the pass under the newer gate: %+v", plan.Change)
	}
	// A pass that is already recorded does not count for a taint that came back after it.
	if plan, _ = ask(t, verified(gated, with(pod(1, ended(attempt.Passed)))), world{}); plan.Step != StepStart || plan.Change.Gate == gateOpen {
		t.Errorf("%+v", plan)
	}
}

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
			if tc.reason == attempt.ReasonGateRemoved && (r.Attempts != 0 || r.NextAttemptTime == nil || r.Checks == checks && r.NextAttemptTime.Sub(now) != backoff(r.Inconclusive)) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Somebody removes the taint of a node without a record. That ends its verification, and no record starts another
// attempt.
func TestAnUntaintedNodeWithoutARecordIsLeftAlone(t *testing.T) {
	for name, p := range map[string]workerpod.Observation{"runs": pod(1), "passed": pod(1, ended(attempt.Passed))} {
		plan, _ := ask(t, given(ungated, with(p)), world{})
		if plan.Step != StepNone || len(plan.Delete) != 1 {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// An init container that an admission webhook injected may take as long as the worker's start, although the pod was
// created without a time for init containers.
func TestInjectedInitContainerHasTime(t *testing.T) {
	at := func(age time.Duration) Input {
		return given(with(pod(1, pending, seenFor(age), func(o *workerpod.Observation) { o.InitContainer, o.Seen.Init = "proxy", o.Seen.First })))
	}
	if plan, _ := ask(t, at(10*time.Second), world{}); plan.Step != StepNone {
		t.Errorf("after 10 s: %+v", plan.Change)
	}
	if r, _ := recorded(t, at(301*time.Second), world{}); r.LastReason != attempt.ReasonInitTimeout || !strings.Contains(r.LastMessage, "init container proxy") || !strings.Contains(r.LastMessage, "(5m0s)") {
		t.Errorf("record %+v", r)
	}
}
