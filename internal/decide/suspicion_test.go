package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

const deadlock corev1.NodeConditionType = "KernelDeadlock"

// transition is when the condition of a suspect node changed to its status.
var transition = now.Add(-10 * time.Minute)

// suspects configures KernelDeadlock as a condition that makes verified nodes suspect.
func suspects(change ...func(*config.SuspectCondition)) func(*Input) {
	return func(in *Input) {
		c := config.SuspectCondition{Type: deadlock, Status: corev1.ConditionTrue}
		for _, f := range change {
			f(&c)
		}
		in.Profile.SuspectConditions = []config.SuspectCondition{c}
	}
}

func forSeconds(s int32) func(*config.SuspectCondition) {
	return func(c *config.SuspectCondition) { c.ForSeconds = s }
}

func closing(c *config.SuspectCondition) { c.Taint = true }

// accused is a node with the given status of KernelDeadlock, which this process first observed a minute ago.
func accused(status corev1.ConditionStatus) func(*Input) {
	return func(in *Input) {
		in.Node.Conditions = []corev1.NodeCondition{{Type: deadlock, Status: status, LastTransitionTime: metav1.NewTime(transition)}}
		in.SuspectSince = map[corev1.NodeConditionType]time.Time{deadlock: now.Add(-time.Minute)}
	}
}

// earlier is another transition than the present one.
func earlier(s *marks.Suspicion) { s.Transition = ago(2 * time.Hour) }

// clearedAgo is a node that passed under the condition's present transition.
func clearedAgo(age time.Duration, change ...func(*marks.Suspicion)) func(*Input) {
	return func(in *Input) {
		s := marks.Suspicion{Type: deadlock, Status: corev1.ConditionTrue, Transition: &transition, Time: now.Add(-age)}
		for _, f := range change {
			f(&s)
		}
		in.Node.Record.Cleared = []marks.Suspicion{s}
	}
}

// An attempt that does not answer its request is followed by a backoff. Otherwise, a quota that refuses every worker pod
// would have the controller create pods without a pause.
func TestRequestSkipsOneBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		in     Input
		starts bool
	}{
		"inconclusive before the request": {in: puzzling(5, recordedAgo(10*time.Second), requestedIn(-5*time.Second)), starts: true},
		"inconclusive after the request":  {in: puzzling(5, recordedAgo(10*time.Second), requestedIn(-15*time.Second))},
		"failed before the request":       {in: failing(5, recordedAgo(10*time.Second), requestedIn(-5*time.Second)), starts: true},
		"failed, begun before it":         {in: failing(5, recordedAgo(10*time.Second), requestedIn(-15*time.Second)), starts: true},
		"requested in the future":         {in: puzzling(5, recordedAgo(10*time.Second), requestedIn(30*time.Second))},
		"a request without its time":      {in: puzzling(5, requestUnderWay, func(in *Input) { in.Node.Record.RequestTime = nil })},
	} {
		plan, _ := ask(t, tc.in, world{})
		if (plan.Step == StepStart) != tc.starts || plan.Step == StepNone && plan.RequeueAfter <= 0 {
			t.Errorf("%s: %q, again in %s; starts: want %t", name, plan.Step, plan.RequeueAfter, tc.starts)
		}
	}

	// The API server refuses every pod.
	in, at := puzzling(5, recordedAgo(10*time.Second), requestedIn(-5*time.Second)), now
	for n := range 20 {
		plan, _ := askAt(t, in, world{}, at)
		if n > 0 && plan.Step == StepStart {
			t.Fatalf("attempt %d starts right after the refusal of the one before", in.Node.Record.Sequence+1)
		}
		if n == 0 && plan.Step != StepStart {
			t.Fatalf("%q, want the attempt that was requested", plan.Step)
		}
		in.Node.Record = PodRefused(in, in.NextAttempt().Number, attempt.ReasonPodRefused, "exceeded quota", at).Change.Record
		at = at.Add(time.Millisecond)
	}
}

// underSuspicion is a node whose record shows the suspicion.
func underSuspicion(in *Input) {
	in.Node.Record.Suspicion = &marks.Suspicion{Type: deadlock, Status: corev1.ConditionTrue, Transition: &transition, Time: now.Add(-time.Minute)}
}

func requests(id string) func(*Input) { return func(in *Input) { in.Node.Requested = id } }

func requestUnderWay(in *Input) {
	in.Node.Record.Suspicion = &marks.Suspicion{Request: "a", Time: now.Add(-time.Minute)}
	in.Node.Record.RequestTime = ago(time.Minute)
}

// requestedIn is a node with a pending request of that age, or from the future.
func requestedIn(d time.Duration) func(*Input) {
	return func(in *Input) {
		requestUnderWay(in)
		in.Node.Record.RequestTime = ptr.To(now.Add(d))
	}
}

func answered(id string, age time.Duration) func(*Input) {
	return func(in *Input) { in.Node.Record.Request, in.Node.Record.RequestTime = id, ago(age) }
}

func TestSuspicionBegins(t *testing.T) {
	is := accused(corev1.ConditionTrue)
	for name, tc := range map[string]struct {
		in      Input
		begins  bool
		request string
		wait    time.Duration
	}{
		"the condition has the status":       {in: verified(suspects(), is), begins: true},
		"on a node that was adopted":         {in: verified(suspects(), is, func(in *Input) { in.Node.Record = Adopt(*in, now).Record }), begins: true},
		"another status":                     {in: verified(suspects(), accused(corev1.ConditionFalse))},
		"no such condition":                  {in: verified(suspects())},
		"no suspicion is configured":         {in: verified(is)},
		"it has not lasted":                  {in: verified(suspects(forSeconds(90)), is), wait: 30 * time.Second},
		"it has lasted":                      {in: verified(suspects(forSeconds(60)), is), begins: true},
		"it is seen for the first time":      {in: verified(suspects(forSeconds(60)), is, func(in *Input) { in.SuspectSince = nil }), wait: time.Minute},
		"a pass cleared the transition":      {in: verified(suspects(), is, clearedAgo(time.Minute)), wait: 59 * time.Minute},
		"the cooldown is over":               {in: verified(suspects(), is, clearedAgo(time.Hour)), begins: true},
		"another transition too soon":        {in: verified(suspects(), is, clearedAgo(20*time.Second, earlier)), wait: 40 * time.Second},
		"there is no cooldown":               {in: verified(suspects(), is, clearedAgo(time.Second), func(in *Input) { in.Config.NodeManagement.Reverify.CooldownSeconds = ptr.To[int32](0) }), begins: true},
		"a pass cleared an earlier one":      {in: verified(suspects(), is, clearedAgo(time.Minute, earlier)), begins: true},
		"it was cleared in the future":       {in: verified(suspects(), is, clearedAgo(-time.Hour)), begins: true},
		"the node is leaving":                {in: verified(suspects(), is, leaving)},
		"it is excluded":                     {in: verified(suspects(), is, unselected)},
		"it opted out":                       {in: verified(suspects(), is, skipped)},
		"it verifies itself":                 {in: verified(suspects(), is, func(in *Input) { in.LocalWorker = &LocalWorker{} })},
		"a request":                          {in: verified(requests("a")), begins: true, request: "a"},
		"a request that was answered":        {in: verified(requests("a"), answered("a", time.Hour))},
		"another one":                        {in: verified(requests("b"), answered("a", time.Hour)), begins: true, request: "b"},
		"another one within the minute":      {in: verified(requests("b"), answered("a", 20*time.Second)), wait: 40 * time.Second},
		"a condition and a request":          {in: verified(suspects(), is, requests("a")), begins: true, request: "a"},
		"a request on a node that fails":     {in: failing(2, requests("a")), begins: true, request: "a"},
		"a request on a node never verified": {in: given(requests("a")), begins: true, request: "a"},
		"a request on a node left alone":     {in: given(ungated, requests("a"))},
		"a request before adoption":          {in: labelledAlone(requests("a"))},
		"a request after adoption":           {in: adopted(requests("a")), begins: true, request: "a"},
		"a request on a node born verified":  {in: labelledAlone(born, requests("a")), begins: true, request: "a"},
		"a request that is too long":         {in: verified(requests(strings.Repeat("a", 254)))},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, deletable())
			s := plan.Change.Record.Suspicion
			if begins := plan.Step == StepRecord && s != nil; begins != tc.begins {
				t.Fatalf("begins %v, want %v: %+v", begins, tc.begins, plan)
			}
			if !tc.begins {
				if plan.Step == StepStart && tc.in.Node.Labelled || plan.RequeueAfter != tc.wait && tc.in.Node.Labelled {
					t.Errorf("step %q, wait %s, want none and %s", plan.Step, plan.RequeueAfter, tc.wait)
				}
				return
			}
			if want := s.Type; plan.Suspect != want {
				t.Errorf("counted as accused by %q, want %q", plan.Suspect, want)
			}
			if s.Request != tc.request || plan.Change.Gate != gateKeep || plan.Change.Label != nil || plan.Recorded != nil {
				t.Errorf("%+v, change %+v", s, plan.Change)
			}
			after := tc.in
			after.Node.Record = plan.Change.Record
			if plan, _ = ask(t, after, deletable()); plan.Step != StepStart {
				t.Errorf("then %q, want a worker", plan.Step)
			}
		})
	}
}

// Suspicions close as many gates as maxUnhealthy allows. On the other nodes, the checks run while the gates are open.
func TestSuspicionCloses(t *testing.T) {
	in := verified(suspects(closing), accused(corev1.ConditionTrue))
	healthy := append(healthyNodes(9, ""), NodeSummary{Name: "n", UID: "u1"})
	closed := func(n int) []NodeSummary {
		fleet := slices.Clone(healthy)
		for i := range n {
			fleet[i].Unhealthy = true
		}
		return fleet
	}
	deletes := verified(suspects(closing), accused(corev1.ConditionTrue), deleting)
	for name, tc := range map[string]struct {
		in     Input
		fleet  []NodeSummary
		closes bool
		asked  string
	}{
		"no other node is closed":        {in, closed(0), true, "[counts fresh node counts]"},
		"one other":                      {in, closed(1), true, "[counts fresh node counts]"},
		"too many":                       {in, closed(2), false, "[counts]"},
		"a pass cleared its type lately": {verified(suspects(closing), accused(corev1.ConditionTrue), clearedAgo(59*time.Minute, earlier)), closed(0), false, "[]"},
		"and long ago":                   {verified(suspects(closing), accused(corev1.ConditionTrue), clearedAgo(time.Hour, earlier)), closed(0), true, "[counts fresh node counts]"},
		"deletions count, with deletion": {deletes, closed(0), true, "[ledger counts fresh node ledger counts]"},
		"a control-plane node":           {verified(suspects(closing), accused(corev1.ConditionTrue), controlplane, gated), closed(0), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan, asked := ask(t, tc.in, world{fleet: tc.fleet})
			if tc.asked != "" && fmt.Sprint(asked) != tc.asked {
				t.Errorf("asked for %v, want %s", asked, tc.asked)
			}
			if closes := plan.Change.Gate == gateClose; closes != tc.closes {
				t.Errorf("closes %v, want %v", closes, tc.closes)
			}
			if tc.closes && (plan.Change.Label == nil || *plan.Change.Label || plan.Change.Record.Suspicion == nil) {
				t.Errorf("the closing write: %+v", plan.Change)
			}
		})
	}
	if s := SummaryOf(verified(underSuspicion, gated)); !s.Unhealthy || s.CanHostProbe {
		t.Error("a node that a suspicion closed does not count as unhealthy, or carries control probes")
	}
	if SummaryOf(verified(underSuspicion)).CanHostProbe {
		t.Error("a suspect node carries control probes")
	}
}

// reverify.taint applies to reboots and age only. Otherwise anybody who may annotate nodes could close their gates.
func TestRequestClosesNoGate(t *testing.T) {
	in := verified(requestUnderWay)
	in.Config.NodeManagement.Reverify.Taint = true
	if plan, _ := ask(t, in, deletable()); plan.Step != StepStart || plan.Change.Gate != gateKeep {
		t.Errorf("%q, gate %v, want a worker on the open node", plan.Step, plan.Change.Gate)
	}
}

func TestSuspicionEnds(t *testing.T) {
	forRequest := func(o *workerpod.Observation) { o.Attempt.Basis.Request = "a" }
	worker := func(outcome attempt.Outcome) func(*Input) { return with(pod(2, openGate, ended(outcome))) }
	probed := func(outcome attempt.Outcome) world {
		return world{fleet: healthyNodes(3, ""), probes: []workerpod.Observation{probe("m0", subject("u1/2"), ended(outcome))}}
	}
	is := accused(corev1.ConditionTrue)
	for name, tc := range map[string]struct {
		in      Input
		world   world
		outcome attempt.Outcome
		cleared bool
		answer  attempt.Outcome
		reasons string
	}{
		"it passes": {in: verified(suspects(), is, underSuspicion, worker(attempt.Passed)), outcome: attempt.Passed, cleared: true,
			reasons: "[VerificationPassed SuspicionCleared]"},
		"it passes and the condition is gone": {in: verified(suspects(), underSuspicion, worker(attempt.Passed)), outcome: attempt.Passed,
			cleared: true, reasons: "[VerificationPassed SuspicionCleared]"},
		"it fails, a verified node passes": {in: verified(suspects(), is, underSuspicion, worker(attempt.Failed)), world: probed(attempt.Passed),
			outcome: attempt.Failed, reasons: "[VerificationFailed]"},
		"it fails, a verified node fails too": {in: verified(suspects(), is, underSuspicion, worker(attempt.Failed)), world: probed(attempt.Failed),
			outcome: attempt.Inconclusive, reasons: "[VerificationInconclusive]"},
		"it fails, there is no verified node": {in: verified(suspects(), is, underSuspicion, worker(attempt.Failed)),
			outcome: attempt.Inconclusive, reasons: "[VerificationInconclusive]"},
		"a shared failure, with deletion": {in: verified(suspects(), is, underSuspicion, deleting, worker(attempt.Failed)), world: probed(attempt.Failed),
			outcome: attempt.Inconclusive, reasons: "[VerificationInconclusive]"},
		"nobody saw it fail": {in: verified(suspects(), is, underSuspicion, with(pod(2, openGate, ended(attempt.Failed), func(o *workerpod.Observation) {
			o.Seen.UnderWay = false
		}))), world: world{fleet: healthyNodes(3, "")}, outcome: attempt.Inconclusive, reasons: "[VerificationInconclusive]"},
		"a request passes": {in: verified(requests("a"), requestUnderWay, with(pod(2, openGate, forRequest, ended(attempt.Passed)))), outcome: attempt.Passed,
			answer: attempt.Passed, reasons: "[VerificationPassed]"},
		"a request fails": {in: verified(requests("a"), requestUnderWay, with(pod(2, openGate, forRequest, ended(attempt.Failed)))), world: probed(attempt.Passed),
			outcome: attempt.Failed, answer: attempt.Failed, reasons: "[VerificationFailed]"},
		"the failure of a request is shared": {in: verified(requests("a"), requestUnderWay, with(pod(2, openGate, forRequest, ended(attempt.Failed)))), world: probed(attempt.Failed),
			outcome: attempt.Inconclusive, answer: attempt.Inconclusive, reasons: "[VerificationInconclusive]"},
		"an attempt from before the request passes": {in: verified(requests("a"), requestUnderWay, worker(attempt.Passed)),
			outcome: attempt.Passed, reasons: "[VerificationPassed]"},
		"an attempt from before the request fails": {in: verified(requests("a"), requestUnderWay, worker(attempt.Failed)), world: probed(attempt.Passed),
			outcome: attempt.Failed, reasons: "[VerificationFailed]"},
		"other checks answer no request": {in: verified(requests("a"), requestUnderWay, with(pod(2, openGate, forRequest, otherChecks, ended(attempt.Passed)))),
			outcome: attempt.Inconclusive, reasons: "[VerificationInconclusive]"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, tc.world)
			r := plan.Change.Record
			if plan.Step != StepRecord || r.LastOutcome != tc.outcome {
				t.Fatalf("%q, %s, want %s recorded: %+v", plan.Step, r.LastOutcome, tc.outcome, plan)
			}
			if plan.Change.Gate != gateKeep || plan.Change.Label != nil && !*plan.Change.Label {
				t.Errorf("gate %v, although it is the first failure", plan.Change.Gate)
			}
			if cleared := len(r.Cleared) == 1 && r.Suspicion == nil; cleared != tc.cleared {
				t.Errorf("cleared %v, want %v: %+v", cleared, tc.cleared, r)
			}
			if (r.Suspicion == nil) != (tc.outcome == attempt.Passed) {
				t.Errorf("suspicion %+v after %s", r.Suspicion, tc.outcome)
			}
			if plan.Change.Answer != tc.answer || tc.answer != "" && r.Request != "a" {
				t.Errorf("answer %q to %q, want %q", plan.Change.Answer, r.Request, tc.answer)
			}
			if got := fmt.Sprint(reasons(plan.Events)); got != tc.reasons {
				t.Errorf("events %s, want %s", got, tc.reasons)
			}
			counted := SuspicionResult("")
			if s := tc.in.Node.Record.Suspicion; s.Type != "" {
				counted = map[attempt.Outcome]SuspicionResult{attempt.Passed: SuspicionCleared, attempt.Failed: SuspicionConfirmed}[tc.outcome]
			}
			if done := plan.Recorded; done.Suspect != counted || (done.Suspicion == deadlock) != (counted != "") || done.Answer != tc.answer {
				t.Errorf("counted as %q of %q, answer %q; want %q, %q", done.Suspect, done.Suspicion, done.Answer, counted, tc.answer)
			}
		})
	}
}

// A worker that began before a condition's transition says nothing about what came after it.
func TestLaterTransitionIsNotCleared(t *testing.T) {
	other := config.SuspectCondition{Type: "ReadonlyFilesystem", Status: corev1.ConditionTrue}
	in := verified(suspects(), accused(corev1.ConditionTrue), underSuspicion, with(pod(2, openGate, ended(attempt.Passed))))
	in.Profile.SuspectConditions = append(in.Profile.SuspectConditions, other)
	in.Node.Conditions = append(in.Node.Conditions, corev1.NodeCondition{Type: other.Type, Status: other.Status, LastTransitionTime: metav1.NewTime(now)})
	in.SuspectSince[other.Type] = now.Add(-time.Second) // the worker began three seconds ago
	plan, _ := ask(t, in, world{})
	if r := plan.Change.Record; len(r.Cleared) != 1 || r.Cleared[0].Type != deadlock {
		t.Errorf("cleared %+v, want %s alone", r.Cleared, deadlock)
	}
	in.SuspectSince[other.Type] = now.Add(-time.Minute)
	if plan, _ = ask(t, in, world{}); len(plan.Change.Record.Cleared) != 2 {
		t.Errorf("cleared %+v, want both", plan.Change.Record.Cleared)
	}
}

// After an outage that nodes share, the first failure without a failing probe may still be part of the outage. That
// matters once the gate is closed: otherwise it stays open until the next failure.
func TestSharedSuspicionEndsUnclear(t *testing.T) {
	in := verified(suspects(), accused(corev1.ConditionTrue), underSuspicion, gated, unlabelled, with(pod(2, ended(attempt.Failed))), func(in *Input) {
		r := &in.Node.Record
		r.LastOutcome, r.LastTime, r.Shared, r.Inconclusive = attempt.Inconclusive, ago(time.Minute), 1, 1
	})
	w := world{fleet: healthyNodes(3, ""), probes: []workerpod.Observation{probe("m0", subject("u1/2"), ended(attempt.Passed))}}
	plan, _ := ask(t, in, w)
	if r := plan.Change.Record; r.LastOutcome != attempt.Inconclusive || r.Shared != 0 {
		t.Fatalf("%+v", r)
	}
	in.Node.Record.Shared = 0
	if plan, _ = ask(t, in, w); plan.Change.Record.LastOutcome != attempt.Failed {
		t.Errorf("then %+v, want a failure", plan.Change.Record)
	}
}

// A suspicion is confirmed once, by its first failure. It begins only once, whatever is requested meanwhile.
func TestSuspicionIsCountedOnce(t *testing.T) {
	worker := with(pod(3, openGate, ended(attempt.Failed)))
	again := failing(1, suspects(), accused(corev1.ConditionTrue), underSuspicion, worker)
	again.Node.Record.Sequence = 2
	w := world{fleet: healthyNodes(3, ""), probes: []workerpod.Observation{probe("m0", subject("u1/3"), ended(attempt.Passed))}}
	if plan, _ := ask(t, again, w); plan.Recorded == nil || plan.Recorded.Result.Outcome != attempt.Failed || plan.Recorded.Suspect != "" {
		t.Errorf("the second failure: %+v", plan.Recorded)
	}
	if plan, _ := ask(t, verified(suspects(), accused(corev1.ConditionTrue), underSuspicion, requests("a")), world{}); plan.Step != StepRecord || plan.Suspect != "" {
		t.Errorf("a request under a suspicion: %q, accused by %q", plan.Step, plan.Suspect)
	}
}

// A request on a node that waits for its next attempt starts that attempt at once. A request that was answered does
// not.
func TestRequestDoesNotWaitForBackoff(t *testing.T) {
	in := failing(5, requestUnderWay)
	if plan, _ := ask(t, in, world{}); plan.Step != StepStart {
		t.Errorf("%q, want the attempt that was asked for", plan.Step)
	}
	in.Node.Record.Request = "a"
	if plan, _ := ask(t, in, world{}); plan.Step != StepNone || plan.RequeueAfter == 0 {
		t.Errorf("%q in %s, want to wait", plan.Step, plan.RequeueAfter)
	}
	in.Node.Requested = "b"
	in.Node.Record.RequestTime = ptr.To(now.Add(-59 * time.Second))
	if plan, _ := ask(t, in, world{}); plan.Step != StepNone || plan.RequeueAfter > time.Second {
		t.Errorf("%q in %s, want to wait until a minute after the request before", plan.Step, plan.RequeueAfter)
	}
	in.Node.Record.RequestTime = ptr.To(now.Add(-2 * time.Minute))
	if plan, _ := ask(t, in, world{}); plan.Step != StepRecord || plan.Change.Record.Suspicion.Request != "b" {
		t.Errorf("%q, want the next request to be written down", plan.Step)
	}
}

// A detector that flaps for ten minutes on a node that passes causes one verification a minute, and closes no gate after
// the first.
func TestFlappingDetector(t *testing.T) {
	in := verified(suspects(closing), accused(corev1.ConditionTrue))
	began, closed := 0, 0
	for second := range 600 {
		at := now.Add(time.Duration(second) * time.Second)
		in.Node.Conditions[0].LastTransitionTime = metav1.NewTime(at)
		in.SuspectSince[deadlock] = at
		plan, _ := askAt(t, in, world{fleet: append(healthyNodes(9, ""), NodeSummary{Name: "n", UID: "u1"})}, at)
		if plan.Step != StepRecord || plan.Change.Record.Suspicion == nil {
			continue
		}
		if began++; plan.Change.Gate == gateClose {
			closed++
		}
		in.Node.Record = plan.Change.Record
		passed := attempt.Attempt{Number: in.Node.Record.Sequence + 1}
		in.Node.Record = recordResult(in, budgetOf(in), passed, attempt.Result{Outcome: attempt.Passed}, at).Change.Record
	}
	if began < 9 || began > 10 || closed != 1 {
		t.Errorf("%d verifications, %d of them behind a closed gate", began, closed)
	}
}

// What is written can be read, whatever the API server holds of the node: else the record would be lost, with all that
// protects the node, and the reason to write it would be new at each look.
func TestWhatIsWrittenCanBeRead(t *testing.T) {
	since := func(at time.Time) func(*Input) {
		return func(in *Input) { in.Node.Conditions[0].LastTransitionTime = metav1.NewTime(at) }
	}
	is, passes := accused(corev1.ConditionTrue), with(pod(2, openGate, ended(attempt.Passed)))
	many := func(in *Input) {
		in.Profile.SuspectConditions = nil
		for i := range 120 {
			kind := corev1.NodeConditionType(fmt.Sprint("Problem", i))
			in.Profile.SuspectConditions = append(in.Profile.SuspectConditions, config.SuspectCondition{Type: kind, Status: corev1.ConditionTrue})
			in.Node.Record.Cleared = append(in.Node.Record.Cleared, marks.Suspicion{Type: kind, Status: corev1.ConditionTrue, Time: now})
		}
		in.Node.Record.Cleared = in.Node.Record.Cleared[:100]
		in.Node.Record.Suspicion = &marks.Suspicion{Type: "Problem110", Status: corev1.ConditionTrue, Time: now}
	}
	slow := pod(2, openGate, ended(attempt.Passed))
	slow.Attempt.Result.Duration = 56 * 365 * 24 * time.Hour // the node's clock began in 1970
	for name, in := range map[string]Input{
		"a condition without a time":     verified(suspects(), is, since(time.Time{})),
		"one of before 1970":             verified(suspects(), is, since(time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC))),
		"one beyond the year 9999":       verified(suspects(), is, since(time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)))),
		"with a request":                 verified(suspects(), is, since(time.Time{}), requests("a")),
		"a request":                      verified(requests(strings.Repeat("\u20ac", 84))),
		"a condition without it, passed": verified(suspects(), is, since(time.Time{}), underSuspicion, passes),
		"more types than a record holds": verified(many, passes),
		"a worker of half a century":     verified(underSuspicion, with(slow)),
	} {
		plan, _ := ask(t, in, world{})
		if plan.Step != StepRecord || !readable(in, plan.Change.Record) {
			t.Errorf("%s: %q, record %+v", name, plan.Step, plan.Change.Record)
			continue
		}
		r := plan.Change.Record
		in.Node.Record, in.Pods = r, nil
		if s, _, _ := newSuspicion(in, now); s != nil {
			t.Errorf("%s: it is suspect again: %+v, record %+v", name, s, r)
		}
		if len(r.Cleared) > 0 && r.Cleared[len(r.Cleared)-1].Time != now {
			t.Errorf("%s: what this pass cleared is not remembered: %+v", name, r.Cleared)
		}
	}
}
