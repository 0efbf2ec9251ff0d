package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func every(d time.Duration) func(*Input) {
	return func(in *Input) { in.Config.NodeManagement.Reverify.Interval.Duration = d }
}

func verifyUntainted(in *Input) { in.Config.NodeManagement.VerifyUntainted = true }

func includeControlPlane(in *Input) { in.Config.NodeManagement.IncludeControlPlane = true }

func notOnReboot(in *Input) { in.Config.NodeManagement.Reverify.OnReboot = ptr.To(false) }

func TestNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want bool
	}{
		"tainted":                               {given(), true},
		"tainted though labelled":               {verified(gated), true},
		"never tainted, never verified":         {given(ungated), false},
		"never tainted, verifyUntainted":        {given(ungated, verifyUntainted), true},
		"verified":                              {verified(), false},
		"verified, verifyUntainted":             {verified(verifyUntainted), false},
		"label removed":                         {verified(unlabelled), true},
		"label removed, record unreadable":      {given(ungated, func(in *Input) { in.Node.HasRecord = true }), true},
		"rebooted":                              {verified(rebootedTo("b2")), true},
		"rebooted, onReboot off":                {verified(rebootedTo("b2"), notOnReboot), false},
		"rebooted, leaving":                     {verified(rebootedTo("b2"), leaving), false},
		"rebooted, leaving, worker under way":   {verified(rebootedTo("b2"), leaving, with(pod(2))), true},
		"as old as the interval, leaving":       {verified(every(time.Hour), leaving), false},
		"tainted, leaving":                      {given(leaving), true},
		"a failed re-verification, leaving":     {failing(1, ungated, leaving, func(in *Input) { in.Node.Labelled = true }), true},
		"boot ID not reported":                  {verified(rebootedTo("")), false},
		"verdict without a boot ID":             {verified(func(in *Input) { in.Node.Record.BootID = "" }), false},
		"younger than the interval":             {verified(every(2 * time.Hour)), false},
		"as old as the interval":                {verified(every(time.Hour)), true},
		"a verdict from the future":             {verified(every(2*time.Hour), func(in *Input) { in.Node.Record.VerifiedTime = ago(-time.Hour) }), true},
		"a verdict on a clock a little ahead":   {verified(every(2*time.Hour), func(in *Input) { in.Node.Record.VerifiedTime = ago(-30 * time.Second) }), false},
		"labelled by a person, no record":       {given(ungated, func(in *Input) { in.Node.Labelled = true }), false},
		"re-verification that was inconclusive": {verified(func(in *Input) { in.Node.Record.LastOutcome = attempt.Inconclusive }), true},
	} {
		if got := NeedsVerification(tc.in, now); got != tc.want {
			t.Errorf("%s: NeedsVerification = %v, want %v", name, got, tc.want)
		}
	}
}

func TestSubject(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want bool
	}{
		"plain":                          {given(), true},
		"skip annotation":                {given(skipped), false},
		"not selected":                   {given(unselected), false},
		"control plane":                  {given(controlplane, ungated, verifyUntainted), false},
		"control plane, gated":           {given(controlplane), true},
		"control plane, gated, skipped":  {given(controlplane, skipped), false},
		"control plane, gated, excluded": {given(controlplane, unselected), false},
		"control plane included":         {given(controlplane, ungated, includeControlPlane, verifyUntainted), true},
		"not Linux":                      {given(windows), false},
		"not Linux, ungated":             {given(windows, ungated, verifyUntainted), false},
		"virtual":                        {given(virtual, ungated, includeControlPlane, verifyUntainted), false},
		"virtual, gated":                 {given(virtual), true},
	} {
		if got := Eligible(tc.in); got != tc.want {
			t.Errorf("%s: Eligible = %v, want %v", name, got, tc.want)
		}
		if plan, _ := ask(t, tc.in, world{}); (plan.Step == StepStart) != tc.want {
			t.Errorf("%s: step %q", name, plan.Step)
		}
	}
}

// A node that is not Linux keeps a gating taint, and its condition says so. It gets no worker, and it is not deleted,
// whatever its record says.
func TestANodeThatIsNotLinux(t *testing.T) {
	plan, asked := ask(t, given(windows), world{})
	c := plan.Condition
	if plan.Step != StepNone || reasonOf(c) != marks.ReasonUnsupportedOS || c.Status != corev1.ConditionUnknown || len(asked) > 0 ||
		!strings.Contains(c.Message, `kubernetes.io/os is "windows"`) ||
		!strings.Contains(c.Message, "node-ready/unverified:NoSchedule") {
		t.Errorf("gated: %+v, %+v, asked for %v", plan, c, asked)
	}
	if len(plan.Events) != 1 || plan.Events[0].Reason != EventUnsupportedOS ||
		!strings.Contains(plan.Events[0].Message, "kubectl taint nodes n node-ready/unverified:NoSchedule-") {
		t.Errorf("gated: events %+v", plan.Events)
	}
	says := given(windows)
	says.Node.Condition = &corev1.NodeCondition{Reason: marks.ReasonUnsupportedOS}
	if again, _ := ask(t, says, world{}); len(again.Events) > 0 {
		t.Errorf("a node that says so already: events %+v", again.Events)
	}
	plan, _ = ask(t, failing(5, windows, deleting), deletable())
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonUnsupportedOS {
		t.Errorf("exhausted: %+v", plan)
	}
	if plan, _ = ask(t, given(windows, with(pod(1))), world{}); len(plan.Delete) != 1 {
		t.Errorf("a worker is there: %+v, want it deleted", plan)
	}
	for name, in := range map[string]Input{
		"ungated": given(windows, ungated, conditioned), "skipped": given(windows, skipped, conditioned),
	} {
		if plan, _ = ask(t, in, world{}); plan.Condition != nil || !plan.ClearCondition || len(plan.Events) > 0 {
			t.Errorf("%s: %+v, want the condition to go", name, plan)
		}
	}
	if m := SummaryOf(given(windows)); !m.Excluded {
		t.Error("it counts among the nodes that can be unhealthy")
	}
}

// A virtual node that somebody tainted is verified and released. The controller neither taints nor deletes it.
func TestAVirtualNodeIsNeitherTaintedNorDeleted(t *testing.T) {
	plan, _ := ask(t, given(virtual), world{})
	if plan.Step != StepStart {
		t.Errorf("gated: %+v", plan)
	}
	plan, _ = ask(t, failing(5, virtual, deleting, includeControlPlane), deletable())
	if plan.Step != StepRecord || plan.Change.Record.Held != GuardDoNotDelete || plan.Change.Gate != gateKeep {
		t.Errorf("exhausted: %+v", plan)
	}
	if plan, _ = ask(t, verified(virtual, unlabelled), world{}); plan.Step != StepNone {
		t.Errorf("once released it is left alone: %+v", plan)
	}
}

func conditioned(in *Input) {
	in.Node.Condition = &corev1.NodeCondition{Status: corev1.ConditionTrue, Reason: "ChecksPassed"}
}

// Nodes that were verified in one burst are not due for re-verification at the same time.
func TestAgesAreSpreadByUpToATenth(t *testing.T) {
	const interval = 10 * time.Hour
	var first, last time.Time
	for i := range 200 {
		in := verified(every(interval), func(in *Input) { in.Node.UID = fmt.Sprintf("u%d", i) })
		at, ok := reverifyTime(in, now)
		verdict := *in.Node.Record.VerifiedTime
		if !ok || at.After(verdict.Add(interval)) || at.Before(verdict.Add(interval*9/10)) {
			t.Fatalf("node %d ages at %v, verified at %v", i, at, verdict)
		}
		if again, _ := reverifyTime(in, now.Add(time.Minute)); again != at {
			t.Fatalf("node %d ages at another time at every look", i)
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if last.Sub(first) < interval/20 {
		t.Errorf("200 nodes age within %s", last.Sub(first))
	}
}

// The gate must not stay open for as long as a prerequisite is missing.
func TestReverifyTaintClosesBeforePrerequisites(t *testing.T) {
	closing := func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }
	released := func(in *Input) { in.Node.Record.Released = ago(time.Minute) }
	unmet := world{waits: []Unmet{{Kind: "nodeReady", Message: "the node to be Ready"}}}
	for name, in := range map[string]Input{
		"label removed": verified(closing, unlabelled),
		"rebooted":      verified(closing, rebootedTo("b2")),
		"and suspect":   verified(closing, rebootedTo("b2"), underSuspicion),
		"and requested": verified(closing, rebootedTo("b2"), requestUnderWay),
		"aged":          verified(closing, every(time.Hour)),
		"labelled late": verified(closing, rebootedTo("b2"), underOtherChecks, relabelled),
		"lost":          verified(closing, unlabelled, lost),
	} {
		plan, asked := ask(t, in, unmet)
		if plan.Step != StepRecord || plan.Change.Gate != gateClose || len(plan.Change.GateTaints) != 1 || *plan.Change.Label || plan.Recorded != nil {
			t.Errorf("%s: %+v", name, plan)
		}
		if plan.Change.Record.Encode() != in.Node.Record.Encode() || len(asked) > 0 {
			t.Errorf("%s: the record changed to %+v, asked for %v", name, plan.Change.Record, asked)
		}
		in.Node.Gated, in.Node.Labelled = true, false
		if plan, _ = ask(t, in, unmet); plan.Step != StepNone || plan.Condition == nil {
			t.Errorf("%s: then %+v, want it to wait", name, plan)
		}
	}
	for name, in := range map[string]Input{
		"reverify.taint is off":              verified(unlabelled),
		"it was released past its deadline":  verified(closing, unlabelled, released),
		"and rebooted since":                 verified(closing, unlabelled, released, rebootedTo("b2")),
		"it is leaving, label removed":       verified(closing, unlabelled, leaving),
		"it is leaving, rebooted":            verified(closing, rebootedTo("b2"), leaving),
		"a control plane is never tainted":   verified(closing, unlabelled, controlplane, gated),
		"requested, onReboot off":            verified(closing, rebootedTo("b2"), notOnReboot, requestUnderWay),
		"its labels came late":               verified(closing, underOtherChecks, relabelled),
		"it never was verified":              given(closing, ungated, verifyUntainted),
		"a re-verification is under way":     verified(closing, unlabelled, with(pod(2))),
		"a re-verification was inconclusive": verified(closing, unlabelled, func(in *Input) { in.Node.Record.LastOutcome = attempt.Inconclusive }),
	} {
		if plan, _ := ask(t, in, world{}); plan.Change.Gate == gateClose {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// A control-plane node gets its label from kubeadm only after it registered with the taint on it.
func TestAGatedControlPlaneIsVerifiedAndReleasedNeverTaintedOrDeleted(t *testing.T) {
	plan, _ := ask(t, given(controlplane), world{})
	if plan.Step != StepStart {
		t.Fatalf("it is not verified: %+v", plan)
	}
	plan, _ = ask(t, given(controlplane, with(pod(1, ended(attempt.Passed)))), world{})
	if plan.Step != StepRecord || plan.Change.Gate != gateOpen || !*plan.Change.Label {
		t.Errorf("a pass does not release it: %+v", plan)
	}
	released := verified(controlplane, rebootedTo("b2"))
	if plan, _ = ask(t, released, world{}); plan.Step != StepNone || reasonOf(plan.Condition) != "ChecksPassed" {
		t.Errorf("once released it is left alone: %+v", plan)
	}
	plan, _ = ask(t, failing(4, controlplane, with(pod(5, ended(attempt.Failed)))), world{})
	if plan.Step != StepRecord || plan.Change.Gate != gateKeep {
		t.Errorf("a failure: %+v", plan)
	}
	plan, _ = ask(t, failing(5, controlplane, deleting), deletable())
	if plan.Step != StepRecord || plan.Change.Record.Held != GuardControlPlane || plan.Change.Gate != gateKeep {
		t.Errorf("exhausted: %+v", plan)
	}
	// A person takes the taint off: it is not put back.
	untainted := failing(5, controlplane, deleting, ungated, heldBy(GuardControlPlane))
	if plan, _ = ask(t, untainted, deletable()); plan.Step != StepNone {
		t.Errorf("held, and untainted by hand: %+v", plan)
	}
	plan, _ = ask(t, failing(5, controlplane, includeControlPlane, deleting), deletable())
	if plan.Step != StepDelete {
		t.Errorf("includeControlPlane makes it a node like any other: %+v", plan)
	}
}

// A taint that only asks to keep pods off closes no gate where the profile has one that keeps them off. The node must be
// verified all the same, as an open node, and a failure closes its gate.
func TestPreferredTaintIsNoClosedGate(t *testing.T) {
	prefer := marks.Taint{Key: "example.com/prefer", Effect: corev1.TaintEffectPreferNoSchedule}
	strict := marks.Taint{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		on, configured []marks.Taint
		closed         bool
	}{
		"preferred, and a stronger one is configured": {[]marks.Taint{prefer}, []marks.Taint{prefer, strict}, false},
		"both":                          {[]marks.Taint{prefer, strict}, []marks.Taint{prefer, strict}, true},
		"no stronger one is configured": {[]marks.Taint{prefer}, []marks.Taint{prefer}, true},
		"the stronger one of a profile": {[]marks.Taint{strict}, []marks.Taint{prefer}, true},
		"no gating taint":               {nil, []marks.Taint{prefer, strict}, false},
	} {
		in := failing(5, deleting, heldBy(GuardPaused), func(in *Input) {
			in.Node.Gated, in.Node.GatedBy, in.Profile.Taints = len(tc.on) > 0, tc.on, tc.configured
		})
		if in.Closed() != tc.closed || in.NextAttempt().Basis.Gated != tc.closed {
			t.Errorf("%s: closed %t", name, in.Closed())
		}
		if !NeedsVerification(in, now) {
			t.Errorf("%s: it need not be verified", name)
		}
		w := deletable()
		w.ledger.Paused = "for a while"
		if plan, _ := ask(t, in, w); (plan.Change.Gate == gateClose) == tc.closed {
			t.Errorf("%s: the gate of a held node: %v", name, plan.Change.Gate)
		}
		for basis, counts := range map[string]bool{"open": !tc.closed, "closed": true} {
			passed := in
			passed.Pods = []workerpod.Observation{pod(6, ended(attempt.Passed))}
			passed.Pods[0].Attempt.Basis.Gated = basis == "closed"
			if plan, _ := ask(t, passed, world{}); (plan.Recorded != nil && plan.Recorded.Result.Outcome == attempt.Passed) != counts {
				t.Errorf("%s: a pass from when the gate was %s: %+v", name, basis, plan.Recorded)
			}
		}
		due(&in)
		if plan, _ := ask(t, in, world{}); tc.closed != (plan.Scheduling == config.SchedulingDirect) {
			t.Errorf("%s: its worker is bound by %q", name, plan.Scheduling)
		}
	}
}
