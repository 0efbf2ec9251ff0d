package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func TestRecord(t *testing.T) {
	failed, exhausted := EventFailed.Name, EventFailed.Name+","+EventExhausted.Name
	reportless := func(o *workerpod.Observation) { o.Attempt.Result.Report = nil }
	otherFault := func(in *Input) { in.Node.Record.LastCheck = "api" }
	for name, tc := range map[string]struct {
		in                     Input
		attempts, inconclusive int32
		gate                   marks.Gate
		label                  *bool
		events                 string
		again                  bool
	}{
		"pass opens the gate":             {given(with(pod(1, ended(attempt.Passed)))), 0, 0, gateOpen, ptr.To(true), EventPassed.Name, false},
		"pass without a report":           {given(with(pod(1, ended(attempt.Passed), reportless))), 0, 0, gateOpen, ptr.To(true), EventPassed.Name + "," + EventReportMissing.Name, false},
		"pass without a gate":             {verified(unlabelled, with(pod(2, ended(attempt.Passed)))), 0, 0, gateKeep, ptr.To(true), EventPassed.Name, false},
		"pass keeps what it took":         {failing(2, with(pod(3, ended(attempt.Passed)))), 2, 0, gateOpen, ptr.To(true), EventPassed.Name, false},
		"failure spends":                  {failing(2, with(pod(3, ended(attempt.Failed)))), 3, 0, gateClose, ptr.To(false), failed, true},
		"the last failure exhausts":       {failing(4, with(pod(5, ended(attempt.Failed)))), 5, 0, gateClose, ptr.To(false), exhausted, true},
		"what only repeats is no event":   {failing(5, with(pod(6, ended(attempt.Failed)))), 5, 0, gateClose, ptr.To(false), "", true},
		"another fault is one":            {failing(5, otherFault, with(pod(6, ended(attempt.Failed)))), 5, 0, gateClose, ptr.To(false), failed, true},
		"inconclusive spends nothing":     {failing(2, with(pod(3, ended(attempt.Inconclusive)))), 2, 1, gateKeep, nil, EventInconclusive.Name, true},
		"the same again is no event":      {puzzling(3, with(pod(4, imageMissing))), 0, 4, gateKeep, nil, "", true},
		"a run begins after a pass":       {verified(unlabelled, func(in *Input) { in.Node.Record.Attempts, in.Node.Record.VerifiedTime = 4, nil }, with(pod(2, ended(attempt.Failed)))), 1, 0, gateClose, ptr.To(false), failed, true},
		"a run begins after a reboot":     {failing(4, rebootedTo("b2"), with(pod(5, func(o *workerpod.Observation) { o.Attempt.Basis.BootID = "b2" }, ended(attempt.Failed)))), 1, 0, gateClose, ptr.To(false), failed, true},
		"exhausted, never tried again":    {failing(4, exhaustedRetrySeconds(-1), with(pod(5, ended(attempt.Failed)))), 5, 0, gateClose, ptr.To(false), exhausted, false},
		"a lowered maxRetries":            {failing(4, func(in *Input) { in.Config.Reconciliation.MaxRetries = 2 }, with(pod(5, ended(attempt.Failed)))), 2, 0, gateClose, ptr.To(false), "", true},
		"a pass is told, however many":    {failing(5, with(pod(6, ended(attempt.Passed)))), 5, 0, gateOpen, ptr.To(true), EventPassed.Name, false},
		"a failure of an untainted node":  {given(ungated, verifyUntainted, with(pod(1, openGate, ended(attempt.Failed)))), 1, 0, gateClose, ptr.To(false), failed, true},
		"a control plane is not tainted":  {given(controlplane, with(pod(1, ended(attempt.Failed)))), 1, 0, gateKeep, ptr.To(false), failed, true},
		"inconclusive keeps it open":      {verified(unlabelled, with(pod(2, openGate, imageMissing))), 0, 1, gateKeep, nil, EventInconclusive.Name, true},
		"a forged count is only so large": {failing(1<<29, with(pod(1<<29+1, ended(attempt.Failed)))), 5, 0, gateClose, ptr.To(false), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, plan := recorded(t, tc.in, world{})
			if r.Attempts != tc.attempts || r.Inconclusive != tc.inconclusive {
				t.Errorf("%d spent, %d inconclusive; want %d, %d", r.Attempts, r.Inconclusive, tc.attempts, tc.inconclusive)
			}
			if plan.Change.Gate != tc.gate || ptr.Deref(plan.Change.Label, true) != ptr.Deref(tc.label, true) || (plan.Change.Label == nil) != (tc.label == nil) {
				t.Errorf("gate %v label %v, want %v %v", plan.Change.Gate, plan.Change.Label, tc.gate, tc.label)
			}
			if got := strings.Join(reasons(plan.Events), ","); got != tc.events {
				t.Errorf("events %q, want %q", got, tc.events)
			}
			if (r.NextAttemptTime != nil) != tc.again {
				t.Errorf("next attempt %v, want one: %v", r.NextAttemptTime, tc.again)
			}
			if r.NodeUID != "u1" || r.BootID != tc.in.Node.BootID || r.LastTime == nil || !r.LastTime.Equal(now) {
				t.Errorf("the record is for node %s boot %s at %v", r.NodeUID, r.BootID, r.LastTime)
			}
			if passed := r.LastOutcome == attempt.Passed; passed != (r.VerifiedTime != nil && r.VerifiedTime.Equal(now)) {
				t.Errorf("verified at %v", r.VerifiedTime)
			}
			if r.Probed || r.Deletion != nil || r.Held != "" {
				t.Errorf("left from before: %+v", r)
			}
		})
	}
}

// A new node has one first verdict in a run, however long it is tried.
func TestFirstVerdict(t *testing.T) {
	shared := func(failures int32) func(*Input) { return func(in *Input) { in.Node.Record.Shared = failures } }
	alone := world{} // there is no node to compare a failure with
	atBoot := func(b string) func(*workerpod.Observation) {
		return func(o *workerpod.Observation) { o.Attempt.Basis.BootID = b }
	}
	for name, tc := range map[string]struct {
		in    Input
		world world
		want  Verdict
	}{
		"a pass":                              {in: given(with(pod(1, ended(attempt.Passed)))), want: VerdictVerified},
		"a pass after failures":               {in: failing(4, with(pod(5, ended(attempt.Passed)))), want: VerdictVerified},
		"a failure":                           {in: failing(3, with(pod(4, ended(attempt.Failed))))},
		"the last failure":                    {in: failing(4, with(pod(5, ended(attempt.Failed)))), want: VerdictExhausted},
		"a failure after that":                {in: failing(5, with(pod(6, ended(attempt.Failed))))},
		"a pass after that":                   {in: failing(5, with(pod(6, ended(attempt.Passed))))},
		"the last failure of the next boot":   {in: failing(4, rebootedTo("b2"), func(in *Input) { in.Node.Record.BootID = "b2" }, with(pod(5, atBoot("b2"), ended(attempt.Failed)))), want: VerdictExhausted},
		"a pass of the next boot":             {in: failing(5, rebootedTo("b2"), with(pod(6, atBoot("b2"), ended(attempt.Passed)))), want: VerdictVerified},
		"the first failure of the next boot":  {in: failing(5, rebootedTo("b2"), with(pod(6, atBoot("b2"), ended(attempt.Failed))))},
		"nothing proved":                      {in: puzzling(9, with(pod(10, imageMissing)))},
		"a shared failure":                    {in: puzzling(3, deleting, shared(3), with(pod(4, ended(attempt.Failed)))), world: alone},
		"the last shared one":                 {in: puzzling(4, deleting, shared(4), with(pod(5, ended(attempt.Failed)))), world: alone, want: VerdictShared},
		"a shared one after that":             {in: puzzling(5, deleting, shared(5), with(pod(6, ended(attempt.Failed)))), world: alone},
		"a pass after shared ones":            {in: puzzling(5, deleting, shared(5), with(pod(6, ended(attempt.Passed))))},
		"after shared ones, nothing proved":   {in: puzzling(5, deleting, shared(5), with(pod(6, imageMissing)))},
		"maxRetries was lowered since":        {in: failing(6, deleting, with(pod(7, ended(attempt.Passed))))},
		"a pass of one that passed":           {in: verified(unlabelled, with(pod(2, ended(attempt.Passed))))},
		"the last failure of one that passed": {in: failing(4, verifiedOnce, with(pod(5, ended(attempt.Failed))))},
	} {
		if _, plan := recorded(t, tc.in, tc.world); plan.Recorded.Verdict != tc.want {
			t.Errorf("%s: verdict %q, want %q", name, plan.Recorded.Verdict, tc.want)
		}
	}
}

// Any configured taint gates a node. Only the taints of the node's own profile are put back.
func TestOnlyTheProfilesTaintsArePutBack(t *testing.T) {
	own := []marks.Taint{{Key: "gpu/unverified", Effect: "NoSchedule"}}
	profiled := func(in *Input) { in.Profile.Taints = own }
	for name, in := range map[string]Input{
		"failed":         given(profiled, with(pod(1, ended(attempt.Failed)))),
		"held":           failing(5, profiled, deleting, func(in *Input) { in.Node.DoNotDelete = true }),
		"its own fault":  verified(profiled, unlabelled, deleting, failedOnce, with(pod(3, openGate, ended(attempt.Failed), resultSeen(failedAt)))),
		"reverify.taint": verified(profiled, unlabelled, func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }),
		"deletion":       failing(5, profiled, deleting),
	} {
		w := deletable()
		w.probes = []workerpod.Observation{probe("m0", ended(attempt.Passed))}
		plan, _ := ask(t, in, w)
		if plan.Change.Gate != gateClose || !slices.Equal(plan.Change.GateTaints, own) {
			t.Errorf("%s: gate %v, closes with %v", name, plan.Change.Gate, plan.Change.GateTaints)
		}
	}
}

// A node whose record was lost keeps its protection from deletion.
func TestAnUnreadableRecordKeepsTheGuard(t *testing.T) {
	in := given(unreadable, with(pod(1, ended(attempt.Failed))))
	r, _ := recorded(t, in, world{})
	if r.VerifiedTime == nil || !r.VerifiedTime.Equal(in.Node.Created) || r.NodeUID != "u1" || !r.MayHaveVerified() {
		t.Fatalf("after the next attempt: %+v", r)
	}
	closed, _ := ask(t, given(unreadable, ungated, func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }), world{})
	if r := closed.Change.Record; closed.Change.Gate != gateClose || !r.MayHaveVerified() || r.NodeUID != "u1" {
		t.Errorf("reverify.taint: %+v", closed)
	}
	outage := given(unreadable, ungated, deleting, with(pod(1, openGate, ended(attempt.Failed))))
	if _, plan := recorded(t, outage, world{}); plan.Change.Gate != gateKeep {
		t.Errorf("a failed re-verification: %+v", plan)
	}
	exhausted := given(unreadable, deleting)
	for n := int32(1); n <= exhausted.Config.Reconciliation.MaxRetries; n++ {
		exhausted.Pods = []workerpod.Observation{pod(n, ended(attempt.Failed), resultSeen(failedAt))}
		passing := world{fleet: healthyNodes(2, ""), probes: []workerpod.Observation{probe("-m0", ended(attempt.Passed))}}
		exhausted.Node.Record, _ = recorded(t, exhausted, passing)
		exhausted.Node.RecordProblem, exhausted.Pods = "", nil
	}
	if plan, _ := ask(t, exhausted, deletable()); plan.Step != StepRecord || plan.Change.Record.Held != GuardNeverVerifiedOnly {
		t.Errorf("exhausted: %+v", plan)
	}
	if r, _ = recorded(t, given(unreadable, with(pod(1, ended(attempt.Passed)))), world{}); r.VerifiedTime == nil || !r.VerifiedTime.Equal(now) {
		t.Errorf("after a pass: %+v", r)
	}
}

// A repeated result is reported once, and not for as long as the node exists.
func TestAnExhaustedNodeIsNotAnEventAtEveryAttempt(t *testing.T) {
	in := failing(4, deleting, func(in *Input) { in.Node.DoNotDelete = true })
	events := 0
	for n := int32(5); n < 25; n++ {
		in.Pods = []workerpod.Observation{pod(n, ended(attempt.Failed))}
		passing := probe("m", resultSeen(now.Add(time.Second)), ended(attempt.Passed), resultSeen(now.Add(time.Second)))
		r, plan := recorded(t, in, world{probes: []workerpod.Observation{passing}})
		events += len(plan.Events)
		in.Node.Record, in.Pods = r, nil
		plan, _ = ask(t, in, deletable())
		events += len(plan.Events)
		if plan.Step == StepRecord {
			in.Node.Record = plan.Change.Record
		}
		plan, _ = ask(t, in, deletable())
		if plan.Step != StepNone || plan.RequeueAfter < 8*time.Minute || plan.RequeueAfter > 10*time.Minute {
			t.Fatalf("after attempt %d: %q, wait %s", n, plan.Step, plan.RequeueAfter)
		}
	}
	if events != 3 { // failed, exhausted, held
		t.Errorf("%d events", events)
	}
}

// Events about one attempt have the same key. An event has another key if the record was removed and attempts count
// from 1 again.
func TestEventKeys(t *testing.T) {
	in := given(with(pod(1, ended(attempt.Failed))))
	_, first := recorded(t, in, world{})
	_, again := recorded(t, in, world{})
	later := Next(in, Evidence{}, now.Add(time.Millisecond))
	if first.Events[0].Key != again.Events[0].Key || first.Events[0].Key == later.Events[0].Key {
		t.Errorf("keys %q, %q, %q", first.Events[0].Key, again.Events[0].Key, later.Events[0].Key)
	}
	held := failing(5, deleting, func(in *Input) { in.Node.DoNotDelete = true })
	one, _ := ask(t, held, deletable())
	held.Node.DoNotDelete, held.Config.NodeManagement.Remediation.DryRun = false, true
	other, _ := ask(t, held, deletable())
	if one.Events[0].Key == other.Events[0].Key {
		t.Errorf("two guards in one attempt: %q", one.Events[0].Key)
	}
}

func TestStartedIsAnEventOnceItLasts(t *testing.T) {
	if plan, _ := ask(t, given(with(pod(1))), world{}); len(plan.Events) != 0 {
		t.Errorf("%+v", plan.Events)
	}
	plan, _ := ask(t, given(with(pod(1, seenFor(ConditionDelay)))), world{})
	if len(plan.Events) != 1 || plan.Events[0].Reason != EventStarted || plan.Events[0].Key != "p1" {
		t.Errorf("%+v", plan.Events)
	}
}
