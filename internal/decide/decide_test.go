package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// given is a tainted node that nothing is known of yet, with the default configuration.
func given(change ...func(*Input)) Input {
	c := &config.Config{}
	c.SetDefaults()
	in := Input{Config: c, Profile: c.For(nil), Selected: true,
		Node: node.Facts{Name: "n", UID: "u1", BootID: "b1", Gated: true, Ready: true}}
	for _, f := range change {
		f(&in)
	}
	return in
}

// verified is a node that passed its first attempt an hour ago.
func verified(change ...func(*Input)) Input {
	return given(append([]func(*Input){func(in *Input) {
		in.Node.Gated, in.Node.Labelled, in.Node.HasRecord = false, true, true
		in.Node.Record = node.Record{NodeUID: "u1", BootID: "b1", Sequence: 1, LastOutcome: node.OutcomePassed,
			LastTime: ago(time.Hour), VerifiedTime: ago(time.Hour)}
	}}, change...)...)
}

// failing is a tainted node with so many failures behind it, the last a second ago.
func failing(attempts int32, change ...func(*Input)) Input {
	return given(append([]func(*Input){func(in *Input) {
		in.Node.HasRecord = true
		in.Node.Record = node.Record{NodeUID: "u1", BootID: "b1", Sequence: attempts, Attempts: attempts,
			LastOutcome: node.OutcomeFailed, LastCheck: "dns", LastReason: "Timeout", LastMessage: "no answer", LastTime: ago(time.Second),
			NextAttemptTime: ptr.To(metav1.NewMicroTime(now.Add(10 * time.Second)))}
	}}, change...)...)
}

func ago(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }

// pod is a worker of the attempt, created and started three seconds ago.
func pod(attempt int32, change ...func(*workerpod.Observation)) workerpod.Observation {
	o := workerpod.Observation{Name: "verify-n", UID: "p1", Node: "n", Purpose: workerpod.PurposeVerify, Attempt: attempt, BootID: "b1",
		Created: now.Add(-3 * time.Second), Started: now.Add(-3 * time.Second), State: workerpod.Running}
	for _, f := range change {
		f(&o)
	}
	return o
}

func ended(outcome node.Outcome) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		o.State, o.Outcome, o.Ended = workerpod.Finished, outcome, now
		if outcome != node.OutcomePassed {
			o.Check, o.Reason, o.Message = "dns", "Timeout", "no answer"
		}
	}
}

func with(pods ...workerpod.Observation) func(*Input) {
	return func(in *Input) { in.Pods = pods }
}

func TestNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want bool
	}{
		"tainted":                               {given(), true},
		"tainted though labelled":               {verified(func(in *Input) { in.Node.Gated = true }), true},
		"never tainted, never verified":         {given(func(in *Input) { in.Node.Gated = false }), false},
		"never tainted, verifyUntainted":        {given(func(in *Input) { in.Node.Gated = false; in.Config.NodeManagement.VerifyUntainted = true }), true},
		"verified":                              {verified(), false},
		"label removed":                         {verified(func(in *Input) { in.Node.Labelled = false }), true},
		"rebooted":                              {verified(func(in *Input) { in.Node.BootID = "b2" }), true},
		"rebooted, onReboot off":                {verified(func(in *Input) { in.Node.BootID = "b2"; in.Config.NodeManagement.Reverify.OnReboot = ptr.To(false) }), false},
		"boot ID not reported":                  {verified(func(in *Input) { in.Node.BootID = "" }), false},
		"verdict without a boot ID":             {verified(func(in *Input) { in.Node.Record.BootID = "" }), false},
		"younger than the interval":             {verified(func(in *Input) { in.Config.NodeManagement.Reverify.Interval.Duration = 2 * time.Hour }), false},
		"as old as the interval":                {verified(func(in *Input) { in.Config.NodeManagement.Reverify.Interval.Duration = time.Hour }), true},
		"labelled by a person, no record":       {given(func(in *Input) { in.Node.Gated, in.Node.Labelled = false, true }), false},
		"re-verification that was inconclusive": {verified(func(in *Input) { in.Node.Record.LastOutcome = node.OutcomeInconclusive }), true},
	} {
		if got := Needed(tc.in, now); got != tc.want {
			t.Errorf("%s: Needed = %v, want %v", name, got, tc.want)
		}
	}
}

func TestSubject(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Input)
		want   bool
	}{
		"plain":                  {func(*Input) {}, true},
		"skip annotation":        {func(in *Input) { in.Node.Skip = true }, false},
		"not selected":           {func(in *Input) { in.Selected = false }, false},
		"control plane":          {func(in *Input) { in.Node.ControlPlane = true }, false},
		"control plane included": {func(in *Input) { in.Node.ControlPlane = true; in.Config.NodeManagement.IncludeControlPlane = true }, true},
	} {
		in := given(tc.change)
		if got := Subject(in); got != tc.want {
			t.Errorf("%s: Subject = %v, want %v", name, got, tc.want)
		}
		if plan := Verify(in, now); (plan.Step == StepStart) != tc.want {
			t.Errorf("%s: step %s", name, plan.Step)
		}
	}
}

func TestVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		in      Input
		step    Step
		reason  string // of the condition; empty for none
		attempt int32  // of StepStart, or recorded by StepRecord
		outcome node.Outcome
		deletes string
		wait    time.Duration
	}{
		"new node":                              {in: given(), step: StepStart, attempt: 1},
		"deleted node":                          {in: given(func(in *Input) { in.Node.Deleting = true }), step: StepNone},
		"waits for prerequisites":               {in: given(func(in *Input) { in.Waiting = []string{"cni"} }), step: StepNone, reason: node.ReasonWaitingForPrerequisites},
		"prerequisites only before first":       {in: failing(1, due, func(in *Input) { in.Waiting = []string{"cni"} }), step: StepStart, attempt: 2, reason: node.ReasonChecksFailed},
		"young worker is not worth a condition": {in: given(with(pod(1))), step: StepNone, wait: 2 * time.Second},
		"worker takes longer":                   {in: given(with(pod(1, created(6*time.Second)))), step: StepNone, reason: node.ReasonVerifying, wait: 119 * time.Second},
		"worker passed":                         {in: given(with(pod(1, ended(node.OutcomePassed)))), step: StepRecord, attempt: 1, outcome: node.OutcomePassed},
		"worker failed":                         {in: given(with(pod(1, ended(node.OutcomeFailed)))), step: StepRecord, attempt: 1, outcome: node.OutcomeFailed},
		"worker inconclusive":                   {in: given(with(pod(1, ended(node.OutcomeInconclusive)))), step: StepRecord, attempt: 1, outcome: node.OutcomeInconclusive},
		"ran past its timeout":                  {in: given(with(pod(1, created(126*time.Second)))), step: StepRecord, attempt: 1, outcome: node.OutcomeFailed},
		"ran past its timeout on a lost node": {in: given(with(pod(1, created(126*time.Second))), func(in *Input) { in.Node.Lost = true }),
			step: StepRecord, attempt: 1, outcome: node.OutcomeInconclusive},
		"not started in time":    {in: given(with(pod(1, created(301*time.Second), pending))), step: StepRecord, attempt: 1, outcome: node.OutcomeInconclusive},
		"unschedulable at first": {in: given(with(pod(1, pending, unschedulable(9*time.Second)))), step: StepNone, wait: time.Second},
		"unschedulable":          {in: given(with(pod(1, pending, unschedulable(11*time.Second)))), step: StepRecord, attempt: 1, outcome: node.OutcomeInconclusive},
		"passed before a reboot": {in: given(with(pod(1, ended(node.OutcomePassed))), func(in *Input) { in.Node.BootID = "b2" }),
			step: StepRecord, attempt: 1, outcome: node.OutcomeInconclusive},
		"pod vanished":           {in: given(func(in *Input) { in.Lost = 1 }), step: StepRecord, attempt: 1, outcome: node.OutcomeInconclusive},
		"hint of an older pod":   {in: failing(2, due, func(in *Input) { in.Lost = 2 }), step: StepStart, attempt: 3, reason: node.ReasonChecksFailed},
		"backoff":                {in: failing(1), step: StepNone, reason: node.ReasonChecksFailed, wait: 10 * time.Second},
		"backoff over":           {in: failing(1, due), step: StepStart, attempt: 2, reason: node.ReasonChecksFailed},
		"exhausted":              {in: failing(5), step: StepNone, reason: node.ReasonRetriesExhausted, wait: 10 * time.Second},
		"exhausted for good":     {in: failing(5, func(in *Input) { in.Node.Record.NextAttemptTime = nil }), step: StepNone, reason: node.ReasonRetriesExhausted},
		"exhausted, tried again": {in: failing(5, due), step: StepStart, attempt: 6, reason: node.ReasonRetriesExhausted},
		"exhausted, deletion on": {in: failing(5, deleting), step: StepRemediate, reason: node.ReasonRetriesExhausted, wait: 10 * time.Second},
		"exhausted long ago, deletion on, is confirmed first":           {in: failing(5, deleting, due), step: StepStart, attempt: 6, reason: node.ReasonRetriesExhausted},
		"exhausted before deletion was on, is confirmed beside a probe": {in: failing(5, deleting, unprobed), step: StepStart, attempt: 6, reason: node.ReasonRetriesExhausted},
		"exhausted before deletion was on, no probe wanted": {in: failing(5, deleting, unprobed, func(in *Input) { in.Config.NodeManagement.Remediation.ControlProbe = ptr.To(false) }),
			step: StepRemediate, reason: node.ReasonRetriesExhausted},
		"its NodeClaim is on its way out": {in: failing(5, deleting, unprobed, func(in *Input) { in.Node.Record.Deleting = "claim" }), step: StepRemediate, reason: node.ReasonRetriesExhausted},
		"failed, deletion on":             {in: given(deleting, with(pod(1, ended(node.OutcomeFailed)))), step: StepAttribute},
		"failed, deletion on, no probe wanted": {in: given(deleting, with(pod(1, ended(node.OutcomeFailed))), func(in *Input) { in.Config.NodeManagement.Remediation.ControlProbe = ptr.To(false) }),
			step: StepRecord, attempt: 1, outcome: node.OutcomeFailed},
		"reboot starts afresh":                {in: failing(5, func(in *Input) { in.Node.BootID = "b2" }), step: StepStart, attempt: 6},
		"verified":                            {in: verified(), step: StepNone, reason: node.ReasonChecksPassed},
		"verified, its pod is still there":    {in: verified(with(pod(1, ended(node.OutcomePassed)))), step: StepNone, reason: node.ReasonChecksPassed, deletes: "verify-n"},
		"no longer needed, worker under way":  {in: verified(with(pod(2))), step: StepNone, reason: node.ReasonChecksPassed, deletes: "verify-n"},
		"skipped, worker under way":           {in: given(with(pod(1)), func(in *Input) { in.Node.Skip = true }), step: StepNone, deletes: "verify-n"},
		"label removed":                       {in: verified(func(in *Input) { in.Node.Labelled = false }), step: StepStart, attempt: 2},
		"looks again when it is too old":      {in: verified(func(in *Input) { in.Config.NodeManagement.Reverify.Interval.Duration = 90 * time.Minute }), step: StepNone, reason: node.ReasonChecksPassed, wait: 30 * time.Minute},
		"re-verification may close the gate":  {in: verified(func(in *Input) { in.Node.Labelled = false; in.Config.NodeManagement.Reverify.Taint = true }), step: StepRecord, attempt: 1, outcome: node.OutcomePassed},
		"the last failed pod is marked, kept": {in: failing(1, with(pod(1, ended(node.OutcomeFailed)))), step: StepNone, reason: node.ReasonChecksFailed, wait: 10 * time.Second},
		"a pod on its way out is not deleted again": {in: failing(2, with(pod(1, ended(node.OutcomeFailed), func(o *workerpod.Observation) { o.Terminating = true }))),
			step: StepNone, reason: node.ReasonChecksFailed, wait: 10 * time.Second},
		"an older failed pod goes": {in: failing(2, with(pod(1, ended(node.OutcomeFailed)))), step: StepNone, reason: node.ReasonChecksFailed, deletes: "verify-n", wait: 10 * time.Second},
		"a kept pod goes after its time": {in: failing(1, with(pod(1, ended(node.OutcomeFailed), func(o *workerpod.Observation) { o.Ended = now.Add(-11 * time.Minute); o.Recorded = true }))),
			step: StepNone, reason: node.ReasonChecksFailed, deletes: "verify-n", wait: 10 * time.Second},
		"a kept pod of before the record was removed goes": {in: given(with(pod(3, ended(node.OutcomeFailed), func(o *workerpod.Observation) { o.Recorded = true }))),
			step: StepStart, attempt: 1, deletes: "verify-n"},
		"Karpenter has not registered the node": {in: given(managed, with(pod(1, ended(node.OutcomePassed)))), step: StepNone, reason: node.ReasonWaitingForPrerequisites},
		"Karpenter has registered the node": {in: given(managed, with(pod(1, ended(node.OutcomePassed))), func(in *Input) { in.Node.Registered = true }),
			step: StepRecord, attempt: 1, outcome: node.OutcomePassed},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Verify(tc.in, now)
			if plan.Step != tc.step {
				t.Fatalf("step %s, want %s (%+v)", plan.Step, tc.step, plan)
			}
			if got := reasonOf(plan.Condition); got != tc.reason {
				t.Errorf("condition %q, want %q", got, tc.reason)
			}
			if got := strings.Join(plan.Delete, ","); got != tc.deletes {
				t.Errorf("deletes %q, want %q", got, tc.deletes)
			}
			switch plan.Step {
			case StepStart:
				if plan.Attempt != tc.attempt {
					t.Errorf("starts attempt %d, want %d", plan.Attempt, tc.attempt)
				}
			case StepRecord:
				if r := plan.Change.Record; r.Sequence != tc.attempt || r.LastOutcome != tc.outcome {
					t.Errorf("records attempt %d %s, want %d %s", r.Sequence, r.LastOutcome, tc.attempt, tc.outcome)
				}
			}
			if tc.wait != 0 && plan.Wait != tc.wait {
				t.Errorf("waits %s, want %s", plan.Wait, tc.wait)
			}
		})
	}
}

func due(in *Input) { in.Node.Record.NextAttemptTime = ptr.To(metav1.NewMicroTime(now)) }

// deleting switches deletion on, and has what failed before attributed by a probe.
func deleting(in *Input) {
	in.Config.NodeManagement.DeleteFailedNodes = true
	in.Node.Record.Probed = in.Node.Record.LastOutcome == node.OutcomeFailed
}
func unprobed(in *Input) { in.Node.Record.Probed, in.Node.Record.NextAttemptTime = false, nil }
func managed(in *Input)  { in.Node.Managed, in.Node.Pool = true, "pool" }
func pending(o *workerpod.Observation) {
	o.State, o.Started = workerpod.Pending, time.Time{}
}

func created(age time.Duration) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) { o.Created, o.Started = now.Add(-age), now.Add(-age) }
}

func unschedulable(age time.Duration) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		o.UnschedulableSince, o.UnschedulableMessage = now.Add(-age), "no node"
	}
}

func reasonOf(c *node.Condition) string {
	if c == nil {
		return ""
	}
	return c.Reason
}

func TestRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		in                     Input
		attempts, inconclusive int32
		gate                   node.Gate
		label                  *bool
		events                 string
		again                  bool
	}{
		"pass opens the gate":           {given(with(pod(1, ended(node.OutcomePassed)))), 0, 0, node.GateOpen, ptr.To(true), EventPassed, false},
		"pass without a gate":           {verified(unlabelled, with(pod(2, ended(node.OutcomePassed)))), 0, 0, node.GateKeep, ptr.To(true), EventPassed, false},
		"pass keeps what it took":       {failing(2, with(pod(3, ended(node.OutcomePassed)))), 2, 0, node.GateOpen, ptr.To(true), EventPassed, false},
		"failure spends":                {failing(2, with(pod(3, ended(node.OutcomeFailed)))), 3, 0, node.GateClose, ptr.To(false), EventFailed, true},
		"failed re-verification closes": {verified(unlabelled, with(pod(2, ended(node.OutcomeFailed)))), 1, 0, node.GateClose, ptr.To(false), EventFailed, true},
		"the last failure exhausts":     {failing(4, with(pod(5, ended(node.OutcomeFailed)))), 5, 0, node.GateClose, ptr.To(false), EventFailed + "," + EventExhausted, true},
		"and is told once":              {failing(5, with(pod(6, ended(node.OutcomeFailed)))), 5, 0, node.GateClose, ptr.To(false), EventFailed, true},
		"inconclusive spends nothing":   {failing(2, with(pod(3, ended(node.OutcomeInconclusive)))), 2, 1, node.GateKeep, nil, EventInconclusive, true},
		"a run begins after a pass":     {verified(unlabelled, func(in *Input) { in.Node.Record.Attempts = 4 }, with(pod(2, ended(node.OutcomeFailed)))), 1, 0, node.GateClose, ptr.To(false), EventFailed, true},
		"a run begins after a reboot":   {failing(4, func(in *Input) { in.Node.BootID = "b2" }, with(pod(5, ended(node.OutcomeFailed)))), 1, 0, node.GateClose, ptr.To(false), EventFailed, true},
		"exhausted, never tried again":  {failing(4, func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = -1 }, with(pod(5, ended(node.OutcomeFailed)))), 5, 0, node.GateClose, ptr.To(false), EventFailed + "," + EventExhausted, false},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Verify(tc.in, now)
			r := plan.Change.Record
			if plan.Step != StepRecord || r.Attempts != tc.attempts || r.Inconclusive != tc.inconclusive {
				t.Fatalf("%s: %d spent, %d inconclusive; want %d, %d", plan.Step, r.Attempts, r.Inconclusive, tc.attempts, tc.inconclusive)
			}
			if plan.Change.Gate != tc.gate || ptr.Deref(plan.Change.Label, true) != ptr.Deref(tc.label, true) || (plan.Change.Label == nil) != (tc.label == nil) {
				t.Errorf("gate %v label %v, want %v %v", plan.Change.Gate, plan.Change.Label, tc.gate, tc.label)
			}
			var events []string
			for _, e := range plan.Events {
				events = append(events, e.Reason)
			}
			if got := strings.Join(events, ","); got != tc.events {
				t.Errorf("events %s, want %s", got, tc.events)
			}
			if (r.NextAttemptTime != nil) != tc.again {
				t.Errorf("next attempt %v, want one: %v", r.NextAttemptTime, tc.again)
			}
			if r.NodeUID != "u1" || r.BootID != tc.in.Node.BootID {
				t.Errorf("the record is for node %s boot %s", r.NodeUID, r.BootID)
			}
		})
	}
}

func unlabelled(in *Input) { in.Node.Labelled = false }

func TestVia(t *testing.T) {
	if plan := Verify(given(), now); plan.Via != config.SchedulingDirect {
		t.Errorf("first attempt goes %s", plan.Via)
	}
	rejected := failing(0, due, func(in *Input) {
		in.Node.Record.LastOutcome, in.Node.Record.LastReason, in.Node.Record.Inconclusive = node.OutcomeInconclusive, workerpod.ReasonKubeletRejected, 1
	})
	if plan := Verify(rejected, now); plan.Via != config.SchedulingScheduler {
		t.Errorf("after a rejection by the kubelet the next attempt goes %s", plan.Via)
	}
}

func TestConditionTellsWhatHappensNext(t *testing.T) {
	plan := Verify(failing(2), now)
	for _, want := range []string{"check dns", "Timeout", "no answer", "failure 2 of 5", "2026-03-01T12:00:10Z"} {
		if !strings.Contains(plan.Condition.Message, want) {
			t.Errorf("message %q lacks %q", plan.Condition.Message, want)
		}
	}
	if plan.Condition.Status != corev1.ConditionFalse {
		t.Errorf("status %s", plan.Condition.Status)
	}
}

func TestBackoff(t *testing.T) {
	rc := config.Reconciliation{InitialBackoffSeconds: 1, MaxBackoffSeconds: 30, RetryBackoff: config.BackoffExponential}
	linear := rc
	linear.RetryBackoff = config.BackoffLinear
	for _, tc := range []struct {
		rc   config.Reconciliation
		n    int32
		most time.Duration
	}{{rc, 1, time.Second}, {rc, 2, 2 * time.Second}, {rc, 3, 4 * time.Second}, {rc, 5, 16 * time.Second}, {rc, 6, 30 * time.Second}, {rc, 1 << 30, 30 * time.Second},
		{linear, 1, time.Second}, {linear, 3, 3 * time.Second}, {linear, 40, 30 * time.Second}} {
		got := Backoff(tc.rc, tc.n, "seed")
		if got > tc.most || got < tc.most*8/10 {
			t.Errorf("%s after %d: %s, want between 80%% and 100%% of %s", tc.rc.RetryBackoff, tc.n, got, tc.most)
		}
		if got != Backoff(tc.rc, tc.n, "seed") {
			t.Error("the same node and attempt got another wait")
		}
	}
	if Backoff(rc, 6, "a") == Backoff(rc, 6, "b") {
		t.Error("two nodes wait exactly alike")
	}
}
