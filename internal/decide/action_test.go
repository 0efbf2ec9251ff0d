package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

const required corev1.NodeConditionType = "node-ready/RemediationRequired"

// actions are a condition, an object and a deletion, in this order.
func actions(in *Input) {
	in.Config.NodeManagement.Remediation.Actions = []config.Action{
		{Condition: &config.ConditionAction{Type: required, Status: corev1.ConditionTrue, Reason: "VerificationFailed"}, WaitSeconds: ptr.To[int32](600)},
		{Object: &config.ObjectAction{Template: map[string]any{"apiVersion": "batch/v1", "kind": "Job",
			"metadata": map[string]any{"namespace": "repair"}}, DeleteOnRecovery: ptr.To(true)}, WaitSeconds: ptr.To[int32](60)},
		{Delete: &config.DeleteAction{}, WaitSeconds: ptr.To[int32](600)},
	}
}

// acted is an exhausted node. Actions were decided for it that now have the given states, the last one at the given
// age.
func acted(ago time.Duration, states ...string) func(*Input) {
	return func(in *Input) {
		in.Node.Record.Remediations = nil
		for i, state := range states {
			a := marks.Remediation{Action: int32(i), State: state, Time: now.Add(-ago), BootID: "b1", Sequence: in.Node.Record.Sequence}
			switch i {
			case 0:
				a.Condition, a.Status, a.Reason = required, corev1.ConditionTrue, "VerificationFailed"
			case 1:
				a.APIVersion, a.Kind, a.Namespace, a.Name = "batch/v1", "Job", "repair", "remediate-n"
			}
			in.Node.Record.Remediations = append(in.Node.Record.Remediations, a)
		}
	}
}

// failsAgain records five failed attempts after the last action.
func failsAgain(in *Input) { in.Node.Record.Sequence += 5 }

func states(all []marks.Remediation) string {
	var out []string
	for _, a := range all {
		out = append(out, a.State)
	}
	return strings.Join(out, " ")
}

const isIntended, isStarted, isReverting, isEnded = marks.RemediationIntended, marks.RemediationStarted, marks.RemediationReverting, marks.RemediationEnded

func TestActions(t *testing.T) {
	exhausted := func(change ...func(*Input)) Input {
		return failing(5, append([]func(*Input){deleting, actions}, change...)...)
	}
	held := deletable()
	held.ledger.Paused = "for a while"
	refused := deletable()
	refused.actionProblem = "Job cannot be created: forbidden"
	going := deletable()
	going.owner = owner.Owner{Target: nodeClaim("c", "cu"), Terminating: true}
	others := func(in *Input) {
		in.Node.Conditions = []corev1.NodeCondition{{Type: required, Status: corev1.ConditionFalse}}
	}
	own := func(in *Input) {
		in.Node.Conditions = []corev1.NodeCondition{{Type: required, Status: corev1.ConditionTrue}}
	}
	off := func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }
	dry := func(in *Input) { in.Config.NodeManagement.Remediation.DryRun = true }
	for name, tc := range map[string]struct {
		in     Input
		world  world
		step   Step
		states string // of the record that is written
		guard  string
		wait   time.Duration
	}{
		"the first entry":                         {in: exhausted(), step: StepAct, states: isIntended},
		"a guard holds":                           {in: exhausted(), world: held, step: StepRecord, guard: GuardPaused},
		"a dry run":                               {in: exhausted(dry), step: StepRecord, guard: GuardDryRun},
		"another program's condition":             {in: exhausted(others), step: StepRecord, guard: GuardAction},
		"it waits for the repairer":               {in: exhausted(acted(time.Minute, isStarted), own), step: StepNone, wait: 9 * time.Minute},
		"a reboot ends that":                      {in: exhausted(acted(time.Minute, isStarted), own, rebootedTo("b2")), step: StepStart},
		"so does the time":                        {in: exhausted(acted(10*time.Minute, isStarted), own), step: StepStart},
		"a time from the future does not count":   {in: exhausted(acted(-time.Hour, isStarted), own), step: StepStart},
		"it fails again: the condition goes":      {in: exhausted(acted(20*time.Minute, isStarted), own, failsAgain), step: StepRecord, states: isReverting},
		"it is taken back":                        {in: exhausted(acted(20*time.Minute, isReverting), own, failsAgain), step: StepRevert, states: isEnded},
		"the second entry":                        {in: exhausted(acted(20*time.Minute, isEnded), failsAgain), step: StepAct, states: isEnded + " " + isIntended},
		"its object is refused":                   {in: exhausted(acted(20*time.Minute, isEnded), failsAgain), world: refused, step: StepRecord, guard: GuardAction, states: isEnded},
		"it waits for the object":                 {in: exhausted(acted(20*time.Second, isEnded, isStarted)), step: StepNone, wait: 40 * time.Second},
		"the last entry deletes":                  {in: exhausted(acted(time.Hour, isEnded, isStarted), failsAgain), step: StepDelete, states: isEnded + " " + isStarted},
		"all were tried":                          {in: exhausted(acted(time.Hour, isEnded, isStarted, isStarted), failsAgain), step: StepRecord, guard: GuardActions, states: isEnded + " " + isStarted + " " + isStarted},
		"cut short before the effect":             {in: exhausted(acted(time.Minute, isIntended)), step: StepAct, states: isIntended},
		"cut short, and a guard holds":            {in: exhausted(acted(time.Minute, isIntended)), world: held, step: StepRecord, guard: GuardPaused, states: isReverting},
		"a guard held: the entry is tried again":  {in: exhausted(acted(time.Minute, isReverting), heldBy(GuardPaused)), step: StepRevert, states: ""},
		"deletion was switched off":               {in: exhausted(acted(time.Minute, isStarted), own, off), step: StepRecord, states: isReverting},
		"its owner is being deleted":              {in: exhausted(acted(20*time.Minute, isStarted), failsAgain), world: going, step: StepRecord, states: isStarted},
		"a pass takes all back":                   {in: exhausted(acted(time.Hour, isStarted, isStarted), with(pod(6, ended(attempt.Passed)))), step: StepRecord, states: isReverting + " " + isReverting},
		"what was taken back before is forgotten": {in: exhausted(acted(time.Hour, isEnded, isStarted), with(pod(6, ended(attempt.Passed)))), step: StepRecord, states: isReverting},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.world.fleet == nil {
				tc.world.fleet = deletable().fleet
			}
			plan, _ := ask(t, tc.in, tc.world)
			if plan.Step != tc.step || plan.RequeueAfter != tc.wait && tc.wait != 0 {
				t.Fatalf("%q after %s, want %q after %s: %+v", plan.Step, plan.RequeueAfter, tc.step, tc.wait, plan.Change.Record)
			}
			if tc.step == StepNone || tc.step == StepStart {
				return
			}
			if got := states(plan.Change.Record.Remediations); got != tc.states {
				t.Errorf("actions %q, want %q", got, tc.states)
			}
			if got := plan.Change.Record.Held; got != tc.guard && plan.Step != StepRevert {
				t.Errorf("held by %q, want %q", got, tc.guard)
			}
		})
	}
}

// After an action, the node has a full retry budget again. The next entry is tried only when that budget is exhausted.
func TestActionBeginsARun(t *testing.T) {
	in := failing(5, deleting, actions, acted(10*time.Minute, isStarted), with(pod(6, ended(attempt.Failed))))
	plan, _ := ask(t, in, world{fleet: healthyNodes(3, ""), probes: deletable().probes})
	if plan.Step == StepProbe { // it is compared with a verified node first
		w := world{fleet: healthyNodes(3, "")}
		w.probes = append(w.probes, probe("m0", subject("u1/6"), ended(attempt.Passed)))
		plan, _ = ask(t, in, w)
	}
	if r := plan.Change.Record; plan.Step != StepRecord || r.Attempts != 1 || states(r.Remediations) != isStarted {
		t.Errorf("%q, %d of the retries spent: %+v", plan.Step, r.Attempts, r)
	}
}

// The object has the same name however often the action is interrupted, and another name for the next action.
func TestObjectIsNamedOnce(t *testing.T) {
	in := failing(5, deleting, actions, acted(20*time.Minute, isEnded))
	in.Node.Record.Sequence += 5
	first, _ := ask(t, in, deletable())
	in.Node.Record = first.Change.Record
	in.Node.Record.Sequence++ // an attempt in between
	in.Node.Record.LastTime = ago(0)
	again, _ := ask(t, in, deletable())
	if first.Step != StepAct || again.Step != StepAct || first.Action.Name == "" || again.Action.Name != first.Action.Name {
		t.Fatalf("%+v, then %+v", first.Action, again.Action)
	}
	in.Node.Record = marks.Record{}
	other := failing(9, deleting, actions, acted(20*time.Minute, isEnded))
	if next, _ := ask(t, other, deletable()); next.Action == nil || next.Action.Name == first.Action.Name {
		t.Errorf("another round has the object %+v too", next.Action)
	}
}

// A condition that an action set is taken back as soon as a guard holds, unless the owner is being deleted.
func TestSupervise(t *testing.T) {
	node := failing(5, deleting, actions, acted(time.Minute, isStarted))
	free, held, going := deletable(), deletable(), deletable()
	held.ledger.Paused = "for a while"
	going.ledger.Paused = "for a while"
	going.owner = owner.Owner{Target: nodeClaim("c", "cu"), Terminating: true}
	off := failing(5, actions, acted(time.Minute, isStarted))
	for name, tc := range map[string]struct {
		in     Input
		world  world
		states string
	}{
		"no guard holds":             {node, free, ""},
		"deletions are paused":       {node, held, isReverting},
		"the owner is being deleted": {node, going, ""},
		"deletion is off":            {off, free, isReverting},
		"an object":                  {failing(5, deleting, actions, acted(time.Minute, isEnded, isStarted)), held, ""},
		"none":                       {failing(5, deleting, actions), held, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in, ev := tc.in, Evidence{}
			plan, err := ResolveWith(Supervise, &in, &ev, func() time.Time { return now }, tc.world.loaders(&in, &ev, func(Plan) {}))
			if err != nil {
				t.Fatal(err)
			}
			if got := states(plan.Change.Record.Remediations); got != tc.states || (plan.Step == StepRecord) != (tc.states != "") {
				t.Errorf("%q, actions %q, want %q", plan.Step, got, tc.states)
			}
		})
	}
}

// A node that waits for the effect of an action counts as failed, and its condition says until when it waits.
func TestActionWaitEnd(t *testing.T) {
	in := failing(5, deleting, actions, acted(time.Minute, isStarted))
	if end, ok := ActionWaitEnd(in, now); !ok || !end.Equal(now.Add(9*time.Minute)) || StatusOf(in, now) != StatusFailed {
		t.Errorf("ends %s, %v, status %s", end, ok, StatusOf(in, now))
	}
	failsAgain(&in)
	if end, ok := ActionWaitEnd(in, now); !ok || !end.Equal(now.Add(9*time.Minute)) {
		t.Errorf("once the checks run again: %s, %v", end, ok)
	}
	going := failing(5, deleting, actions, acted(time.Minute, isStarted))
	going.Node.Record.Deletion = &marks.Deletion{Kind: "Node"}
	for name, other := range map[string]Input{"none": failing(5), "intended": failing(5, actions, acted(time.Minute, isIntended)),
		"taken back": failing(5, actions, acted(time.Minute, isEnded)), "from the future": failing(5, actions, acted(-time.Hour, isStarted)), "deleted": going} {
		if end, ok := ActionWaitEnd(other, now); ok {
			t.Errorf("%s: %s", name, end)
		}
	}
}

// its is a ledger entry about the node under test, made now.
func its(index int32, round string) ledger.Entry {
	return ledger.Entry{Time: metav1.NewTime(now), UID: "u1", Pool: "pool", Kind: "NodeClaim", Index: &index, Round: round}
}

// Each action counts towards the hourly limit. The entry of an action that is tried again does not.
func TestEveryActionCountsInTheHour(t *testing.T) {
	done := failing(5, deleting, actions, maxDeletionsPerHour(2), acted(time.Hour, isEnded, isStarted), failsAgain)
	again := failing(5, deleting, actions, maxDeletionsPerHour(2), acted(time.Minute, isEnded, isIntended))
	for name, tc := range map[string]struct {
		in   Input
		with []ledger.Entry
		held string
	}{
		"two actions before":              {done, []ledger.Entry{its(0, ""), its(1, "")}, GuardMaxDeletionsPerHour},
		"one of them over an hour ago":    {done, []ledger.Entry{{Time: metav1.NewTime(*ago(time.Hour)), UID: "u1", Index: its(0, "").Index}, its(1, "")}, ""},
		"the second is tried again":       {again, []ledger.Entry{its(0, ""), its(1, "")}, ""},
		"the second, beside another node": {again, []ledger.Entry{its(0, ""), its(1, ""), {Time: metav1.NewTime(now), UID: "u2"}}, GuardMaxDeletionsPerHour},
	} {
		w := deletable()
		w.ledger.Entries = tc.with
		if plan, _ := ask(t, tc.in, w); plan.Change.Record.Held != tc.held {
			t.Errorf("%s: held by %q (%s), want %q", name, plan.Change.Record.Held, plan.Change.Record.HeldMessage, tc.held)
		}
	}
}

// A node counts once, however many actions were taken on it.
func TestManyActionsAreOneUnhealthyNode(t *testing.T) {
	entries := []ledger.Entry{its(0, ""), its(1, ""), its(2, "")}
	for i, at := range []time.Duration{40 * time.Minute, 30 * time.Minute, 20 * time.Minute} {
		entries[i].Time = metav1.NewTime(*ago(at))
	}
	well := NodeSummary{Name: "m", UID: "u2", Pool: "pool", Created: *ago(time.Hour)}
	for name, tc := range map[string]struct {
		fleet    []NodeSummary
		want     count
		inFlight int
	}{
		"it is gone":     {[]NodeSummary{well}, count{1, 2}, 0},
		"it is there":    {[]NodeSummary{well, {Name: "n", UID: "u1", Pool: "pool", Created: *ago(time.Hour), Unhealthy: true}}, count{1, 2}, 1},
		"it is replaced": {[]NodeSummary{well, {Name: "o", UID: "u3", Pool: "pool", Created: *ago(time.Minute)}}, count{1, 2}, 0},
	} {
		c := CountNodes(tc.fleet, entries, time.Hour, now)
		if got := c.groups[group{pool: "pool"}]; got != tc.want || len(c.deleting) != tc.inFlight {
			t.Errorf("%s: %+v, in flight %d; want %+v, %d", name, got, len(c.deleting), tc.want, tc.inFlight)
		}
	}
}

// A node with an action counts as in flight until it is gone or has passed.
func TestActionIsInFlight(t *testing.T) {
	s := SummaryOf(failing(5, actions, acted(time.Minute, isStarted)))
	entry := []ledger.Entry{{Time: metav1.NewTime(now.Add(-time.Minute)), UID: "u1"}}
	if c := CountNodes([]NodeSummary{s}, entry, time.Hour, now); len(c.deleting) != 1 {
		t.Errorf("in flight: %+v", c.deleting)
	}
	passed := SummaryOf(verified(func(in *Input) { in.Node.Record.VerifiedTime = ago(0) }))
	if c := CountNodes([]NodeSummary{passed}, entry, time.Hour, now); len(c.deleting) != 0 {
		t.Errorf("in flight after a pass: %+v", c.deleting)
	}
}
