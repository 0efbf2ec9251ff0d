package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// backoff is the wait after the node's n-th attempt that did not pass.
func backoff(n int32) time.Duration {
	return Backoff(given().Config.Reconciliation, n, "u1")
}

func TestNext(t *testing.T) {
	unmet := world{waits: []Unmet{{Kind: "conditions", Name: "cni", Message: "cni"}}}
	retried := func(in Input) time.Duration {
		at, _ := nextAttemptTime(in, in.Node.Record, exhausts(in, in.Node.Record.Attempts), now)
		return at.Sub(now)
	}
	for name, tc := range map[string]struct {
		in      Input
		world   world
		step    Step
		reason  string // of the condition; empty for none
		number  int32  // of StepStart, or recorded by StepRecord
		outcome attempt.Outcome
		deletes string
		keeps   string
		wait    time.Duration
	}{
		"new node":                        {in: given(), step: StepStart, number: 1},
		"deleted node":                    {in: given(func(in *Input) { in.Node.Deleting = true }, with(pod(1, ended(attempt.Passed)))), step: StepNone},
		"waits for prerequisites":         {in: given(), world: unmet, step: StepNone, reason: marks.ReasonWaitingForPrerequisites},
		"prerequisites only before first": {in: puzzling(1, due), world: unmet, step: StepStart, number: 2, reason: marks.ReasonWorkerInconclusive},
		"a young worker":                  {in: given(with(pod(1))), step: StepNone, reason: marks.ReasonVerifying, wait: 2 * time.Second},
		"a worker takes longer":           {in: given(with(pod(1, seenFor(6*time.Second)))), step: StepNone, reason: marks.ReasonVerifying, wait: 119 * time.Second},
		"a worker is pending":             {in: given(with(pod(1, pending, seenFor(6*time.Second)))), step: StepNone, reason: marks.ReasonVerifying, wait: 24 * time.Second},
		"worker passed":                   {in: given(with(pod(1, ended(attempt.Passed)))), step: StepRecord, number: 1, outcome: attempt.Passed},
		"worker failed":                   {in: given(with(pod(1, ended(attempt.Failed)))), step: StepRecord, number: 1, outcome: attempt.Failed},
		"worker inconclusive":             {in: given(with(pod(1, ended(attempt.Inconclusive)))), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"a result while it occupies":      {in: given(with(pod(1, imageMissing))), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"ran past its timeout":            {in: given(with(pod(1, seenFor(125*time.Second)))), step: StepRecord, number: 1, outcome: attempt.Failed},
		"ran past it on a lost node":      {in: given(lost, with(pod(1, seenFor(126*time.Second)))), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"ran past it on its way out":      {in: given(with(pod(1, terminating, seenFor(126*time.Second)))), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"not started in time":             {in: given(with(pod(1, pending, seenFor(300*time.Second)))), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"unschedulable at first":          {in: given(with(pod(1, pending, unschedulable(9*time.Second)))), step: StepNone, reason: marks.ReasonVerifying, wait: time.Second},
		"unschedulable":                   {in: given(with(pod(1, pending, unschedulable(10*time.Second)))), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"on its way out, may yet pass":    {in: given(with(pod(1, terminating))), step: StepNone, reason: marks.ReasonVerifying, wait: 2 * time.Second},
		"pod vanished":                    {in: given(func(in *Input) { in.Vanished.Number = 1 }), step: StepRecord, number: 1, outcome: attempt.Inconclusive},
		"hint of an older pod":            {in: failing(2, due, func(in *Input) { in.Vanished.Number = 2 }), step: StepStart, number: 3, reason: marks.ReasonChecksFailed},
		"backoff":                         {in: failing(3), step: StepNone, reason: marks.ReasonChecksFailed, wait: backoff(3)},
		"backoff over":                    {in: failing(1, due), step: StepStart, number: 2, reason: marks.ReasonChecksFailed},
		"inconclusive, backoff":           {in: puzzling(2), step: StepNone, reason: marks.ReasonWorkerInconclusive, wait: backoff(2)},
		"inconclusive, backoff over":      {in: puzzling(2, due), step: StepStart, number: 3, reason: marks.ReasonWorkerInconclusive},
		"exhausted":                       {in: failing(5), step: StepNone, reason: marks.ReasonRetriesExhausted, wait: retried(failing(5))},
		"exhausted for good":              {in: failing(5, due, exhaustedRetrySeconds(-1)), step: StepNone, reason: marks.ReasonRetriesExhausted},
		"exhausted, tried again":          {in: failing(5, due), step: StepStart, number: 6, reason: marks.ReasonRetriesExhausted},
		"exhausted, deletion on":          {in: failing(5, deleting), world: deletable(), step: StepDelete, reason: marks.ReasonRetriesExhausted},
		"exhausted long ago, deletion on, is confirmed first":           {in: failing(5, deleting, due), world: deletable(), step: StepStart, number: 6, reason: marks.ReasonRetriesExhausted},
		"exhausted before deletion was on, is confirmed beside a probe": {in: failing(5, deleting, unprobed), world: deletable(), step: StepStart, number: 6, reason: marks.ReasonRetriesExhausted},
		"exhausted before deletion was on, no probe wanted":             {in: failing(5, deleting, unprobed, noProbe), world: deletable(), step: StepDelete, reason: marks.ReasonRetriesExhausted},
		"its NodeClaim is on its way out":                               {in: failing(5, deleting, intended), world: world{owner: owner.Owner{Target: nodeClaim("c", "cu"), Terminating: true}}, step: StepNone, reason: marks.ReasonRetriesExhausted, wait: retried(failing(5))},
		"not exhausted, deletion on":                                    {in: failing(4, deleting), world: deletable(), step: StepNone, reason: marks.ReasonChecksFailed, wait: backoff(4)},
		"failed, deletion on":                                           {in: given(deleting, with(pod(1, ended(attempt.Failed)))), world: world{fleet: healthyNodes(1, "")}, step: StepProbe, reason: marks.ReasonVerifying},
		"failed, deletion on, no probe wanted":                          {in: given(deleting, noProbe, with(pod(1, ended(attempt.Failed)))), step: StepRecord, number: 1, outcome: attempt.Failed},
		"reboot starts afresh":                                          {in: failing(5, rebootedTo("b2")), step: StepStart, number: 6},
		"verified":                                                      {in: verified(), step: StepNone, reason: marks.ReasonChecksPassed},
		"verified, its pod is still there":                              {in: verified(with(pod(1, ended(attempt.Passed)))), step: StepNone, reason: marks.ReasonChecksPassed, deletes: "verify-n-1"},
		"no longer needed, worker under way":                            {in: verified(with(pod(2))), step: StepNone, reason: marks.ReasonChecksPassed, deletes: "verify-n-2"},
		"skipped, worker on its way out":                                {in: given(skipped, with(pod(1, terminating))), step: StepNone},
		"skipped, worker under way":                                     {in: given(skipped, with(pod(1))), step: StepNone, deletes: "verify-n-1"},
		"label removed":                                                 {in: verified(unlabelled), step: StepStart, number: 2},
		"taint came back":                                               {in: verified(gated), step: StepStart, number: 2},
		"looks again when it is too old":                                {in: verified(every(10 * time.Hour)), step: StepNone, reason: marks.ReasonChecksPassed, wait: untilAged(10 * time.Hour)},
		"the last failed pod is marked, kept":                           {in: failing(3, with(pod(3, ended(attempt.Failed)))), step: StepNone, reason: marks.ReasonChecksFailed, keeps: "verify-n-3", wait: backoff(3)},
		"the pod of an inconclusive attempt too":                        {in: puzzling(2, with(pod(2, ended(attempt.Inconclusive)))), step: StepNone, reason: marks.ReasonWorkerInconclusive, keeps: "verify-n-2", wait: backoff(2)},
		"and is marked once":                                            {in: failing(3, with(pod(3, ended(attempt.Failed), markedKept))), step: StepNone, reason: marks.ReasonChecksFailed, wait: backoff(3)},
		"a pod on its way out is not deleted again":                     {in: failing(3, with(pod(2, ended(attempt.Failed), terminating))), step: StepNone, reason: marks.ReasonChecksFailed, wait: backoff(3)},
		"an older failed pod goes":                                      {in: failing(3, with(pod(2, ended(attempt.Failed), markedKept))), step: StepNone, reason: marks.ReasonChecksFailed, deletes: "verify-n-2", wait: backoff(3)},
		"a kept pod goes after its time": {in: failing(5, recordedAgo(10*time.Minute), exhaustedRetrySeconds(-1), with(pod(5, ended(attempt.Failed), markedKept))),
			step: StepNone, reason: marks.ReasonRetriesExhausted, deletes: "verify-n-5"},
		"a kept pod is looked at again": {in: failing(5, recordedAgo(9*time.Minute), exhaustedRetrySeconds(-1), with(pod(5, ended(attempt.Failed), markedKept))),
			step: StepNone, reason: marks.ReasonRetriesExhausted, wait: time.Minute},
		"none is kept":                                     {in: failing(3, keepFailedSeconds(0), with(pod(3, ended(attempt.Failed)))), step: StepNone, reason: marks.ReasonChecksFailed, deletes: "verify-n-3", wait: backoff(3)},
		"a recorded pod that runs is not kept":             {in: failing(3, with(pod(3))), step: StepNone, reason: marks.ReasonChecksFailed, deletes: "verify-n-3", wait: backoff(3)},
		"a kept pod of before the record was removed goes": {in: given(with(pod(3, ended(attempt.Failed), markedKept))), step: StepStart, number: 1, deletes: "verify-n-3"},
		"Karpenter has not registered the node":            {in: given(managed, with(pod(1, ended(attempt.Passed)))), step: StepNone, reason: marks.ReasonWaitingForRegistration},
		"Karpenter has registered the node":                {in: given(managed, registered, with(pod(1, ended(attempt.Passed)))), step: StepRecord, number: 1, outcome: attempt.Passed},
		"not registered, not gated":                        {in: verified(managed, unlabelled, with(pod(2, openGate, ended(attempt.Passed)))), step: StepRecord, number: 2, outcome: attempt.Passed},
		"another installation's":                           {in: verified(unselected, gated, conditioned), step: StepNone},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, tc.world)
			if plan.Step != tc.step {
				t.Fatalf("step %q, want %q (%+v)", plan.Step, tc.step, plan)
			}
			if got := reasonOf(plan.Condition); got != tc.reason {
				t.Errorf("condition %q, want %q", got, tc.reason)
			}
			if got := strings.Join(names(plan.Delete), ","); got != tc.deletes {
				t.Errorf("deletes %q, want %q", got, tc.deletes)
			}
			if got := strings.Join(names(plan.Keep), ","); got != tc.keeps {
				t.Errorf("keeps %q, want %q", got, tc.keeps)
			}
			switch plan.Step {
			case StepStart:
				if plan.Number != tc.number {
					t.Errorf("starts attempt %d, want %d", plan.Number, tc.number)
				}
			case StepRecord:
				if r := plan.Change.Record; r.Sequence != tc.number || r.LastOutcome != tc.outcome || plan.Recorded == nil || plan.Recorded.Number != tc.number {
					t.Errorf("records attempt %d %s, want %d %s", r.Sequence, r.LastOutcome, tc.number, tc.outcome)
				}
			case StepNone:
				if plan.RequeueAfter != tc.wait {
					t.Errorf("waits %s, want %s", plan.RequeueAfter, tc.wait)
				}
			}
		})
	}
}

func registered(in *Input) { in.Node.Owner.Registered = true }

func intended(in *Input) {
	in.Node.Record.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu", Time: now}
}

func exhaustedRetrySeconds(s int32) func(*Input) {
	return func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = s }
}

func keepFailedSeconds(s int32) func(*Input) {
	return func(in *Input) { in.Config.Worker.KeepFailedSeconds = &s }
}

func untilAged(interval time.Duration) time.Duration {
	at, _ := reverifyTime(verified(every(interval)), now)
	return at.Sub(now)
}

// The labels that arrive at registration select another profile, with prerequisites of its own.
func TestPrerequisitesAreWaitedForAgainAfterOtherChecks(t *testing.T) {
	unmet := world{waits: []Unmet{{Kind: "resources", Message: "the GPU driver"}}}
	in := given(with(pod(1, otherChecks, ended(attempt.Passed))))
	in.Node.Record, _ = recorded(t, in, unmet)
	in.Pods = nil
	soon := now.Add(time.Second)
	if plan, _ := askAt(t, in, unmet, soon); plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWaitingForPrerequisites {
		t.Errorf("%+v", plan)
	}
	if plan, _ := askAt(t, in, world{}, soon); plan.Step != StepStart || plan.Number != 2 {
		t.Errorf("once they hold: %+v", plan)
	}
	in.Pods = []workerpod.Observation{pod(2, ended(attempt.Failed))}
	in.Node.Record, _ = recorded(t, in, unmet)
	in.Pods, in.Node.Record.LastTime = nil, ago(time.Hour)
	if plan, _ := ask(t, in, unmet); plan.Step != StepStart {
		t.Errorf("after the first worker of the profile: %+v", plan)
	}
}

func TestVia(t *testing.T) {
	rejected := puzzling(1, due, func(in *Input) { in.Node.Record.LastReason = attempt.ReasonKubeletRejected })
	ordinary := given(func(in *Input) { in.Profile.Scheduling = config.SchedulingScheduler })
	asks := func(offered string) Input {
		return given(func(in *Input) {
			in.Profile.Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}
			in.Node.Allocatable = corev1.ResourceList{corev1.ResourceName(offered): resource.MustParse("0")}
		})
	}
	for name, tc := range map[string]struct {
		in   Input
		want config.Scheduling
	}{
		"a gated node":                    {given(), config.SchedulingDirect},
		"a device plugin registered it":   {asks("example.com/gpu"), config.SchedulingDirect},
		"no device plugin registered it":  {asks("example.com/other"), config.SchedulingScheduler},
		"worker.scheduling: scheduler":    {ordinary, config.SchedulingScheduler},
		"after a rejection":               {rejected, config.SchedulingScheduler},
		"after any other inconclusive":    {puzzling(1, due), config.SchedulingDirect},
		"a node that workloads may be on": {verified(unlabelled), config.SchedulingScheduler},
	} {
		if plan, _ := ask(t, tc.in, world{}); plan.Step != StepStart || plan.Scheduling != tc.want {
			t.Errorf("%s: %q goes %q, want %q", name, plan.Step, plan.Scheduling, tc.want)
		}
	}
}

// A dry run records nothing, but it deletes pods, even if the mark that they are done could not be set.
func TestPodsOfADryRunGo(t *testing.T) {
	dryRunDone := func(in *Input) { in.DryRunDone = true }
	long := resultSeen(now.Add(-10 * time.Minute))
	for name, tc := range map[string]struct {
		pod     workerpod.Observation
		deletes bool
		wait    time.Duration
	}{
		"ended":                  {pod(1, ended(attempt.Passed), markedKept), false, 10 * time.Minute},
		"ended for long":         {pod(1, ended(attempt.Passed), markedKept, long), true, 0},
		"ended, not marked":      {pod(1, ended(attempt.Failed)), false, 10 * time.Minute},
		"ended for long, not so": {pod(1, ended(attempt.Failed), long), true, 0},
		"it hangs":               {pod(1, seenFor(time.Hour)), true, 0},
		"no image":               {pod(1, imageMissing, markedKept), true, 0},
		"on its way out":         {pod(1, terminating, seenFor(time.Hour)), false, 0},
	} {
		plan, _ := ask(t, given(dryRunDone, with(tc.pod)), world{})
		if deleted := len(plan.Delete) == 1; plan.Step != StepNone || deleted != tc.deletes || plan.RequeueAfter != tc.wait || len(plan.Keep) > 0 {
			t.Errorf("%s: %q, deletes %v, looks again in %s", name, plan.Step, names(plan.Delete), plan.RequeueAfter)
		}
	}
	if plan, _ := ask(t, given(dryRunDone), world{}); plan.Step != StepNone || plan.Condition != nil {
		t.Errorf("it has had its attempt: %+v", plan)
	}
}

// Two workers on one node would disturb each other, and the limit on workers would not hold.
func TestNoStartWhileAnotherWorkerOccupies(t *testing.T) {
	for name, last := range map[string]workerpod.Observation{
		"it runs":                           pod(2),
		"it runs in its grace period":       pod(2, terminating),
		"its image is missing":              pod(2, imageMissing),
		"it is on its way out, not started": pod(2, pending, terminating),
		"of an attempt long before":         pod(1, terminating),
		"of before the record was removed":  pod(9, terminating),
	} {
		plan, asked := ask(t, failing(2, due, with(last)), world{})
		if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonVerifying || !strings.Contains(plan.Condition.Message, last.Name) {
			t.Errorf("%s: %+v", name, plan)
		}
		if slices.Contains(asked, NeedSlot) {
			t.Errorf("%s: a slot is taken for nothing", name)
		}
		if deleted := len(plan.Delete) == 1; deleted == last.Terminating {
			t.Errorf("%s: deletes %v", name, names(plan.Delete))
		}
	}
	for name, last := range map[string]workerpod.Observation{
		"it ended":                 pod(2, ended(attempt.Failed)),
		"it ended, on its way out": pod(2, ended(attempt.Failed), terminating),
		"a probe for another node": probe("n"),
	} {
		if plan, _ := ask(t, failing(2, due, with(last)), world{}); plan.Step != StepStart {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// On a node whose kubelet is gone workers would pile up.
func TestNoStartWhileReadyIsUnknown(t *testing.T) {
	for name, in := range map[string]Input{
		"new":             given(lost),
		"between retries": failing(2, lost, due),
		"re-verification": verified(unlabelled, lost),
		"exhausted":       failing(5, lost, due, deleting),
	} {
		plan, asked := ask(t, in, world{})
		if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWaitingForPrerequisites || !strings.Contains(plan.Condition.Message, "kubelet") {
			t.Errorf("%s: %+v", name, plan)
		}
		if len(asked) > 0 {
			t.Errorf("%s: asked for %v", name, asked)
		}
	}
	notReady := given(func(in *Input) { in.Node.Ready = false })
	if plan, _ := ask(t, notReady, world{}); plan.Step != StepStart {
		t.Errorf("a node that is not ready is verified: that is what the worker is for: %+v", plan)
	}
}

// Other programs are about to remove the node. The controller starts no worker on it, ends none, and does not delete
// it.
func TestANodeThatIsLeaving(t *testing.T) {
	for name, in := range map[string]Input{
		"new":                      given(leaving),
		"between retries":          failing(2, leaving, due),
		"label removed":            verified(unlabelled, leaving),
		"exhausted, to be deleted": failing(5, leaving, due, deleting),
		"lost as well":             given(leaving, lost),
	} {
		plan, asked := ask(t, in, deletable())
		if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWaitingForPrerequisites ||
			!strings.HasPrefix(plan.Condition.Message, "No worker starts on this node: "+in.Node.Leaving) || len(asked) > 0 {
			t.Errorf("%s: %+v, asked for %v", name, plan, asked)
		}
	}
	for name, in := range map[string]Input{
		"just failed for the last time": failing(5, leaving, deleting),
		"verified and rebooted":         verified(leaving, rebootedTo("b2")),
		"a worker is under way":         given(leaving, with(pod(1))),
		"a re-verification too":         verified(leaving, rebootedTo("b2"), with(pod(2, openGate))),
		"its deletion was intended":     failing(5, leaving, due, deleting, intended),
	} {
		if plan, asked := ask(t, in, deletable()); plan.Step != StepNone || reasonOf(plan.Condition) == marks.ReasonWaitingForPrerequisites || len(plan.Delete) > 0 || len(asked) > 0 {
			t.Errorf("%s: %+v, asked for %v", name, plan, asked)
		}
	}
	if plan, _ := ask(t, given(leaving, with(pod(1, ended(attempt.Passed)))), world{}); plan.Step != StepRecord || plan.Change.Gate != gateOpen {
		t.Errorf("what the worker under way found does not count: %+v", plan)
	}
	if plan, _ := ask(t, given(leaving, func(in *Input) { in.Vanished.Number = 1 }), world{}); plan.Step != StepRecord || plan.Change.Record.LastReason != attempt.ReasonPodDeleted {
		t.Errorf("a worker that vanished with the node: %+v", plan)
	}
}

// A pod that tolerates every taint is never evicted. So the controller ends it once its time on a lost node is over.
func TestAWorkerOfALostNodeIsEnded(t *testing.T) {
	worker := pod(1, pending, seenFor(300*time.Second))
	plan, _ := ask(t, given(lost, with(worker)), world{})
	r := plan.Change.Record
	if plan.Step != StepRecord || r.LastReason != attempt.ReasonNodeLost || r.LastOutcome != attempt.Inconclusive {
		t.Fatalf("%+v", plan)
	}
	plan, _ = ask(t, given(lost, with(worker), func(in *Input) { in.Node.HasRecord, in.Node.Record = true, r }), world{})
	if got := strings.Join(names(plan.Delete), ","); got != worker.Name || plan.Step != StepNone {
		t.Errorf("it deletes %q: %+v", got, plan)
	}
}

// A node without a slot costs nothing, and shows what it waits for.
func TestWaitingForSlotComesBeforeTheFreshRead(t *testing.T) {
	plan, asked := ask(t, given(), world{full: true})
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonWaitingForSlot {
		t.Errorf("%+v", plan)
	}
	if want := []Need{NeedPrerequisites, NeedSlot}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	if _, asked = ask(t, given(), world{}); !slices.Equal(asked, []Need{NeedPrerequisites, NeedSlot, NeedFresh, NeedPrerequisites}) {
		t.Errorf("with a slot: asked for %v", asked)
	}
}

// A node that waits for a slot names the pods that hold one although they should have ended, and says what to do. Its
// previous state stays in the condition.
func TestWaitingForSlotNamesItsHolders(t *testing.T) {
	holder := SlotHolder{Pod: "verify-m-1", Node: "m", Due: now.Add(-time.Second), Until: now.Add(59 * time.Second), Terminating: true}
	refused := SlotHolder{Pod: "verify-o-1", Node: "o", Due: now.Add(-time.Second), Until: now.Add(59 * time.Second),
		Refused: `pods "verify-o-1" is forbidden`}
	failed := func(in *Input) {
		in.Node.HasRecord, in.Node.Record = true, marks.Record{NodeUID: in.Node.UID, BootID: in.Node.BootID, Checks: in.Checks, Sequence: 1,
			Attempts: 1, LastOutcome: attempt.Failed, LastCheck: "dns", LastTime: &now}
	}
	for name, tc := range map[string]struct {
		in      Input
		holders []SlotHolder
		reason  string
		want    []string
	}{
		"none is overdue": {given(), nil, marks.ReasonWaitingForSlot, []string{"maxConcurrentVerifications"}},
		"one does not end": {given(), []SlotHolder{holder}, marks.ReasonWaitingForSlot,
			[]string{"worker verify-m-1 on node m", "until " + holder.Until.UTC().Format(time.RFC3339), "container runtime"}},
		"one may not be deleted": {given(), []SlotHolder{refused}, marks.ReasonWaitingForSlot,
			[]string{"verify-o-1 on node o", "is forbidden", "let the controller delete pods"}},
		"two": {given(), []SlotHolder{holder, refused}, marks.ReasonWaitingForSlot, []string{"verify-m-1", "so do 1 more"}},
		"a failed node": {given(failed), []SlotHolder{holder}, marks.ReasonWaitingForSlot,
			[]string{"verify-m-1", "; previous result: check dns"}},
		"a held node": {given(failed, heldBy(GuardCondition)), []SlotHolder{holder}, marks.ReasonRemediationHeld,
			[]string{"held by condition", "verify-m-1"}},
	} {
		p, free := takesSlot(tc.in, Evidence{Slot: new(false), SlotHolders: &tc.holders}, Plan{}, now)
		if free || p.Condition == nil || p.Condition.Reason != tc.reason {
			t.Errorf("%s: %+v", name, p.Condition)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(p.Condition.Message, want) {
				t.Errorf("%s: %q lacks %q", name, p.Condition.Message, want)
			}
		}
	}
}

// A cache that missed the last record must not start an attempt that is recorded already.
func TestAStartIsDecidedOnAFreshNode(t *testing.T) {
	recorded := failing(1)
	if plan, _ := ask(t, given(), world{fresh: &recorded}); plan.Step != StepNone {
		t.Errorf("started attempt %d of a node that has one failure behind it and waits", plan.Number)
	}
}

// What looks like the worker of an unknown attempt may be one whose result is not recorded yet.
func TestDeletingAnUnrecordedPodNeedsAFreshNode(t *testing.T) {
	for name, in := range map[string]Input{
		"worker of a node that seems verified": verified(with(pod(2))),
		"worker of a node that seems skipped":  given(skipped, with(pod(1))),
		"a number that is not the next one":    failing(1, with(pod(3, ended(attempt.Failed)))),
		"marked as recorded, number unknown":   failing(1, with(pod(2, ended(attempt.Failed), markedKept))),
		"its record may have been removed":     failing(3, with(pod(2, ended(attempt.Failed)))),
		"of a node that has passed":            verified(with(pod(1, ended(attempt.Passed)))),
	} {
		plan := Next(in, Evidence{}, now)
		if plan.Need != NeedFresh || plan.Step != StepNone || len(plan.Delete) > 0 {
			t.Errorf("%s: %+v", name, plan)
		}
		if plan = Next(in, Evidence{Fresh: true}, now); len(plan.Delete) != 1 {
			t.Errorf("%s, on a fresh node: %+v", name, plan)
		}
	}
	// The fresh node shows that the attempt under way is the next one: it is kept.
	live := given(with(pod(1)))
	if plan, _ := ask(t, verified(with(pod(2))), world{fresh: &live}); len(plan.Delete) > 0 {
		t.Errorf("deletes %v", names(plan.Delete))
	}
	marked := failing(3, with(pod(2, ended(attempt.Failed), markedKept)))
	if plan := Next(marked, Evidence{}, now); plan.Need != NeedNothing || len(plan.Delete) != 1 {
		t.Errorf("one that is marked as recorded costs a read: %+v", plan)
	}
}
