package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// passedAgo is a node that passed so long ago.
func passedAgo(d time.Duration) func(*Input) {
	return func(in *Input) { in.Node.Record.LastTime, in.Node.Record.VerifiedTime = ago(d), ago(d) }
}

// takenAgo is a node whose passes of these times were taken back.
func takenAgo(passes ...time.Duration) func(*Input) {
	return func(in *Input) {
		in.Node.Record.TakenBack = &marks.TakenBack{By: "earlier"}
		for _, d := range passes {
			in.Node.Record.TakenBack.Passes = append(in.Node.Record.TakenBack.Passes, *ago(d))
		}
	}
}

// writers are the field managers of the taints and of the label.
func writers(in *Input) {
	in.Node.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "node-group", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)},
		{Manager: "git", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:node-ready/verified":{}}}}`)}}
}

func TestTakenBackIsRecorded(t *testing.T) {
	again := func(change ...func(*Input)) Input { // for the third time
		return verified(append([]func(*Input){passedAgo(time.Second), takenAgo(time.Minute, 30*time.Second)}, change...)...)
	}
	for name, tc := range map[string]struct {
		in Input
		// passes is how many the record has then, 0 where it does not change.
		passes int
		mark   Mark
		by     string
	}{
		"a taint":                           {in: verified(gated, passedAgo(time.Second)), passes: 1},
		"the label":                         {in: verified(unlabelled, passedAgo(time.Minute)), passes: 1},
		"the second":                        {in: verified(gated, passedAgo(time.Second), takenAgo(time.Minute)), passes: 2},
		"the third":                         {in: again(gated), passes: 3, mark: MarkTaint, by: "node-group"},
		"the third label":                   {in: again(unlabelled), passes: 3, mark: MarkLabel, by: "git"},
		"the third of both":                 {in: again(unlabelled, gated), passes: 3, mark: MarkTaint, by: "node-group"},
		"the third, of older passes":        {in: verified(gated, passedAgo(0), takenAgo(61*time.Minute, 59*time.Minute)), passes: 3},
		"the third in just an hour":         {in: verified(gated, passedAgo(0), takenAgo(time.Hour, 59*time.Minute)), passes: 3, mark: MarkTaint, by: "node-group"},
		"after more than an hour":           {in: verified(gated, passedAgo(0), takenAgo(63*time.Minute, 62*time.Minute, 61*time.Minute)), passes: 1},
		"more than are kept":                {in: verified(gated, passedAgo(0), takenAgo(slices.Repeat([]time.Duration{time.Minute}, marks.MaxTakenBack)...)), passes: marks.MaxTakenBack, mark: MarkTaint, by: "node-group"},
		"with an attempt under way":         {in: again(gated, with(pod(2, openGate))), passes: 3, mark: MarkTaint, by: "node-group"},
		"later than a minute":               {in: verified(gated, passedAgo(time.Minute+time.Second))},
		"a pass in the future":              {in: verified(gated, passedAgo(-2*time.Minute))},
		"twice the same pass":               {in: verified(gated, passedAgo(30*time.Second), takenAgo(30*time.Second))},
		"after a failure":                   {in: failing(1, passedAgo(time.Second))},
		"after a reboot":                    {in: again(gated, rebootedTo("b2"))},
		"by reverify.interval":              {in: again(gated, func(in *Input) { in.Config.NodeManagement.Reverify.Interval.Duration = time.Second })},
		"under a suspicion":                 {in: again(gated, func(in *Input) { in.Node.Record.Suspicion = &marks.Suspicion{Type: "KernelDeadlock", Time: now} })},
		"of an adopted node":                {in: verified(gated, func(in *Input) { in.Node.Record = Adopt(*in, now).Record })},
		"in DaemonSet mode":                 {in: again(unlabelled, func(in *Input) { in.LocalWorker = &LocalWorker{} })},
		"of an excluded node":               {in: again(gated, unselected)},
		"of one that is opted out":          {in: again(gated, skipped)},
		"after kubectl node-ready reverify": {in: again(unlabelled, func(in *Input) { in.Node.Record.LastOutcome, in.Node.Record.LastTime = "", nil })},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.in.Node.Record.TakenBack
			if tc.in.Node.Gated {
				tc.in.Node.GatedBy = tc.in.Profile.Taints
			}
			fresh := tc.in
			writers(&fresh)
			plan, asked := ask(t, tc.in, world{fresh: &fresh})
			r := plan.Change.Record
			if tc.passes == 0 {
				if r.TakenBack != before && plan.Step == StepRecord || plan.TakenBack != "" {
					t.Errorf("recorded %+v", r.TakenBack)
				}
				return
			}
			if plan.Step != StepRecord || plan.Change.Gate != gateKeep || plan.Change.Label != nil || r.TakenBack == nil || len(r.TakenBack.Passes) != tc.passes ||
				!r.TakenBack.Last().Equal(*tc.in.Node.Record.VerifiedTime) || r.TakenBack == before {
				t.Fatalf("step %q, %+v", plan.Step, r.TakenBack)
			}
			if plan.TakenBack != tc.mark || r.TakenBack.By != tc.by || slices.Contains(asked, NeedFresh) != (tc.mark != "") || (r.NextAttemptTime != nil) != (tc.mark != "") {
				t.Errorf("%q by %q, next %v, asked for %v", plan.TakenBack, r.TakenBack.By, r.NextAttemptTime, asked)
			}
			if tc.mark == "" && len(plan.Events) > 0 || tc.mark != "" && (len(plan.Events) != 1 || plan.Events[0].Reason != EventMarksTakenBack ||
				!strings.Contains(plan.Events[0].Message, "field manager "+tc.by)) {
				t.Errorf("events %+v", plan.Events)
			}
		})
	}
}

// From the third time on the next verification waits, unless something else asks for it.
func TestTakenBackWaits(t *testing.T) {
	fought := func(passes int, change ...func(*Input)) Input {
		var times []time.Duration
		for i := range passes {
			times = append(times, time.Second+time.Duration(passes-1-i)*10*time.Minute)
		}
		return verified(append([]func(*Input){gated, passedAgo(time.Second), takenAgo(times...),
			func(in *Input) { in.Config.Reconciliation.InitialBackoffSeconds = 10 }}, change...)...)
	}
	for name, tc := range map[string]struct {
		in Input
		// least and most are the wait from now; 0 for none.
		least, most time.Duration
	}{
		"the second":                  {in: fought(2)},
		"the third":                   {in: fought(3), least: 7 * time.Second, most: 9 * time.Second},
		"the fourth":                  {in: fought(4), least: 15 * time.Second, most: 19 * time.Second},
		"the last that are kept":      {in: fought(16), least: 8*time.Minute - time.Second, most: 10*time.Minute - time.Second},
		"longer ago":                  {in: fought(3, passedAgo(time.Hour), takenAgo(70*time.Minute, 65*time.Minute, time.Hour))},
		"only the earlier ones":       {in: fought(3, passedAgo(2*time.Minute))},
		"without checks":              {in: fought(3, unchecked), least: 7 * time.Second, most: 9 * time.Second},
		"the label":                   {in: fought(3, ungated, unlabelled), least: 7 * time.Second, most: 9 * time.Second},
		"a reboot":                    {in: fought(3, rebootedTo("b2"))},
		"a request":                   {in: fought(3, func(in *Input) { in.Node.Requested = "a" })},
		"kubectl node-ready reverify": {in: fought(3, ungated, unlabelled, func(in *Input) { in.Node.Record = marks.Record{NodeUID: "u1", Sequence: 1, VerifiedTime: ago(0)} })},
		"a forged pass in the future": {in: fought(3, passedAgo(-time.Hour), takenAgo(-time.Hour, -time.Hour, -time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Node.GatedBy = tc.in.Profile.Taints
			plan, _ := ask(t, tc.in, world{})
			if tc.most == 0 {
				if plan.Step == StepNone {
					t.Errorf("it waits: %+v", plan)
				}
				return
			}
			if plan.Step != StepNone || plan.RequeueAfter < tc.least || plan.RequeueAfter > tc.most {
				t.Fatalf("step %q, again after %s, want %s to %s", plan.Step, plan.RequeueAfter, tc.least, tc.most)
			}
			if c := plan.Condition; c == nil || c.Status != corev1.ConditionUnknown || c.Reason != marks.ReasonVerifying ||
				!strings.Contains(c.Message, "field manager earlier") || !strings.Contains(c.Message, "next verification at 2026-03-01T12:") {
				t.Errorf("condition %+v", c)
			}
			if plan, _ = askAt(t, tc.in, world{}, now.Add(plan.RequeueAfter)); plan.Step == StepNone {
				t.Error("it does not end")
			}
		})
	}
}

// A node that waits and is past its deadline says what keeps it.
func TestTakenBackPastTheDeadline(t *testing.T) {
	in := verified(gated, passedAgo(2*time.Minute), takenAgo(4*time.Minute, 3*time.Minute, 2*time.Minute), func(in *Input) {
		in.Config.Reconciliation.InitialBackoffSeconds = 600
		in.Profile.VerificationDeadlineSeconds, in.NeedsVerificationSince = 1, now.Add(-24*time.Hour)
		in.Node.Record.Since = ago(time.Minute)
	})
	plan, _ := ask(t, in, world{})
	if c := plan.Condition; plan.Step != StepNone || c == nil || c.Reason != marks.ReasonDeadlineExceeded || !strings.Contains(c.Message, "field manager earlier") {
		t.Errorf("%q, %+v", plan.Step, c)
	}
}
