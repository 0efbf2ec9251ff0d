package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// failedAt is when the failure of the nodes below was seen.
var failedAt = now.Add(-time.Second)

// failed is a node whose n-th attempt failed a second ago, with deletion on.
func failed(n int32, change ...func(*Input)) Input {
	return failing(0, append([]func(*Input){deleting, managed, func(in *Input) {
		in.Node.Record = marks.Record{NodeUID: "u1", BootID: "b1", Checks: checks, Sequence: n - 1}
		if n > 1 {
			in.Node.Record.LastOutcome, in.Node.Record.LastTime = attempt.Inconclusive, ago(time.Minute)
		}
	}, with(pod(n, ended(attempt.Failed), resultSeen(failedAt)))}, change...)...)
}

func TestAttribute(t *testing.T) {
	one := []workerpod.Observation{probe("pool-m0", ended(attempt.Inconclusive))}
	before := resultSeen(failedAt.Add(-time.Millisecond))
	own := subject("u1/1")
	for name, tc := range map[string]struct {
		probes  []workerpod.Observation
		fleet   []NodeSummary
		step    Step
		outcome attempt.Outcome
		held    string
		probeOn string // prefix of the node's name
	}{
		"asks for a probe in the pool":   {fleet: append(healthyNodes(3, "other"), healthyNodes(1, "pool")...), step: StepProbe, probeOn: "pool-"},
		"else anywhere":                  {fleet: healthyNodes(1, "other"), step: StepProbe, probeOn: "other-"},
		"never on itself":                {fleet: []NodeSummary{{Name: "n", UID: "u1", Pool: "pool", CanHostProbe: true}}, step: StepRecord, outcome: attempt.Inconclusive, held: GuardControlProbe},
		"no verified node":               {fleet: []NodeSummary{self("pool")}, step: StepRecord, outcome: attempt.Inconclusive, held: GuardControlProbe},
		"waits for the probe":            {probes: []workerpod.Observation{probe("pool-m0")}, fleet: healthyNodes(2, "pool"), step: StepNone},
		"waits for its own":              {probes: []workerpod.Observation{probe("pool-m0", own)}, fleet: healthyNodes(2, "pool"), step: StepNone},
		"the probe passed":               {probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}, fleet: healthyNodes(2, "pool"), step: StepRecord, outcome: attempt.Failed},
		"its own passed":                 {probes: []workerpod.Observation{probe("pool-m0", own, ended(attempt.Passed))}, fleet: healthyNodes(2, "pool"), step: StepRecord, outcome: attempt.Failed},
		"the probe failed":               {probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Failed))}, fleet: healthyNodes(2, "pool"), step: StepRecord, outcome: attempt.Inconclusive, held: GuardControlProbe},
		"one that ended before":          {probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed), before)}, fleet: healthyNodes(1, "pool"), step: StepProbe, probeOn: "pool-m0"},
		"one that ended as it failed":    {probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed), resultSeen(failedAt))}, fleet: healthyNodes(1, "pool"), step: StepProbe, probeOn: "pool-m0"},
		"an end that nobody saw come":    {probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed), unwitnessed)}, fleet: healthyNodes(1, "pool"), step: StepProbe, probeOn: "pool-m0"},
		"unless it was made for this":    {probes: []workerpod.Observation{probe("pool-m0", own, ended(attempt.Passed), unwitnessed)}, fleet: healthyNodes(1, "pool"), step: StepRecord, outcome: attempt.Failed},
		"of the attempt's earlier run":   {probes: []workerpod.Observation{probe("pool-m0", own, ended(attempt.Passed), before)}, fleet: healthyNodes(1, "pool"), step: StepProbe, probeOn: "pool-m0"},
		"other checks say nothing":       {probes: []workerpod.Observation{probe("pool-m0", otherChecks, ended(attempt.Passed))}, fleet: healthyNodes(1, "pool"), step: StepProbe, probeOn: "pool-m0"},
		"nor are they waited for":        {probes: []workerpod.Observation{probe("pool-m0", otherChecks)}, fleet: healthyNodes(1, "pool"), step: StepProbe, probeOn: "pool-m0"},
		"an inconclusive probe, another": {probes: one, fleet: healthyNodes(2, "pool"), step: StepProbe, probeOn: "pool-m1"},
		"all probes inconclusive":        {probes: one, fleet: healthyNodes(1, "pool"), step: StepRecord, outcome: attempt.Inconclusive, held: GuardControlProbe},
		"one failing outweighs a pass": {probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed)), probe("pool-m1", ended(attempt.Failed))}, fleet: healthyNodes(2, "pool"),
			step: StepRecord, outcome: attempt.Inconclusive, held: GuardControlProbe},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, failed(1), world{probes: tc.probes, fleet: tc.fleet})
			if plan.Step != tc.step {
				t.Fatalf("step %q, want %q: %+v", plan.Step, tc.step, plan)
			}
			if !strings.HasPrefix(plan.Probe.On.Name, tc.probeOn) || tc.step == StepProbe && (plan.Probe.Subject != "u1/1" || plan.Probe.Group == "") {
				t.Errorf("probe %+v, want one on %q", plan.Probe, tc.probeOn)
			}
			if tc.step == StepRecord {
				r := plan.Change.Record
				if r.LastOutcome != tc.outcome || r.Held != tc.held || (r.Attempts == 1) != (tc.outcome == attempt.Failed) || r.Probed != (tc.outcome == attempt.Failed) {
					t.Errorf("records %s held by %q with %d spent, want %s %q", r.LastOutcome, r.Held, r.Attempts, tc.outcome, tc.held)
				}
				return
			}
			if reasonOf(plan.Condition) != marks.ReasonVerifying || plan.RequeueAfter <= 0 {
				t.Errorf("says %+v, looks again in %s", plan.Condition, plan.RequeueAfter)
			}
		})
	}
}

func unwitnessed(o *workerpod.Observation) { o.Seen.Witnessed = false }

// A probe ran at the same time as the attempt if this controller observed the attempt's failure before the probe's end.
func TestAProbeMustEndAfterTheFailure(t *testing.T) {
	for _, d := range []time.Duration{-time.Hour, -time.Nanosecond, 0, time.Nanosecond, time.Hour} {
		passed := probe("m", ended(attempt.Passed), resultSeen(failedAt.Add(d)))
		plan, _ := ask(t, failed(1), world{probes: []workerpod.Observation{passed}, fleet: healthyNodes(1, "pool")})
		if held := plan.Change.Record.LastOutcome == attempt.Failed; held != (d > 0) {
			t.Errorf("a probe that passed %s after the failure: counted against the node %v", d, held)
		}
		failing := probe("m", ended(attempt.Failed), resultSeen(failedAt.Add(d)))
		plan, _ = ask(t, failed(1), world{probes: []workerpod.Observation{failing}, fleet: healthyNodes(1, "pool")})
		if shared := plan.Change.Record.Held == GuardControlProbe; shared != (d > 0) {
			t.Errorf("a probe that failed %s after the failure: a shared outage %v", d, shared)
		}
	}
	// A worker that hangs has failed when its time was over, however late that is observed.
	hanging := pod(1, seenFor(3*time.Minute))
	in := failed(1, with(hanging))
	for d, want := range map[time.Duration]Step{-time.Second: StepProbe, time.Second: StepRecord} {
		passed := probe("m", ended(attempt.Passed), resultSeen(podDeadline(in, hanging).Add(d)))
		if plan, _ := ask(t, in, world{probes: []workerpod.Observation{passed}, fleet: healthyNodes(1, "pool")}); plan.Step != want {
			t.Errorf("a worker that hangs, a probe that passed %s after its end: %q", d, plan.Step)
		}
	}
}

// A control node has the node's architecture, if one has. In the pool comes first, and the zone last.
func TestTheControlIsOfTheSameArchitecture(t *testing.T) {
	onARM := failed(1, func(in *Input) { in.Node.Arch, in.Node.Zone = "arm64", "a" })
	one := func(name, pool, arch, zone string) NodeSummary {
		return NodeSummary{Name: name, UID: name, Pool: pool, Arch: arch, Zone: zone, CanHostProbe: true}
	}
	near, same, elsewhere := one("near", "pool", "amd64", "a"), one("same", "pool", "arm64", "b"), one("else", "other", "arm64", "a")
	unknown := one("unknown", "pool", "", "a")
	for want, fleet := range map[string][]NodeSummary{
		"same":    {near, same, elsewhere, unknown},
		"near":    {near, elsewhere},
		"unknown": {elsewhere, unknown},
		"else":    {one("x86", "other", "amd64", "a"), elsewhere},
	} {
		if plan, _ := ask(t, onARM, world{fleet: fleet}); plan.Step != StepProbe || plan.Probe.On.Name != want {
			t.Errorf("on %q, want %q", plan.Probe.On.Name, want)
		}
	}
	if m := SummaryOf(onARM); m.Arch != "arm64" {
		t.Errorf("%+v", m)
	}
}

// Checks that are meant for another profile's nodes prove nothing.
func TestTheControlIsOfTheSameProfile(t *testing.T) {
	in := failed(1, func(in *Input) { in.Profile.Profile = "gpu" })
	fleet := append(healthyNodes(3, "pool"), healthyNodes(1, "other")...)
	fleet[3].Profile = "gpu"
	if plan, _ := ask(t, in, world{fleet: fleet}); plan.Step != StepProbe || plan.Probe.On.Name != "other-m0" {
		t.Errorf("%+v", plan)
	}
	plan, _ := ask(t, in, world{fleet: fleet[:3]})
	if r := plan.Change.Record; plan.Step != StepRecord || r.Held != GuardControlProbe || !strings.Contains(r.HeldMessage, "no other verified node of the same profile") {
		t.Errorf("%+v", plan)
	}
	if ProbeGroup(in) == ProbeGroup(failed(1)) {
		t.Error("failures of two profiles have one probe between them")
	}
}

// After each inconclusive probe, another node gets one. After maxProbes of them, the failed attempt is recorded as
// inconclusive.
func TestProbesThatProveNothingAreLimited(t *testing.T) {
	var probes []workerpod.Observation
	fleet := healthyNodes(10, "pool")
	for n := range maxProbes {
		plan, _ := ask(t, failed(1), world{probes: probes, fleet: fleet})
		if plan.Step != StepProbe || slices.ContainsFunc(probes, func(p workerpod.Observation) bool { return p.Node == plan.Probe.On.Name }) {
			t.Fatalf("after %d: %+v", n, plan)
		}
		probes = append(probes, probe(plan.Probe.On.Name, subject(plan.Probe.Subject), imageMissing))
	}
	r, plan := recorded(t, failed(1), world{probes: probes, fleet: fleet})
	if r.LastOutcome != attempt.Inconclusive || r.Held != GuardControlProbe || !strings.Contains(r.HeldMessage, fmt.Sprint(maxProbes)) {
		t.Errorf("%+v", plan)
	}
}

// A probe that kube-scheduler has reported as unschedulable for ten seconds is inconclusive.
func TestAProbeWithoutRoomIsGivenUp(t *testing.T) {
	noRoom := func(on string, age time.Duration) workerpod.Observation {
		return probe(on, subject("u1/1"), pending, seenFor(age), unschedulable(age))
	}
	fleet := healthyNodes(2, "pool")
	if plan, _ := ask(t, failed(1), world{probes: []workerpod.Observation{noRoom("pool-m0", 9*time.Second)}, fleet: fleet}); plan.Step != StepNone || plan.RequeueAfter > probeRetry {
		t.Errorf("before: %+v", plan)
	}
	gone := []workerpod.Observation{noRoom("pool-m0", unschedulableFor)}
	if plan, _ := ask(t, failed(1), world{probes: gone, fleet: fleet}); plan.Step != StepProbe || plan.Probe.On.Name != "pool-m1" {
		t.Errorf("after: %+v", plan)
	}
	if r, _ := recorded(t, failed(1), world{probes: gone, fleet: fleet[:1]}); r.Held != GuardControlProbe {
		t.Errorf("and there is no other node: %+v", r)
	}
	for age, deletes := range map[time.Duration]bool{39 * time.Second: false, 40 * time.Second: true} {
		if plan, _ := ask(t, verified(with(noRoom("n", age))), world{}); (len(plan.Delete) == 1) != deletes {
			t.Errorf("after %s: deletes %v", age, names(plan.Delete))
		}
	}
}

// The failed attempt is recorded whatever the results of the probes are, and there are few probes.
func TestAFailedAttemptIsRecordedWhateverItsProbesDo(t *testing.T) {
	for name, become := range map[string]func(*workerpod.Observation){
		"no room": func(o *workerpod.Observation) {
			pending(o)
			o.Unschedulable, o.Seen.Unschedulable = "no room", o.Seen.First
		},
		"never start":      pending,
		"hang":             func(*workerpod.Observation) {},
		"no image":         func(o *workerpod.Observation) { imageMissing(o); o.Seen.Result = o.Seen.First },
		"are taken away":   func(o *workerpod.Observation) { o.Purpose = "" },
		"wait for a slot":  nil,
		"cannot be killed": terminating,
	} {
		for _, nodes := range []int{1, 2, 10} {
			w := world{fleet: healthyNodes(nodes, "pool"), full: become == nil}
			made, taken := 0, time.Duration(-1)
			for d := time.Second; d < 20*time.Minute && taken < 0; d += time.Second {
				at := now.Add(d)
				w.probes = slices.DeleteFunc(w.probes, func(p workerpod.Observation) bool {
					control, _ := askAt(t, verified(with(p)), world{}, at)
					return p.Purpose == "" || len(control.Delete) > 0
				})
				plan, _ := askAt(t, failed(1), w, at)
				switch plan.Step {
				case StepRecord:
					if taken = d; plan.Recorded.Result.Outcome != attempt.Inconclusive {
						t.Errorf("%s: %+v", name, plan.Recorded)
					}
				case StepProbe:
					p := probe(plan.Probe.On.Name, subject(plan.Probe.Subject), func(o *workerpod.Observation) { o.Seen = workerpod.FirstSeen{First: at, Running: at} }, become)
					w.probes, made = append(w.probes, p), made+1
				case StepNone:
					if plan.Condition == nil || plan.Condition.Status != "Unknown" {
						t.Fatalf("%s: says %+v meanwhile", name, plan.Condition)
					}
				}
			}
			if taken < 0 || taken > maxAttemptDuration(failed(1)) || made > maxProbes+1 && name != "are taken away" {
				t.Errorf("%s, %d nodes: recorded after %s and %d probes", name, nodes, taken, made)
			}
		}
	}
}

// A probe that the API server refuses is not requested again and again.
func TestARefusedProbeIsRecorded(t *testing.T) {
	r, plan := recorded(t, failed(1), world{fleet: healthyNodes(3, "pool"), probeRefused: "quota"})
	if r.Held != GuardControlProbe || !strings.Contains(r.HeldMessage, "quota") || len(plan.Events) != 1 || plan.Events[0].Reason != EventHeld {
		t.Errorf("%+v", plan)
	}
	waiting, _ := ask(t, failed(1), world{probes: []workerpod.Observation{probe("pool-m0")}, probeRefused: "quota"})
	if waiting.Step != StepNone {
		t.Errorf("while another one is under way: %+v", waiting)
	}
}

// A probe occupies a node like any other worker.
func TestAProbeNeedsASlot(t *testing.T) {
	plan, asked := ask(t, failed(1), world{fleet: healthyNodes(1, "pool"), full: true})
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWaitingForSlot || !slices.Contains(asked, NeedSlot) {
		t.Errorf("%+v, asked for %v", plan, asked)
	}
}

func TestTheEndOfAnOutageIsNotHeldAgainstANode(t *testing.T) {
	passing := world{probes: []workerpod.Observation{probe("m", ended(attempt.Passed))}}
	in := failed(2, heldBy(GuardControlProbe))
	r, _ := recorded(t, in, passing)
	if r.Attempts != 0 || r.LastOutcome != attempt.Inconclusive || r.Held != "" || r.NextAttemptTime == nil {
		t.Errorf("the first failure after it: %+v", r)
	}
	if r, _ = recorded(t, failed(2), passing); r.Attempts != 1 || !r.Probed {
		t.Errorf("the next one: %+v", r)
	}
}

func TestASharedOutageIsOneEvent(t *testing.T) {
	r, plan := recorded(t, failed(2), world{})
	if len(plan.Events) != 1 || plan.Events[0].Reason != EventHeld || plan.Target.Kind != "NodeClaim" {
		t.Errorf("%+v", plan)
	}
	in := failed(3)
	in.Node.Record = r
	if _, plan = recorded(t, in, world{}); len(plan.Events) != 0 {
		t.Errorf("said again: %+v", plan.Events)
	}
}

// A shared outage leaves the gate as it is.
func TestASharedOutageChangesNoGate(t *testing.T) {
	if _, plan := recorded(t, failed(1), world{}); plan.Change.Gate != gateKeep || plan.Change.Label != nil {
		t.Errorf("%+v", plan.Change)
	}
}

func TestControlProbeRotates(t *testing.T) {
	seen := map[string]bool{}
	for n := range int32(20) {
		plan, _ := ask(t, failed(n+1), world{fleet: healthyNodes(5, "pool")})
		seen[plan.Probe.On.Name] = true
	}
	if len(seen) < 3 {
		t.Errorf("20 attempts probed on %d of 5 nodes", len(seen))
	}
}

func TestProbesGoOnceTheyServedTheirTime(t *testing.T) {
	kept := resultSeen(now.Add(time.Second - probeKeptFor))
	for name, tc := range map[string]struct {
		probe   workerpod.Observation
		deletes bool
		wait    time.Duration
	}{
		"under way":         {probe("n"), false, 122 * time.Second},
		"past its deadline": {probe("n", seenFor(125*time.Second)), true, 0},
		"never started":     {probe("n", pending, seenFor(300*time.Second)), true, 0},
		"ended":             {probe("n", ended(attempt.Passed), kept), false, time.Second},
		"ended for long":    {probe("n", ended(attempt.Passed), resultSeen(now.Add(-probeKeptFor))), true, 0},
		"on its way out":    {probe("n", ended(attempt.Passed), resultSeen(now.Add(-probeKeptFor)), terminating), false, 0},
		"no image for now":  {probe("n", imageMissing, kept), false, time.Second},
	} {
		plan, asked := ask(t, verified(with(tc.probe)), world{})
		if deleted := len(plan.Delete) == 1; deleted != tc.deletes || plan.RequeueAfter != tc.wait || len(asked) > 0 {
			t.Errorf("%s: deletes %v, looks again in %s, asked for %v", name, names(plan.Delete), plan.RequeueAfter, asked)
		}
	}
}

// shownEnded is a worker whose first observation showed that it had ended.
func shownEnded(o *workerpod.Observation) { o.Seen.UnderWay, o.Seen.Witnessed = false, false }

// A failure whose time no controller observed is not compared with a probe that runs now.
func TestFailureThatNobodySaw(t *testing.T) {
	passing := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}}
	own := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", subject("u1/1"), ended(attempt.Passed), unwitnessed)}}
	ran := with(pod(1, ended(attempt.Failed), resultSeen(failedAt), shownEnded))
	for name, tc := range map[string]struct {
		in     Input
		w      world
		reason string
		spent  int32
	}{
		"seen to come":                      {failed(1), passing, "Timeout", 1},
		"nobody saw it":                     {failed(1, ran), passing, attempt.ReasonFailureUnseen, 0},
		"and there is no verified node":     {failed(1, ran), world{}, attempt.ReasonFailureUnseen, 0},
		"an earlier leader saw it":          {failed(1, ran), own, "Timeout", 1},
		"no probe is needed":                {failed(1, ran, noProbe), passing, attempt.ReasonFailureUnseen, 0},
		"deletion is off":                   {given(ran), passing, attempt.ReasonFailureUnseen, 0},
		"it hangs, and its time is over":    {failed(1, with(pod(1, seenFor(1<<40), shownEnded))), passing, attempt.ReasonTimeout, 1},
		"a check's reason of the same name": {failed(1, with(pod(1, ended(attempt.Failed), resultSeen(failedAt), reported(attempt.ReasonFailureUnseen)))), passing, attempt.ReasonFailureUnseen, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, plan := recorded(t, tc.in, tc.w)
			if r.LastReason != tc.reason || r.Attempts != tc.spent || (r.LastOutcome == attempt.Failed) != (tc.spent > 0) {
				t.Errorf("%s %s, %d spent; want %s, %d", r.LastOutcome, r.LastReason, r.Attempts, tc.reason, tc.spent)
			}
			if tc.spent == 0 && (r.LastCheck != "" || !strings.Contains(r.LastMessage, "check dns: Timeout: no answer") || r.Held != "" || r.NextAttemptTime == nil || reasons(plan.Events)[0] != EventInconclusive.Name) {
				t.Errorf("%+v, events %v", r, plan.Events)
			}
		})
	}
}

func reported(reason string) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) { o.Attempt.Result.Reason = reason }
}

// A failure whose time nobody saw counts against no node, however often, and does not undo what was counted. The next
// one that is seen counts.
func TestFailuresThatNobodySawCountForNothing(t *testing.T) {
	passing := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}}
	in := failing(3, deleting, managed)
	spent := in.Node.Record.Attempts
	for range 10 {
		n := in.Node.Record.Sequence + 1
		in.Pods = []workerpod.Observation{pod(n, ended(attempt.Failed), resultSeen(failedAt), shownEnded)}
		r, _ := recorded(t, in, passing)
		if r.Attempts != spent || r.LastReason != attempt.ReasonFailureUnseen || r.Sequence != n {
			t.Fatalf("attempt %d: %+v", n, r)
		}
		in.Node.Record = r
	}
	in.Pods = []workerpod.Observation{pod(in.Node.Record.Sequence+1, ended(attempt.Failed), resultSeen(failedAt))}
	if r, _ := recorded(t, in, passing); r.Attempts != spent+1 || r.Inconclusive != 10 || !r.Probed {
		t.Errorf("one that was seen: %+v", r)
	}
}

// The next failure after a shared outage is inconclusive as well. A failure in between that nobody observed does not
// end the outage.
func TestAFailureThatNobodySawEndsNoOutage(t *testing.T) {
	r, _ := recorded(t, failed(2, heldBy(GuardControlProbe), with(pod(2, ended(attempt.Failed), resultSeen(failedAt), shownEnded))), world{})
	if r.LastReason != attempt.ReasonFailureUnseen || r.Held != GuardControlProbe {
		t.Errorf("%+v", r)
	}
}
