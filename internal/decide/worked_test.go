package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// askedBy is what asks a verified node for another verification.
var askedBy = map[string]func(*Input){
	"a reboot": rebootedTo("b2"),
	"its age": func(in *Input) {
		in.Config.NodeManagement.Reverify.Interval.Duration = time.Minute
	},
	"its label":    unlabelled,
	"other checks": func(in *Input) { in.Node.Record.Checks, in.Node.Labelled = "c0", false },
	"a condition": func(in *Input) {
		in.Node.Record.Suspicion = &marks.Suspicion{Type: "GPUProblem", Status: corev1.ConditionTrue, Transition: ago(time.Minute)}
	},
	"a request": func(in *Input) { in.Node.Record.Suspicion = &marks.Suspicion{Request: "r1"} },
}

// inPool puts the node into NodePool pool and zone a.
func inPool(in *Input) { in.Node.Owner.Pool, in.Node.Zone = "pool", "a" }

// reverifies is a node that worked and whose next attempt, for the given cause, has just failed.
func reverifies(cause string, change ...func(*Input)) Input {
	return verified(append([]func(*Input){inPool, askedBy[cause], func(in *Input) {
		in.Pods = []workerpod.Observation{failsIn(*in)}
	}}, change...)...)
}

// failsIn is the worker of the node's next attempt, which failed a second ago.
func failsIn(in Input) workerpod.Observation {
	return pod(in.Node.Record.Sequence+1, openGate, ended(attempt.Failed), resultSeen(failedAt), func(o *workerpod.Observation) {
		o.Attempt.Basis.BootID = in.Node.BootID
		if s := in.Node.Record.Suspicion; s != nil {
			o.Attempt.Basis.Request = s.Request
		}
	})
}

// after is the node once the plan is written, with another attempt that has just failed.
func after(in Input, p Plan) Input {
	in.Node.Record = p.Change.Record
	if p.Change.Label != nil {
		in.Node.Labelled = *p.Change.Label
	}
	in.Node.Gated = in.Node.Gated || p.Change.Gate == gateClose
	in.Pods = []workerpod.Observation{failsIn(in)}
	return in
}

// elsewherePasses is a probe of the group that passed beside the failure, and its host.
func elsewherePasses() world {
	return world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}}
}

func elsewhereFails() world {
	return world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Failed))}}
}

// noneToCompare has no verified node of the group.
func noneToCompare() world { return world{fleet: append(healthyNodes(2, "other"), self("pool"))} }

// A node that worked is closed at the second failure in a row that a control probe shows to be its own, whatever asked
// for the verification, with deletion on or off.
func TestNodeThatWorkedIsClosedAtItsSecondOwnFailure(t *testing.T) {
	for cause := range askedBy {
		for name, change := range map[string]func(*Input){
			"deletion off": func(*Input) {}, "deletion on": deleting, "no probe before a deletion": func(in *Input) { deleting(in); noProbe(in) },
			"one retry": func(in *Input) {
				in.Config.Reconciliation.MaxRetries = 1
				in.Config.Reconciliation.ExhaustedRetrySeconds = -1
			},
			"the record": func(in *Input) {
				in.Node.Record.VerifiedTime, in.Node.Labelled = &in.Node.Created, false
			},
		} {
			t.Run(cause+", "+name, func(t *testing.T) {
				in := reverifies(cause, change)
				first, plan := recorded(t, in, elsewherePasses())
				if plan.Change.Gate != gateKeep || plan.Change.Label != nil || first.LastOutcome != attempt.Failed || first.Attempts != 1 || !first.Probed || first.NextAttemptTime == nil {
					t.Fatalf("the first: %+v", plan.Change)
				}
				in = after(in, plan)
				between := in
				between.Pods = nil
				if c, _ := ask(t, between, world{}); reasonOf(c.Condition) != marks.ReasonChecksFailed || StatusOf(between, now) != StatusFailed || c.Step != StepNone || c.RequeueAfter <= 0 {
					t.Errorf("between: %s, %+v", StatusOf(between, now), c)
				}
				if _, plan = recorded(t, in, elsewherePasses()); plan.Change.Gate != gateClose || plan.Change.Label == nil || *plan.Change.Label {
					t.Errorf("the second: %+v", plan.Change)
				}
			})
		}
	}
}

// What others share, or nobody could compare, leaves the gate and the label as they are.
func TestSharedFailureChangesNoGate(t *testing.T) {
	full := elsewherePasses()
	full.probes = nil
	refused := full
	refused.probeRefused = "a quota"
	inconclusive := world{fleet: healthyNodes(1, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Inconclusive))}}
	onItself := world{fleet: append(healthyNodes(0, ""), self("pool")), probes: []workerpod.Observation{probe("n", ended(attempt.Passed))}}
	for cause := range askedBy {
		for name, w := range map[string]world{"the probe fails too": elsewhereFails(), "there is none to compare": noneToCompare(),
			"it is alone": {}, "the probe is refused": refused, "the probe cannot run": inconclusive, "its own pass for another": onItself} {
			for del, change := range map[string]func(*Input){"": func(*Input) {}, ", deletion on": deleting,
				", closed first": func(in *Input) { in.Node.Gated, in.Node.Labelled = true, false; in.Pods[0].Attempt.Basis.Gated = true },
				", after one of its own and with a deadline": func(in *Input) {
					in.Profile.VerificationDeadlineSeconds = 60
					in.Node.Record.Since, in.NeedsVerificationSince = ago(time.Minute), now
				}} {
				t.Run(cause+", "+name+del, func(t *testing.T) {
					in := reverifies(cause, change)
					if strings.Contains(del, "one of its own") {
						_, plan := recorded(t, in, elsewherePasses())
						in = after(in, plan)
						in.Node.Record.Since, in.NeedsVerificationSince = ago(30*time.Minute), *ago(time.Hour)
					}
					r, plan := recorded(t, in, w)
					if plan.Change.Gate != gateKeep || plan.Change.Label != nil || r.LastOutcome != attempt.Inconclusive || r.LastReason != attempt.ReasonSharedFailure ||
						r.LastCheck != "" || r.Held != "" || r.Attempts != 0 || r.Probed || !strings.Contains(r.LastMessage, "check dns: Timeout: no answer") {
						t.Fatalf("%+v", plan.Change)
					}
					if reasons(plan.Events)[0] != EventInconclusive.Name || len(plan.Events) != 1 {
						t.Errorf("events %v", reasons(plan.Events))
					}
					in = after(in, plan)
					in.Pods, in.Sharing = nil, 4
					if in.Node.Record.Since != nil {
						in.Node.Record.Since = ago(30 * time.Minute) // the outage has lasted for longer than the deadline
					}
					in.Node.Condition = &corev1.NodeCondition{Reason: marks.ReasonDeadlineExceeded}
					next, _ := ask(t, in, world{})
					if c := next.Condition; next.Step != StepNone || reasonOf(c) != marks.ReasonWorkerInconclusive || !strings.Contains(c.Message, "4 nodes") {
						t.Errorf("then: %+v", next)
					}
					s := SummaryOf(in)
					if StatusOf(in, now) != StatusPending || !SharesFailure(in) || s.Unhealthy != (in.Node.Record.Suspicion != nil && in.Node.Gated) || s.CanHostProbe || mayChangeCondition(in) {
						t.Errorf("status %s, %+v", StatusOf(in, now), s)
					}
				})
			}
		}
	}
}

// A failure that others share ends a row of the node's own.
func TestSharedFailureBreaksARow(t *testing.T) {
	in := reverifies("a reboot")
	for i, w := range []world{elsewherePasses(), elsewhereFails(), elsewherePasses(), noneToCompare(), elsewherePasses()} {
		_, plan := recorded(t, in, w)
		if plan.Change.Gate != gateKeep || plan.Change.Label != nil {
			t.Fatalf("failure %d: %+v", i+1, plan.Change)
		}
		in = after(in, plan)
	}
	if _, plan := recorded(t, in, elsewherePasses()); plan.Change.Gate != gateClose {
		t.Errorf("the second in a row: %+v", plan.Change)
	}
}

// So does an attempt that proves nothing, and one that failed in another boot.
func TestTwoFailuresInARowAreOfOneRun(t *testing.T) {
	in := reverifies("its label")
	_, plan := recorded(t, in, elsewherePasses())
	second := after(in, plan)
	puzzled := second
	puzzled.Pods = []workerpod.Observation{pod(3, openGate, imageMissing)}
	_, plan = recorded(t, puzzled, world{})
	if _, plan = recorded(t, after(puzzled, plan), elsewherePasses()); plan.Change.Gate != gateKeep {
		t.Errorf("after one that proves nothing: %+v", plan.Change)
	}
	rebooted := second
	rebooted.Node.BootID = "b2"
	rebooted.Pods = []workerpod.Observation{failsIn(rebooted)}
	if _, plan = recorded(t, rebooted, elsewherePasses()); plan.Change.Gate != gateKeep {
		t.Errorf("after one of another boot: %+v", plan.Change)
	}
	unprobed := second
	unprobed.Node.Record.Probed = false
	if _, plan = recorded(t, unprobed, elsewherePasses()); plan.Change.Gate != gateKeep {
		t.Errorf("after one without a probe: %+v", plan.Change)
	}
}

// A failure whose time nobody saw closes nothing, however often.
func TestUnseenFailureClosesNoGate(t *testing.T) {
	in := reverifies("a reboot")
	for range 3 {
		shownEnded(&in.Pods[0])
		r, plan := recorded(t, in, elsewherePasses())
		if plan.Change.Gate != gateKeep || plan.Change.Label != nil || r.LastReason != attempt.ReasonFailureUnseen {
			t.Fatalf("%+v", plan.Change)
		}
		in = after(in, plan)
	}
}

// A worker that does not end closes its node's gate as any failure does.
func TestStuckWorkerClosesTheGateTheSecondTime(t *testing.T) {
	in := reverifies("its label", stuckWorker(1))
	w := world{fleet: healthyNodes(2, "pool"), probes: []workerpod.Observation{probe("pool-m0", ended(attempt.Passed))}}
	r, plan := recorded(t, in, w)
	if r.LastReason != attempt.ReasonWorkerStuck || plan.Change.Gate != gateKeep || plan.Change.Label != nil {
		t.Fatalf("%+v", plan.Change)
	}
	in = after(in, plan)
	stuckWorker(1)(&in)
	in.Node.Record.LastTime = ago(20 * time.Second)
	if r, plan = recorded(t, in, w); r.LastReason != attempt.ReasonWorkerStuck || plan.Change.Gate != gateClose {
		t.Errorf("the second: %+v", plan.Change)
	}
}

// stuckWorker is the worker of an earlier attempt that does not end.
func stuckWorker(number int32) func(*Input) {
	return func(in *Input) {
		in.Pods = []workerpod.Observation{pod(number, openGate, terminating, func(o *workerpod.Observation) {
			o.HasRunningContainer, o.Seen.Terminating = true, now.Add(-time.Hour)
			o.Recorded = true
		})}
	}
}

// The probe for a gate runs in the group, in the node's zone first.
func TestProbeOfTheGroup(t *testing.T) {
	in := reverifies("a reboot")
	in.Pods[0].Seen.Result = failedAt
	fleet := append(healthyNodes(4, "pool"), healthyNodes(4, "other")...)
	for i := range fleet {
		fleet[i].Zone = map[bool]string{true: "a", false: "b"}[i == 2 || i > 3]
	}
	for n := range int32(8) {
		in.Node.Record.Sequence = n
		in.Pods = []workerpod.Observation{failsIn(in)}
		plan, _ := ask(t, in, world{fleet: fleet})
		if plan.Step != StepProbe || plan.Probe.On.Name != "pool-m2" || plan.Probe.Group != ProbeGroup(in) {
			t.Fatalf("%+v", plan.Probe)
		}
	}
	tried := []workerpod.Observation{probe("pool-m2", ended(attempt.Inconclusive))}
	if plan, _ := ask(t, in, world{fleet: fleet, probes: tried}); plan.Step != StepProbe || !strings.HasPrefix(plan.Probe.On.Name, "pool-") {
		t.Errorf("then %+v", plan.Probe)
	}
	// For a deletion, a probe of another pool may do. It says nothing about the group.
	never := failed(1)
	plan, _ := ask(t, never, world{fleet: fleet[4:]})
	if groups := ProbeGroups(never); plan.Step != StepProbe || len(groups) != 2 || plan.Probe.Group != groups[1] || len(ProbeGroups(in)) != 1 || ProbeGroups(in)[0] != groups[0] {
		t.Errorf("%+v: groups %v of one that never passed, %v of one that worked", plan.Probe, ProbeGroups(never), ProbeGroups(in))
	}
}

// Once closed for its own fault, a node needs no probe for its gate: with deletion off, none runs.
func TestClosedNodeNeedsNoProbe(t *testing.T) {
	closed := func(attempts int32) Input {
		in := failing(attempts, inPool, due, func(in *Input) { in.Node.Record.VerifiedTime, in.Node.Record.Probed = ago(time.Hour), true })
		in.Pods = []workerpod.Observation{pod(attempts+1, ended(attempt.Failed), resultSeen(failedAt))}
		return in
	}
	for attempts, probes := range map[int32]bool{0: true, 1: true, 2: false, 4: false, 5: false} {
		if plan, asked := ask(t, closed(attempts), world{fleet: healthyNodes(3, "pool")}); (plan.Step == StepProbe) != probes {
			t.Errorf("%d failures: %+v, asked for %v", attempts, plan, asked)
		}
	}
	// A person who removes the taint puts it to work again.
	open := closed(5)
	open.Node.Gated, open.Pods = false, nil
	if plan, _ := ask(t, open, world{}); plan.Step != StepStart {
		t.Errorf("opened by hand: %+v", plan)
	}
}

// Without a controller there is nothing to compare with: a node that verifies itself is closed once its retries are
// exhausted.
func TestProcessOnTheNodeClosesOnceExhausted(t *testing.T) {
	in := verified(unlabelled, byItself)
	for n := int32(1); n <= in.Config.Reconciliation.MaxRetries; n++ {
		ran(pod(n+1, openGate, ended(attempt.Failed)))(&in)
		r, plan := recorded(t, in, world{})
		if closes := n == in.Config.Reconciliation.MaxRetries; (plan.Change.Gate == gateClose) != closes || r.Attempts != n {
			t.Fatalf("failure %d: %+v", n, plan.Change)
		}
		in.Node.Record = r
	}
}

// A node in service is not acted on, whatever its deadline says.
func TestDeadlineActsOnNoNodeInService(t *testing.T) {
	in := verified(unlabelled, deleting, inPool, func(in *Input) {
		in.Config.NodeManagement.Remediation.NeverVerifiedOnly = ptr.To(false)
		in.Profile.VerificationDeadlineSeconds = 60
		in.Node.Record.Since, in.NeedsVerificationSince = ago(time.Hour), *ago(time.Hour)
		in.Node.Record.LastOutcome = ""
	})
	plan, _ := ask(t, in, world{waits: []Unmet{{Kind: "pods", Name: "agent"}}, fleet: healthyNodes(3, "pool")})
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonDeadlineExceeded {
		t.Errorf("%+v", plan)
	}
}

// In an outage, waits grow with the number of nodes that share it: a few look often enough to see its end soon, and
// thousands make no storm.
func TestBackoffOfAnOutage(t *testing.T) {
	for sharing, most := range map[int]time.Duration{0: time.Minute, 1: time.Minute, 4: time.Minute, 60: time.Minute, 300: 5 * time.Minute, 5000: 10 * time.Minute} {
		for _, seconds := range []int32{600, -1} {
			in := reverifies("a reboot", func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = seconds })
			in.Sharing = sharing
			wait := time.Duration(0)
			for range 30 {
				r, plan := recorded(t, in, elsewhereFails())
				wait, in = r.NextAttemptTime.Sub(*r.LastTime), after(in, plan)
			}
			if wait > most || wait < most*3/4 {
				t.Errorf("%d nodes, exhaustedRetrySeconds %d: waits %s, want up to %s", sharing, seconds, wait, most)
			}
		}
	}
}

// A pass of the group makes a node due that shares a failure, and one that is exhausted.
func TestPassOfTheGroupWakes(t *testing.T) {
	sharing := reverifies("a reboot")
	_, plan := recorded(t, sharing, elsewhereFails())
	sharing = after(sharing, plan)
	sharing.Pods = nil
	for name, in := range map[string]Input{"shares a failure": sharing, "exhausted": failing(5, inPool),
		"and no retry follows": failing(5, func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = -1 })} {
		in.Node.Record.LastTime = ago(200 * time.Millisecond)
		for passed, step := range map[time.Duration]Step{0: StepStart, 100 * time.Millisecond: StepStart, 300 * time.Millisecond: StepNone, time.Hour: StepNone} {
			in.GroupPassed = now.Add(-passed)
			if in.Config.Reconciliation.ExhaustedRetrySeconds < 0 {
				step = StepNone
			}
			if plan, _ := ask(t, in, world{}); plan.Step != step {
				t.Errorf("%s, a pass %s ago: %+v", name, passed, plan)
			}
		}
	}
}

// Only what shares a failure, or is exhausted and would be tried again, waits for its group.
func TestGroupNamesWhatWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		in                 Input
		sharing, exhausted bool
	}{
		"new":       {given(), false, false},
		"verified":  {verified(), false, false},
		"failing":   {failing(2), false, false},
		"exhausted": {failing(5), false, true},
		"exhausted, and its retries are off": {failing(5, func(in *Input) {
			in.Config.Reconciliation.ExhaustedRetrySeconds = -1
		}), false, false},
		"excluded": {failing(5, skipped), false, false},
	} {
		sharing, exhausted := Waits(tc.in)
		if sharing != tc.sharing || exhausted != tc.exhausted {
			t.Errorf("%s: shares %v, exhausted %v", name, sharing, exhausted)
		}
	}
}
