package decide

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// labelledAlone is a node that carries the verified label and no record.
func labelledAlone(change ...func(*Input)) Input {
	return given(append([]func(*Input){ungated, func(in *Input) { in.Node.Labelled = true }}, change...)...)
}

func TestAdoptable(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want bool
	}{
		"label, no record":         {labelledAlone(), true},
		"an earlier node's record": {labelledAlone(func(in *Input) { in.Node.HasRecord = true }), true},
		"no label":                 {labelledAlone(unlabelled), false},
		"gated":                    {labelledAlone(gated), false},
		"skipped":                  {labelledAlone(skipped), false},
		"not selected":             {labelledAlone(unselected), false},
		"of the control plane":     {labelledAlone(controlplane), false},
		"included control plane": {labelledAlone(controlplane, func(in *Input) {
			in.Config.NodeManagement.IncludeControlPlane = true
		}), true},
		"being deleted":                         {labelledAlone(func(in *Input) { in.Node.Deleting = true }), false},
		"verified":                              {verified(), false},
		"failed":                                {failing(2, ungated), false},
		"a record that cannot be read":          {labelledAlone(unreadable), false},
		"adopted":                               {adopted(), false},
		"the label was renamed":                 {verified(renamed, unlabelled), true},
		"and its new name is there already":     {verified(renamed), true},
		"adopted, and renamed":                  {adopted(renamed, unlabelled), true},
		"renamed, and recorded":                 {verified(renamed, func(in *Input) { in.Node.Record.Label = "own/ready=yes" }), false},
		"renamed, and gated":                    {verified(renamed, unlabelled, gated), false},
		"renamed, and failed since":             {failing(2, renamed, ungated), false},
		"renamed, and released unverified":      {verified(renamed, unlabelled, func(in *Input) { in.Node.Record.Released = ago(time.Minute) }), false},
		"the record is of an earlier node":      {verified(renamed, unlabelled, func(in *Input) { in.Node.Record.NodeUID = "u0" }), false},
		"renamed, and the node verifies itself": {verified(renamed, unlabelled, func(in *Input) { in.LocalWorker = &LocalWorker{} }), false},
		"born with the label":                   {labelledAlone(born), false},
	} {
		if got := Adoptable(tc.in); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// renamed configures another verified label than the one that the node got.
func renamed(in *Input) {
	in.Config.NodeManagement.VerifiedLabel = marks.Label{Key: "own/ready", Value: "yes"}
}

// A renamed label verifies no fleet again. Afterwards its removal verifies a node, as before.
func TestARenamedLabelIsNoRemovedOne(t *testing.T) {
	in := verified(renamed, unlabelled)
	if NeedsVerification(in, now) {
		t.Error("it is verified again")
	}
	if in.Node.Record = Adopt(in, now).Record; in.Node.Record.Label != "own/ready=yes" || in.Node.Record.VerifiedTime == nil {
		t.Errorf("record %+v", in.Node.Record)
	}
	if !NeedsVerification(in, now) {
		t.Error("the removal of its label does not verify it")
	}
	if _, plan := recorded(t, given(renamed, with(pod(1, ended(attempt.Passed)))), world{}); plan.Change.Record.Label != "own/ready=yes" {
		t.Errorf("a pass records %+v", plan.Change.Record)
	}
}

// born is a node that was created after the installation.
func born(in *Input) { in.Installed, in.Node.Created = now.Add(-time.Hour), now.Add(-time.Minute) }

// A node that was born with the label is verified until an attempt of ours has shown something.
func TestBornVerifiedIsVerified(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want bool
	}{
		"younger than the installation":     {labelledAlone(born), true},
		"as old as the installation":        {labelledAlone(born, func(in *Input) { in.Installed = in.Node.Created }), false},
		"the installation's age is unknown": {labelledAlone(born, func(in *Input) { in.Installed = time.Time{} }), false},
		"it passed":                         {verified(born), false},
		"it was adopted before an upgrade":  {adopted(born), false},
		"its record lost its history":       {labelledAlone(born, unreadable), false},
		"skipped":                           {labelledAlone(born, skipped), false},
		"leaving":                           {labelledAlone(born, leaving), false},
	} {
		plan, _ := ask(t, tc.in, world{})
		if got := plan.Step == StepStart; got != tc.want || got != (StatusOf(tc.in, now) == StatusPending) {
			t.Errorf("%s: %q, status %q, want a start: %v", name, plan.Step, StatusOf(tc.in, now), tc.want)
		}
	}
}

// adopted is a node that was adopted an hour ago.
func adopted(change ...func(*Input)) Input {
	in := labelledAlone()
	in.Node.Record, in.Node.HasRecord = Adopt(in, now.Add(-time.Hour)).Record, true
	for _, f := range change {
		f(&in)
	}
	return in
}

// An adopted node is not verified at once. It is verified again for every reason that applies to any other verified
// node.
func TestAnAdoptedNodeIsVerifiedAgain(t *testing.T) {
	every := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Config.NodeManagement.Reverify.Interval = metav1.Duration{Duration: d} }
	}
	for name, tc := range map[string]struct {
		in   Input
		want Step
	}{
		"at once":               {adopted(), StepNone},
		"its label is removed":  {adopted(unlabelled), StepStart},
		"it reboots":            {adopted(rebootedTo("b2")), StepStart},
		"it is gated":           {adopted(gated), StepStart},
		"its verdict is young":  {adopted(every(2 * time.Hour)), StepNone},
		"its verdict is old":    {adopted(every(30 * time.Minute)), StepStart},
		"opted out, it reboots": {adopted(rebootedTo("b2"), skipped), StepNone},
	} {
		if plan, _ := ask(t, tc.in, world{}); plan.Step != tc.want || tc.want == StepStart && plan.Number != 1 {
			t.Errorf("%s: %+v, want %q", name, plan, tc.want)
		}
	}
	if status := StatusOf(adopted(), now); status != StatusVerified {
		t.Errorf("status %q", status)
	}
}

// An adopted node counts as verified before for the guards. It hosts a control probe only once it has passed an
// attempt.
func TestAnAdoptedNodeAmongOthers(t *testing.T) {
	in := adopted()
	if r := in.Node.Record; !r.MayHaveVerified() || !r.VerifiedTime.Equal(now.Add(-time.Hour)) || r.LastReason != attempt.ReasonAdopted || r.NodeUID != "u1" || r.BootID != "b1" || r.LastOutcome != "" {
		t.Errorf("%+v", r)
	}
	if m := SummaryOf(in); m.CanHostProbe || m.Unhealthy || m.Excluded {
		t.Errorf("adopted: %+v", m)
	}
	in = adopted(unlabelled, with(pod(1, openGate, ended(attempt.Passed))))
	r, plan := recorded(t, in, world{})
	if plan.Recorded.First || !r.VerifiedTime.Equal(now) {
		t.Errorf("its first pass: %+v, %+v", plan.Recorded, r)
	}
	in.Node.Record, in.Node.Labelled = r, true
	if m := SummaryOf(in); !m.CanHostProbe {
		t.Errorf("once it passed: %+v", m)
	}
	exhausted := failing(5, deleting)
	exhausted.Node.Record.VerifiedTime = adopted().Node.Record.VerifiedTime
	if plan, _ := ask(t, exhausted, deletable()); plan.Step == StepDelete || plan.Change.Record.Held != GuardNeverVerifiedOnly {
		t.Errorf("exhausted: %+v", plan)
	}
}
