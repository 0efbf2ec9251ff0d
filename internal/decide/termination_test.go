package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// endingFor is a worker whose deletion, with a grace period of 5 s, was first observed at the given age. Its container
// runs.
func endingFor(age time.Duration) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		o.Terminating, o.HasRunningContainer, o.Grace, o.Seen.Terminating = true, true, 5*time.Second, now.Add(-age)
	}
}

func neverStarted(o *workerpod.Observation) { pending(o) }
func notRunning(o *workerpod.Observation)   { o.HasRunningContainer = false }

func finalized(o *workerpod.Observation) { o.Finalizers = []string{"example.com/keep"} }

func notReady(in *Input) { in.Node.Ready = false }

func notReadySeen(age time.Duration) func(*Input) {
	return func(in *Input) { in.NotReadySeen = now.Add(-age) }
}

// stuckBefore is a node whose record says that its worker 1 could not be ended, recorded at the given age.
func stuckBefore(age time.Duration) Input {
	return failing(5, recordedAgo(age), func(in *Input) {
		r := &in.Node.Record
		r.Sequence, r.LastCheck, r.LastReason = 2, "", attempt.ReasonWorkerStuck
		r.LastMessage = "worker verify-n-1 does not end"
	})
}

// A terminating pod that never started is deleted without grace a minute after its grace period, on a fresh read,
// whatever the state of its node. A pod with a running container is not, and neither is a pod whose deletion was not
// observed.
func TestForce(t *testing.T) {
	const over = 65 * time.Second
	gone := func(age time.Duration, change ...func(*workerpod.Observation)) func(*Input) {
		return with(pod(1, append([]func(*workerpod.Observation){neverStarted, endingFor(age), notRunning}, change...)...))
	}
	longer := func(o *workerpod.Observation) { o.Grace = time.Hour }
	unoccupied := func(o *workerpod.Observation) { o.Occupies = false }
	initRuns := func(o *workerpod.Observation) { o.HasRunningContainer = true }
	for name, tc := range map[string]struct {
		in     Input
		forced bool
		wait   time.Duration // where it is not over yet
	}{
		"over":                     {in: puzzling(1, gone(over)), forced: true},
		"not over":                 {in: puzzling(5, gone(over-time.Second)), wait: time.Second},
		"node not Ready":           {in: puzzling(1, notReady, gone(over)), forced: true},
		"node lost":                {in: puzzling(1, lost, gone(over)), forced: true},
		"it has a result":          {in: puzzling(1, gone(over, imageMissing)), forced: true},
		"a control probe":          {in: verified(with(probe("n", endingFor(over), neverStarted, notRunning))), forced: true},
		"of a verified node":       {in: verified(with(pod(2, endingFor(over), neverStarted, notRunning))), forced: true},
		"its container runs":       {in: puzzling(5, with(pod(1, endingFor(over))))},
		"an init container runs":   {in: puzzling(5, gone(over, initRuns))},
		"a longer grace":           {in: puzzling(5, gone(over, longer))},
		"its deletion is not seen": {in: puzzling(5, with(pod(1, terminating, neverStarted)))},
		"it does not occupy":       {in: puzzling(5, gone(over, unoccupied))},
	} {
		plan, asked := ask(t, tc.in, world{})
		if (len(plan.ForceDelete) == 1) != tc.forced || len(plan.Delete) > 0 || tc.wait > 0 && plan.RequeueAfter != tc.wait {
			t.Errorf("%s: deletes %v, forces %v, wait %s", name, names(plan.Delete), names(plan.ForceDelete), plan.RequeueAfter)
		}
		if tc.forced && (len(asked) == 0 || asked[0] != NeedFresh) {
			t.Errorf("%s: decided on a cache: %v", name, asked)
		}
	}
}

// A worker that cannot be ended is a failure of the next attempt, which cannot start. That exhausts the node.
func TestWorkerStuck(t *testing.T) {
	const over = 65 * time.Second
	stuck := with(pod(1, endingFor(over)))
	for name, in := range map[string]Input{
		"over":                         puzzling(1, due, stuck),
		"an init container":            puzzling(1, due, with(pod(1, endingFor(over), pending))),
		"after one failure":            failing(1, due, stuck),
		"a partition recovered before": puzzling(1, due, notReadySeen(over), with(pod(1, endingFor(time.Hour)))),
		"not Ready before it ended":    puzzling(1, due, notReadySeen(time.Hour), stuck),
	} {
		plan, asked := ask(t, in, world{})
		r, n := plan.Change.Record, in.Node.Record.Sequence
		if plan.Recorded == nil || !recordsStuck(r) || r.Sequence != n+1 || r.Attempts != 5 || asked[len(asked)-1] != NeedFresh {
			t.Errorf("%s: records %+v, asked for %v", name, r, asked)
		}
		if got := strings.Join(reasons(plan.Events), " "); got != EventFailed.Name+" "+EventExhausted.Name {
			t.Errorf("%s: events %s", name, got)
		}
	}
}

// The node is not at fault if there is another explanation. The condition names it.
func TestWorkerThatDoesNotEndChargesNobody(t *testing.T) {
	const over = 65 * time.Second
	slow := func(o *workerpod.Observation) { o.Grace = time.Minute }
	long := with(pod(1, endingFor(time.Hour)))
	const verifying, inconclusive = marks.ReasonVerifying, marks.ReasonWorkerInconclusive
	const prerequisites = marks.ReasonWaitingForPrerequisites
	for name, tc := range map[string]struct {
		in     Input
		reason string // of the condition
		says   string
		wait   time.Duration
	}{
		"not over":              {puzzling(1, due, with(pod(1, endingFor(over-1)))), verifying, "has not ended", 1},
		"a slow teardown":       {puzzling(1, due, with(pod(1, endingFor(over), slow))), verifying, "has been terminating since", 0},
		"a foreign finalizer":   {puzzling(1, due, with(pod(1, endingFor(over), finalized))), inconclusive, "example.com", 0},
		"not Ready":             {puzzling(1, due, notReady, long), inconclusive, "its container has not ended", 0},
		"lost":                  {puzzling(1, due, lost, long), prerequisites, "Ready is Unknown", 0},
		"a partition recovered": {puzzling(1, due, notReadySeen(over-1), long), inconclusive, "", 1},
		"a successor":           {puzzling(1, due, with(pod(1, endingFor(0)))), verifying, "", over},
		"it waits for backoff":  {puzzling(1, long), inconclusive, "", backoff(1)},
		"its deletion is held": {puzzling(1, due, deleting, heldBy(GuardControlProbe), with(pod(1, endingFor(over-1)))),
			marks.ReasonRemediationHeld, "its container has not ended; previous result: ", 1},
	} {
		plan, _ := ask(t, tc.in, world{})
		c := plan.Condition
		if plan.Step != StepNone || reasonOf(c) != tc.reason || !strings.Contains(c.Message, tc.says) {
			t.Errorf("%s: %q, says %+v", name, plan.Step, c)
		}
		if tc.wait > 0 && plan.RequeueAfter != tc.wait {
			t.Errorf("%s: looks again in %s", name, plan.RequeueAfter)
		}
	}
}

// With deletion on, the failure needs a control probe, and then the guards, like any other failure.
func TestWorkerStuckIsComparedWithAVerifiedNode(t *testing.T) {
	in := puzzling(1, recordedAgo(time.Minute), deleting, with(pod(1, endingFor(66*time.Second))))
	w := deletable()
	plan, _ := ask(t, in, w)
	if plan.Step != StepProbe || plan.Probe.Subject != "u1/2" {
		t.Fatalf("%+v", plan)
	}
	for name, tc := range map[string]struct {
		came    attempt.Outcome
		outcome attempt.Outcome
	}{
		"it passes there":   {attempt.Passed, attempt.Failed},
		"it fails there":    {attempt.Failed, attempt.Inconclusive},
		"it proves nothing": {attempt.Inconclusive, ""},
	} {
		w.probes = []workerpod.Observation{probe("-m0", subject("u1/2"), ended(tc.came))}
		plan, _ = ask(t, in, w)
		if r := plan.Change.Record; r.LastOutcome != tc.outcome || tc.outcome == attempt.Failed != r.Probed {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// A node whose worker could not be ended is deleted only while this process observes that the worker still does not
// end. If the worker has ended, the node continues at once.
func TestAfterWorkerStuck(t *testing.T) {
	still := with(pod(1, endingFor(2*time.Minute)))
	justSeen := with(pod(1, endingFor(time.Second)))
	never := exhaustedRetrySeconds(-1)
	recorded := func(age time.Duration, changes ...func(*Input)) Input {
		in := stuckBefore(age)
		for _, f := range changes {
			f(&in)
		}
		return in
	}
	for name, tc := range map[string]struct {
		in     Input
		step   Step
		number int32
		reason string
	}{
		"still there":                     {recorded(time.Minute, still), "", 0, marks.ReasonRetriesExhausted},
		"still there, later":              {recorded(time.Hour, still), StepRecord, 3, ""},
		"still there, never tried again":  {recorded(time.Hour, never, still), "", 0, marks.ReasonRetriesExhausted},
		"it has ended":                    {recorded(time.Second), StepStart, 3, ""},
		"it has ended, never tried again": {recorded(time.Hour, never), StepStart, 3, ""},
		"deletion on":                     {recorded(time.Minute, deleting, still), StepDelete, 0, ""},
		"deletion on, it has ended":       {recorded(time.Minute, deleting), StepStart, 3, ""},
		"deletion on, to a successor":     {recorded(time.Minute, deleting, justSeen), "", 0, marks.ReasonRetriesExhausted},
		"deletion on, not Ready":          {recorded(0, deleting, notReady, still), "", 0, marks.ReasonRetriesExhausted},
		"intended, it has ended":          {recorded(time.Minute, deleting, intended), StepRecord, 0, ""},
	} {
		plan, _ := ask(t, tc.in, deletable())
		number := plan.Number
		if plan.Recorded != nil {
			number = plan.Recorded.Number
		}
		if plan.Step != tc.step || number != tc.number || tc.reason != "" && reasonOf(plan.Condition) != tc.reason {
			t.Errorf("%s: %q, attempt %d, condition %+v", name, plan.Step, number, plan.Condition)
		}
		if name == "intended, it has ended" && plan.Change.Record.Deletion != nil {
			t.Errorf("%s: it is still to be deleted", name)
		}
	}
	// A check may choose any reason for its failure.
	in := failing(5, deleting, func(in *Input) { in.Node.Record.LastReason = attempt.ReasonWorkerStuck })
	if plan, _ := ask(t, in, deletable()); plan.Step != StepDelete {
		t.Errorf("a check's own reason: %q", plan.Step)
	}
}
