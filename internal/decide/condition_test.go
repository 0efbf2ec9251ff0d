package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func TestTheConditionSaysWhatHappensNext(t *testing.T) {
	for name, tc := range map[string]struct {
		in     Input
		status corev1.ConditionStatus
		says   []string
	}{
		"failed": {failing(2, recordedAgo(-time.Second)), corev1.ConditionFalse,
			[]string{"check dns: Timeout: no answer", "failure 2 of 5", "next attempt at 2026-03-01T12:00:0"}},
		"exhausted":          {failing(5), corev1.ConditionFalse, []string{"5 of 5 attempts failed", "check dns", "next attempt at 2026-03-01T12:0"}},
		"exhausted for good": {failing(5, exhaustedRetrySeconds(-1)), corev1.ConditionFalse, []string{"no further attempt follows; to start again, run kubectl node-ready reverify n"}},
		"being deleted":      {failing(5, deleting, intended), corev1.ConditionFalse, []string{"NodeClaim c is being deleted"}},
		"inconclusive":       {puzzling(2), corev1.ConditionUnknown, []string{"ImagePull: no such image", "2 inconclusive, 0 of 5 retries spent", "next attempt at"}},
		"held":               {failing(5, deleting, heldBy(GuardMaxUnhealthy)), corev1.ConditionUnknown, []string{"remediation is held by maxUnhealthy: as it was found", "next attempt at"}},
		"held, tried again":  {failing(5, deleting, heldBy(GuardMaxUnhealthy), with(pod(6))), corev1.ConditionUnknown, []string{"remediation is held by maxUnhealthy"}},
		"verified":           {verified(func(in *Input) { in.Node.Record.DurationMs = 1500 }), corev1.ConditionTrue, []string{"passed in 1.5s, attempt 1"}},
		"under way again":    {failing(2, with(pod(3))), corev1.ConditionUnknown, []string{"Worker verify-n-3 is running, attempt 3", "previous result: check dns"}},
		"unschedulable":      {given(with(pod(1, pending, unschedulable(time.Second)))), corev1.ConditionUnknown, []string{"is pending", "kube-scheduler: no node"}},
		"beside an injected container": {failing(2, with(pod(3, func(o *workerpod.Observation) { o.Beside = "beside it, container proxy waits" }))), corev1.ConditionUnknown,
			[]string{"is running, attempt 3; beside it, container proxy waits; previous result: check dns"}},
	} {
		w := deletable()
		w.owner.Terminating = name == "being deleted"
		w.ledger.Problem = "as it is now"
		if name == "held" {
			w.ledger.Problem, tc.in.Config.NodeManagement.Remediation.MaxUnhealthy = "", ptrTo("0%")
		}
		plan, _ := ask(t, tc.in, w)
		if plan.Condition == nil || plan.Condition.Status != tc.status {
			t.Errorf("%s: %+v", name, plan.Condition)
			continue
		}
		for _, want := range tc.says {
			if !strings.Contains(plan.Condition.Message, want) {
				t.Errorf("%s: %q lacks %q", name, plan.Condition.Message, want)
			}
		}
	}
}

func TestWaitsAreAllNamed(t *testing.T) {
	w := world{waits: []Unmet{{Kind: "pods", Name: "a", Message: "a pod of a"}, {Kind: "conditions", Name: "b", Message: "condition b"}}}
	plan, _ := ask(t, given(), w)
	if plan.Condition == nil || plan.Condition.Message != "Waiting for a pod of a; condition b" || plan.Condition.Status != corev1.ConditionUnknown {
		t.Errorf("%+v", plan.Condition)
	}
}

// Prerequisites that need a person cause one event for all of them. They come first in the condition, because its
// length is bounded.
func TestWhatIsStuckIsAnEvent(t *testing.T) {
	gone := Unmet{Kind: "daemonSets", Name: "a/b", Message: "a pod of a/b", Remedy: "correct it"}
	plain := Unmet{Kind: "pods", Name: "c", Message: strings.Repeat("a pod of c ", attempt.MaxMessage)}
	other := Unmet{Kind: "daemonSets", Name: "d/e", Message: "a pod of d/e", Remedy: "install it"}
	for name, tc := range map[string]struct {
		waits []Unmet
		note  string
	}{
		"nothing":        {[]Unmet{plain}, ""},
		"one of two":     {[]Unmet{plain, gone}, "Waiting for a pod of a/b: correct it"},
		"two, one event": {[]Unmet{gone, plain, other}, "Waiting for a pod of a/b: correct it; a pod of d/e: install it"},
	} {
		plan, _ := ask(t, given(), world{waits: tc.waits})
		if (len(plan.Events) == 0) != (tc.note == "") || len(plan.Events) > 1 || plan.Step != StepNone {
			t.Errorf("%s: %+v", name, plan)
			continue
		}
		for _, e := range plan.Events {
			if e.Reason != EventPrerequisiteStuck || e.Message != tc.note || e.Key == "" {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if !strings.HasPrefix(plan.Condition.Message, tc.note) {
			t.Errorf("%s: %q", name, plan.Condition.Message)
		}
	}
	one, _ := ask(t, given(), world{waits: []Unmet{gone}})
	both, _ := ask(t, given(), world{waits: []Unmet{gone, other}})
	if one.Events[0].Key == both.Events[0].Key {
		t.Error("two states have one key")
	}
}

// Many clients may write a record. Whatever is in it, the condition is printable, on one line and bounded.
func TestForgedTextDoesNotReachTheCondition(t *testing.T) {
	long := strings.Repeat("x\n\x1b[31m", 1<<16)
	for name, in := range map[string]Input{
		"failed":       failing(2),
		"exhausted":    failing(5),
		"inconclusive": puzzling(2),
		"held":         failing(5, deleting, heldBy("x"), with(pod(6))),
		"deletion":     failing(5, deleting, intended),
		"under way":    failing(2, with(pod(3))),
	} {
		r := &in.Node.Record
		r.LastCheck, r.LastReason, r.LastMessage, r.HeldMessage = long, long, long, long
		if r.Held != "" {
			r.Held = long
		}
		if r.Deletion != nil {
			r.Deletion.Kind, r.Deletion.Name = long, long
		}
		plan, _ := ask(t, in, world{owner: owner.Owner{Terminating: true}})
		if c := plan.Condition; c == nil || len(c.Message) > 8*attempt.MaxMessage || strings.ContainsAny(c.Message, "\n\x1b") {
			t.Errorf("%s: %d bytes", name, len(c.Message))
		}
		in.Pods = nil
		refused := PodRefused(in, r.Sequence+1, attempt.ReasonPodRefused, long, now)
		if m := refused.Change.Record.LastMessage; len(m) > attempt.MaxMessage || strings.ContainsAny(m, "\n\x1b") {
			t.Errorf("%s: records %d bytes", name, len(m))
		}
	}
}

// The condition is removed from a node that kube-node-ready no longer manages. Nothing is changed on a node of another
// installation.
func TestTheConditionOfASkippedNodeIsRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		in    Input
		clear bool
	}{
		"skipped":                     {verified(skipped, conditioned), true},
		"skipped, gated":              {failing(5, skipped, conditioned), true},
		"skipped, nothing to remove":  {verified(skipped), false},
		"never ours, a condition":     {given(ungated, conditioned), true},
		"not selected any more":       {verified(unselected, conditioned), false},
		"not selected, gated":         {failing(5, unselected, conditioned), false},
		"verified":                    {verified(conditioned), false},
		"a control plane, once gated": {verified(controlplane, conditioned), false},
	} {
		plan, _ := ask(t, tc.in, world{})
		if plan.ClearCondition != tc.clear || tc.clear && plan.Condition != nil || plan.Step != StepNone {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// watched returns the reasons that are written, by time, for a node that is reconciled at a fixed interval. The
// function want gives the decided condition at each time.
func watched(t *testing.T, every, long time.Duration, want func(time.Duration) marks.Condition) map[time.Duration]string {
	t.Helper()
	var have *corev1.NodeCondition
	var w PendingCondition
	written := map[time.Duration]string{}
	for d := time.Duration(0); d <= long; d += every {
		c := want(d)
		write, next, wait := ConditionDue(c, have, w, now.Add(d))
		if w = next; write {
			have = &corev1.NodeCondition{Status: c.Status, Reason: c.Reason, Message: c.Message}
			written[d] = c.Reason
			if wait != 0 || w != (PendingCondition{}) {
				t.Errorf("after %s: written, and looks again in %s", d, wait)
			}
		}
		if !write && !c.Same(have) && (wait <= 0 || wait > ConditionDelay) {
			t.Errorf("after %s: not written, and looks again in %s", d, wait)
		}
	}
	return written
}

func unknown(reason, message string) marks.Condition {
	return marks.Condition{Status: corev1.ConditionUnknown, Reason: reason, Message: message}
}

func TestAnUnknownReasonIsWrittenOnceItLasted(t *testing.T) {
	written := watched(t, time.Second, 20*time.Second, func(time.Duration) marks.Condition { return unknown("Verifying", "m") })
	if len(written) != 1 || written[ConditionDelay] != "Verifying" {
		t.Errorf("written %v", written)
	}
	other := watched(t, time.Second, 20*time.Second, func(d time.Duration) marks.Condition {
		if d < 4*time.Second {
			return unknown("Verifying", "m")
		}
		return unknown("WorkerInconclusive", "m")
	})
	if len(other) != 1 || other[4*time.Second+ConditionDelay] != "WorkerInconclusive" {
		t.Errorf("another reason counts from its own beginning: written %v", other)
	}
	brief := watched(t, time.Second, 20*time.Second, func(d time.Duration) marks.Condition {
		if d < 4*time.Second {
			return unknown("Verifying", "m")
		}
		return marks.Condition{Status: corev1.ConditionTrue, Reason: "ChecksPassed"}
	})
	if len(brief) != 1 || brief[4*time.Second] != "ChecksPassed" {
		t.Errorf("a run under five seconds costs one write: %v", brief)
	}
}

// Reasons that alternate are written, too. Otherwise the node would show an old reason for as long as they alternate.
func TestReasonsThatTakeTurnsAreWritten(t *testing.T) {
	written := watched(t, 2*time.Second, 30*time.Second, func(d time.Duration) marks.Condition {
		if d/(2*time.Second)%2 == 0 {
			return unknown("Verifying", "m")
		}
		return unknown("WorkerInconclusive", "m")
	})
	if _, ok := written[maxConditionDelay]; !ok || len(written) > 3 {
		t.Errorf("written %v", written)
	}
}

func TestWhatIsWrittenAtOnce(t *testing.T) {
	unknownSaid := &corev1.NodeCondition{Status: corev1.ConditionUnknown, Reason: "Verifying", Message: "before"}
	for name, tc := range map[string]struct {
		want marks.Condition
		have *corev1.NodeCondition
		now  bool
	}{
		"False":                         {marks.Condition{Status: corev1.ConditionFalse, Reason: "ChecksFailed"}, nil, true},
		"True":                          {marks.Condition{Status: corev1.ConditionTrue, Reason: "ChecksPassed"}, unknownSaid, true},
		"another message of its reason": {unknown("Verifying", "after"), unknownSaid, true},
		"the same":                      {unknown("Verifying", "before"), unknownSaid, false},
		"another reason":                {unknown("WaitingForSlot", "m"), unknownSaid, false},
		"the first":                     {unknown("WaitingForSlot", "m"), nil, false},
	} {
		if write, _, _ := ConditionDue(tc.want, tc.have, PendingCondition{}, now); write != tc.now {
			t.Errorf("%s: written %v", name, write)
		}
	}
	// A condition that ends up as it was is not written, however long another one was wanted in between.
	_, w, _ := ConditionDue(unknown("WaitingForSlot", "m"), unknownSaid, PendingCondition{}, now)
	_, w, wait := ConditionDue(unknown("Verifying", "before"), unknownSaid, w, now.Add(4*time.Second))
	if w != (PendingCondition{}) || wait != 0 {
		t.Errorf("left: %+v, %s", w, wait)
	}
}

// A node waits for rules that cannot be served. The condition says so if the node must be verified or carries a rule's
// taint. Any other node keeps its condition, and a node that may belong to another installation is not changed.
func TestAwaitRules(t *testing.T) {
	const why = "Lease kube-system/nrc is renewed"
	for name, test := range map[string]struct {
		in    Input
		ruled bool
		want  string
	}{
		"gated":                   {given(), false, marks.ReasonRulesUnavailable},
		"gated and ruled":         {given(), true, marks.ReasonRulesUnavailable},
		"verified":                {verified(), false, ""},
		"verified and ruled":      {verified(), true, marks.ReasonRulesUnavailable},
		"opted out":               {given(skipped), false, ""},
		"opted out and ruled":     {given(skipped), true, marks.ReasonRulesUnavailable},
		"another installation's":  {given(unselected), true, ""},
		"on its way out":          {given(func(in *Input) { in.Node.Deleting = true }), true, ""},
		"past its deadline":       {given(pastDeadline), false, marks.ReasonDeadlineExceeded},
		"never ours, no taint":    {given(ungated), false, ""},
		"rebooted, verified once": {verified(rebootedTo("b2")), false, marks.ReasonRulesUnavailable},
	} {
		p := RulesUnavailable(test.in, test.ruled, why, now)
		got := ""
		if p.Condition != nil {
			if got = p.Condition.Reason; !strings.Contains(p.Condition.Message, why) || len(p.Events) == 0 {
				t.Errorf("%s: %q, %v", name, p.Condition.Message, p.Events)
			}
		}
		if got != test.want || p.Step != StepNone || p.ClearCondition || len(p.Delete) > 0 {
			t.Errorf("%s: %q, want %q: %+v", name, got, test.want, p)
		}
	}
}

// pastDeadline is a node that should have been verified long ago.
func pastDeadline(in *Input) {
	in.Profile.VerificationDeadlineSeconds = 60
	in.Node.Created, in.NeedsVerificationSince = now.Add(-time.Hour), now.Add(-time.Hour)
}

func TestImpeded(t *testing.T) {
	const why = `nodes "n" is forbidden`
	p := RequestRefused(failing(1), why, now)
	if p.Condition == nil || p.Condition.Reason != marks.ReasonVerifying || !strings.Contains(p.Condition.Message, why) {
		t.Errorf("%+v", p.Condition)
	}
	for name, in := range map[string]Input{"verified": verified(), "opted out": given(skipped), "another's": given(unselected)} {
		if p := RequestRefused(in, why, now); p.Condition != nil {
			t.Errorf("%s: %+v", name, p.Condition)
		}
	}
}

// A refused release has a reason of its own, and one event for each verification, whatever the API server says.
func TestReleaseRefused(t *testing.T) {
	const why = "admission webhook denied the request"
	for name, tc := range map[string]struct {
		in     Input
		reason string
	}{
		"the first attempt":      {given(), marks.ReasonReleaseRefused},
		"after a failure":        {failing(1), marks.ReasonReleaseRefused},
		"verified before":        {verified(rebootedTo("b2")), marks.ReasonReleaseRefused},
		"past its deadline":      {given(pastDeadline), marks.ReasonDeadlineExceeded},
		"verified":               {verified(), ""},
		"opted out":              {given(skipped), ""},
		"another installation's": {given(unselected), ""},
		"on its way out":         {given(func(in *Input) { in.Node.Deleting = true }), ""},
	} {
		p, again := ReleaseRefused(tc.in, why, now), ReleaseRefused(tc.in, "another answer", now.Add(time.Second))
		if tc.reason == "" {
			if p.Condition != nil || len(p.Events) > 0 {
				t.Errorf("%s: %+v", name, p)
			}
			continue
		}
		if reasonOf(p.Condition) != tc.reason || !strings.Contains(p.Condition.Message, why) || p.Step != StepNone {
			t.Errorf("%s: %+v", name, p.Condition)
		}
		if len(p.Events) == 0 || p.Events[0].Reason != EventReleaseRefused || p.Events[0].Key != again.Events[0].Key ||
			!strings.Contains(p.Events[0].Message, why) {
			t.Errorf("%s: events %+v, then %+v", name, p.Events, again.Events)
		}
	}
	opened := given(ungated, func(in *Input) {
		in.Node.Condition = &corev1.NodeCondition{Status: corev1.ConditionUnknown, Reason: marks.ReasonReleaseRefused}
	})
	if !OpenedUnverified(opened) {
		t.Error("a node that waited for its release and lost the taint counts as one that never had it")
	}
}

// While the pod of an attempt that is due is rejected, the condition names no time that is over.
func TestADelayedPodNamesNoPastTime(t *testing.T) {
	const why = "admission webhook down.example.com failed"
	for name, tc := range map[string]struct {
		in   Input
		says []string
	}{
		"the first attempt": {given(), []string{"An attempt is due, and the API server rejects its worker pod, which is sent again: " + why}},
		"after a failure":   {failing(2, due), []string{"check dns: Timeout: no answer; failure 2 of 5; the next attempt is due, and the API server rejects its worker pod", why}},
		"exhausted":         {failing(5, due), []string{"5 of 5 attempts failed", "the next attempt is due", why}},
		"inconclusive":      {puzzling(2, due), []string{"2 inconclusive", "the next attempt is due", why}},
		"held":              {failing(5, deleting, due, heldBy(GuardMaxUnhealthy)), []string{"remediation is held", "the next attempt is due", why}},
		"an endless reason": {failing(2, due), []string{"the next attempt is due"}},
	} {
		message := why
		if name == "an endless reason" {
			message = strings.Repeat("x", 4*attempt.MaxMessage)
		}
		c := PodDelayed(tc.in, message, now).Condition
		if c == nil || strings.Contains(c.Message, "next attempt at") || len(c.Message) > attempt.MaxMessage {
			t.Errorf("%s: %+v", name, c)
			continue
		}
		for _, want := range tc.says {
			if !strings.Contains(c.Message, want) {
				t.Errorf("%s: %q lacks %q", name, c.Message, want)
			}
		}
	}
}
