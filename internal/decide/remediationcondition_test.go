package decide

import (
	"slices"
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

func asksForRepair(in *Input) { in.Config.NodeManagement.Remediation.Action = config.ActionCondition }

// carrying is a node with conditions of our reason.
func carrying(types ...corev1.NodeConditionType) func(*Input) {
	return func(in *Input) {
		for _, t := range types {
			c := corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: marks.ReasonVerificationFailed, LastTransitionTime: metav1.NewTime(now)}
			in.Node.RemediationConditions = append(in.Node.RemediationConditions, c)
			in.Node.Conditions = append(in.Node.Conditions, c)
		}
	}
}

// aboutCondition is what Remediation decides about the condition.
func aboutCondition(in Input, ev Evidence, now time.Time) Plan {
	condition, _ := Remediation(in, ev, now)
	return condition
}

// conditionPlan is what is decided about the condition with the evidence of the world.
func conditionPlan(t *testing.T, in Input, w world) (Plan, []Need) {
	t.Helper()
	ev, asked := Evidence{}, []Need(nil)
	plan, err := ResolveWith(aboutCondition, &in, &ev, func() time.Time { return now }, w.loaders(&in, &ev, func(p Plan) {
		asked = append(asked, p.Need)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return plan, asked
}

// Each row says whether the condition is set on a node without it, and removed from a node that carries it.
func TestRemediationCondition(t *testing.T) {
	node := func(change ...func(*Input)) Input {
		return failing(5, append([]func(*Input){deleting, asksForRepair}, change...)...)
	}
	paused, busy, going := deletable(), deletable(), deletable()
	paused.ledger.Paused = "for a while"
	busy.workloads.Names = []string{"default/app"}
	going.ledger.Entries = []ledger.Entry{{Time: metav1.NewTime(*ago(time.Minute)), UID: "-mu0", Kind: marks.KindCondition}}
	// sets are the entries of both conditions, which were set first at one time and again at another.
	sets := func(uid string, first, again time.Duration) (all []ledger.Entry) {
		for _, t := range []corev1.NodeConditionType{required, "example.com/Earlier"} {
			e := ledger.Entry{Time: metav1.NewTime(now.Add(-first)), UID: uid, Kind: marks.KindCondition, Name: string(t)}
			if first != again {
				e.Set = ptr.To(metav1.NewTime(now.Add(-again)))
			}
			all = append(all, e)
		}
		return all
	}
	lately, longAgo, again, before, others := deletable(), deletable(), deletable(), deletable(), deletable()
	lately.ledger.Entries, longAgo.ledger.Earlier = sets("u1", 0, 0), sets("u1", 0, 0)
	again.ledger.Entries = sets("u1", time.Hour, 0)
	before.ledger.Entries, others.ledger.Entries = sets("u1", time.Minute, time.Minute), sets("u2", 0, 0)
	opts := func(change func(*config.Config)) func(*Input) { return func(in *Input) { change(in.Config) } }
	for name, tc := range map[string]struct {
		in      Input
		world   world
		sets    bool // on a node without it
		removes bool // from a node with it
		foreign bool // not even a condition of another type goes
	}{
		"exhausted":                            {in: node(), sets: true},
		"and leaving":                          {in: node(leaving)},
		"another attempt runs":                 {in: node(with(pod(6)))},
		"another attempt failed, not recorded": {in: node(with(pod(6, ended(attempt.Failed))))},
		"another passed, not recorded":         {in: node(with(pod(6, ended(attempt.Passed)))), removes: true},
		"passed, waits for registration":       {in: node(managed, with(pod(6, ended(attempt.Passed)))), removes: true},
		"an earlier attempt's pod is there":    {in: node(with(pod(5, ended(attempt.Failed)))), sets: true},
		"an old failure":                       {in: node(recordedAgo(11 * time.Minute))},
		"an inconclusive attempt after it": {in: node(func(in *Input) {
			in.Node.Record.LastOutcome, in.Node.Record.LastReason, in.Node.Record.Probed = attempt.Inconclusive, attempt.ReasonImagePull, false
		})},
		"a failure that verified nodes share": {in: node(func(in *Input) {
			in.Node.Record.LastOutcome, in.Node.Record.Held = attempt.Inconclusive, GuardControlProbe
		}), removes: true},
		"not compared with a verified node": {in: node(unprobed), removes: true},
		"no control probe is needed":        {in: node(unprobed, noProbe), sets: true},
		"not all retries are spent":         {in: failing(4, deleting, asksForRepair), removes: true},
		"never tried":                       {in: given(deleting, asksForRepair), removes: true},
		"passed":                            {in: verified(deleting, asksForRepair), removes: true},
		"under other checks":                {in: node(func(in *Input) { in.Checks = "c2" }), removes: true},
		"in another boot":                   {in: node(rebootedTo("b2")), removes: true},
		"in another boot, onReboot off": {in: node(rebootedTo("b2"), opts(func(c *config.Config) {
			c.NodeManagement.Reverify.OnReboot = ptr.To(false)
		})), removes: true},
		"skip":                      {in: node(skipped), removes: true},
		"do-not-delete":             {in: node(optOut), removes: true},
		"paused":                    {in: node(), world: paused, removes: true},
		"a dry run":                 {in: node(dryRun), removes: true},
		"deleteFailedNodes off":     {in: node(opts(func(c *config.Config) { c.NodeManagement.DeleteFailedNodes = false })), removes: true},
		"action delete":             {in: node(opts(func(c *config.Config) { c.NodeManagement.Remediation.Action = config.ActionDelete })), removes: true},
		"not selected":              {in: node(unselected), world: lately, removes: true},
		"not selected, long ago":    {in: node(unselected), world: longAgo, removes: true},
		"not selected, set again":   {in: node(unselected), world: again, removes: true},
		"another installation's":    {in: node(unselected), foreign: true},
		"set by another later":      {in: node(unselected), world: before, foreign: true},
		"another node's entry":      {in: node(unselected), world: others, foreign: true},
		"the record was removed":    {in: node(func(in *Input) { in.Node.Record, in.Node.HasRecord = marks.Record{}, false }), removes: true},
		"the record is unreadable":  {in: node(func(in *Input) { in.Node.Record = marks.Record{VerifiedTime: &in.Node.Created} }), removes: true},
		"a control plane":           {in: node(controlplane), removes: true},
		"a virtual node":            {in: node(virtual), removes: true},
		"Windows":                   {in: node(windows), removes: true},
		"verified before":           {in: node(verifiedOnce), removes: true},
		"ordinary pods":             {in: node(), world: busy, removes: true},
		"another node is in flight": {in: node(), world: going, removes: true},
		"the owner is ambiguous":    {in: node(), world: world{fleet: deletable().fleet, owner: owner.Owner{Problem: "two"}}, removes: true},
		"too many fail":             {in: node(maxUnhealthy(*ptrTo("0"))), removes: true},
		"the node is being deleted": {in: node(func(in *Input) { in.Node.Deleting = true })},
		"another program's condition": {in: node(func(in *Input) {
			in.Node.Conditions = []corev1.NodeCondition{{Type: required, Status: corev1.ConditionFalse, Reason: "Theirs"}}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			if w.fleet == nil {
				w.fleet = deletable().fleet
			}
			plan, asked := conditionPlan(t, tc.in, w)
			if (plan.Step == StepSetCondition) != tc.sets || plan.Step == StepRemoveConditions {
				t.Errorf("without the condition: %q", plan.Step)
			}
			if fresh := slices.Index(asked, NeedFresh); tc.sets && (fresh < 0 || !slices.Contains(asked[fresh:], NeedOwner) || !slices.Contains(asked[fresh:], NeedLedger)) {
				t.Errorf("all evidence is loaded again after the fresh read of the node: %v", asked)
			}
			if name == "another program's condition" {
				if plan, _ := ask(t, tc.in, w); plan.Change.Record.Held != GuardCondition {
					t.Errorf("held by %q", plan.Change.Record.Held)
				}
				return
			}
			earlier := tc.in // a condition that must go does not wait for the one to set, nor that one for it
			carrying("example.com/Earlier")(&earlier)
			if plan, _ := conditionPlan(t, earlier, w); (plan.Step == StepSetCondition) != tc.sets || tc.sets && len(plan.RemoveConditions) != 1 {
				t.Errorf("with one of an earlier type: %q, removes %v", plan.Step, plan.RemoveConditions)
			}
			with := tc.in
			carrying(required, "example.com/Earlier")(&with)
			plan, _ = conditionPlan(t, with, w)
			want := []corev1.NodeConditionType{"example.com/Earlier"} // of an earlier configuration: always goes
			if tc.removes {
				want = append([]corev1.NodeConditionType{required}, want...)
			}
			if tc.in.Node.Deleting || tc.foreign {
				want = nil
			}
			if !slices.Equal(plan.RemoveConditions, want) || (plan.Step == StepRemoveConditions) != (want != nil) {
				t.Errorf("with the condition: %q, removes %v, want %v", plan.Step, plan.RemoveConditions, want)
			}
			if plan, _ := ask(t, with, w); plan.Step == StepDelete && name != "action delete" {
				t.Error("the node is deleted")
			}
		})
	}
}

// A condition of our type and reason with another status asks nobody to act: it is set, or removed like any other.
func TestConditionOfAnotherStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Input)
		step   Step
	}{
		"exhausted":      {func(*Input) {}, StepSetCondition},
		"an old failure": {recordedAgo(11 * time.Minute), StepRemoveConditions},
		"a guard holds":  {optOut, StepRemoveConditions},
	} {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
			in := failing(5, deleting, asksForRepair, carrying(required), tc.change)
			in.Node.RemediationConditions[0].Status, in.Node.Conditions[0].Status = status, status
			plan, _ := conditionPlan(t, in, deletable())
			if plan.Step != tc.step || (len(plan.RemoveConditions) > 0) != (tc.step == StepRemoveConditions) {
				t.Errorf("%s, %s: %q, removes %v", name, status, plan.Step, plan.RemoveConditions)
			}
		}
	}
}

// A guard that takes the condition back is reported: by the record and its event after a failure that leads to an action,
// and else by an event of the removal.
func TestTakenBackConditionIsReported(t *testing.T) {
	inconclusive := func(in *Input) {
		in.Node.Record.LastOutcome, in.Node.Record.LastReason, in.Node.Record.Probed = attempt.Inconclusive, attempt.ReasonImagePull, false
	}
	for name, tc := range map[string]struct {
		change []func(*Input)
		event  Reason // of the removal
		held   string // in the record
	}{
		"after a failure":                 {change: []func(*Input){optOut}, held: GuardDoNotDelete},
		"after an inconclusive attempt":   {change: []func(*Input){inconclusive, optOut}, event: EventHeld},
		"after an old failure":            {change: []func(*Input){recordedAgo(time.Hour), dryRun}, event: EventHeld},
		"of a node that worked":           {change: []func(*Input){inconclusive, verifiedOnce}, event: EventQuarantined},
		"not by a guard":                  {change: []func(*Input){inconclusive, skipped}},
		"a pass that waits, and no guard": {change: []func(*Input){managed, with(pod(6, ended(attempt.Passed)))}},
	} {
		in := failing(5, append([]func(*Input){deleting, asksForRepair, carrying(required)}, tc.change...)...)
		plan, _ := conditionPlan(t, in, deletable())
		if plan.Step != StepRemoveConditions || len(plan.Events) != map[bool]int{true: 1}[tc.event != (Reason{})] {
			t.Errorf("%s: %q, events %v", name, plan.Step, plan.Events)
		} else if len(plan.Events) > 0 && (plan.Events[0].Reason != tc.event || !strings.Contains(plan.Events[0].Message, "; the condition is removed")) {
			t.Errorf("%s: event %+v", name, plan.Events[0])
		}
		if plan, _ := ask(t, in, deletable()); plan.Change.Record.Held != tc.held {
			t.Errorf("%s: held by %q, want %q", name, plan.Change.Record.Held, tc.held)
		}
	}
}

// One evaluation of the guards serves both the condition and the record, whatever they say.
func TestGuardsAreEvaluatedOnce(t *testing.T) {
	evaluated, was := 0, guards
	t.Cleanup(func() { guards = was })
	guards = slices.Clone(was)
	guards[0].holds = func(in Input, ev Evidence, now time.Time) string {
		evaluated++
		return was[0].holds(in, ev, now)
	}
	paused := deletable()
	paused.ledger.Paused = "for a while"
	for name, tc := range map[string]struct {
		in              Input
		world           world
		condition, then Step
		held            string
		evaluated       int
	}{
		"it is set":                  {failing(5, deleting, asksForRepair), deletable(), StepSetCondition, StepNone, "", 1},
		"it stays, one held before":  {failing(5, deleting, asksForRepair, carrying(required), heldBy(GuardPaused)), deletable(), StepNone, StepRecord, "", 1},
		"the first guard takes it":   {failing(5, deleting, asksForRepair, carrying(required), optOut), deletable(), StepRemoveConditions, StepRecord, GuardDoNotDelete, 1},
		"a later guard takes it":     {failing(5, deleting, asksForRepair, carrying(required)), paused, StepRemoveConditions, StepRecord, GuardPaused, 1},
		"there is none, a guard":     {failing(5, deleting, asksForRepair), paused, StepNone, StepRecord, GuardPaused, 1},
		"taken from one that passed": {verified(deleting, asksForRepair, carrying(required)), deletable(), StepRemoveConditions, StepNone, "", 0},
		"a deletion, it goes":        {failing(5, deleting, carrying(required)), deletable(), StepRemoveConditions, StepDelete, "", 1},
	} {
		ev := Evidence{}
		for _, need := range needs {
			tc.world.load(&tc.in, &ev, need)
		}
		evaluated = 0
		condition, then := Remediation(tc.in, ev, now)
		if condition.Step != tc.condition || then.Step != tc.then || then.Change.Record.Held != tc.held {
			t.Errorf("%s: %q, then %q, held by %q", name, condition.Step, then.Step, then.Change.Record.Held)
		}
		if evaluated != tc.evaluated {
			t.Errorf("%s: the guards are evaluated %d times, want %d", name, evaluated, tc.evaluated)
		}
	}
}

// The limits count an action once. Neither the node's own entries hold it, nor what began after it.
func TestConditionCountsOnce(t *testing.T) {
	entry := func(uid string, age time.Duration) ledger.Entry {
		return ledger.Entry{Time: metav1.NewTime(now.Add(-age)), UID: uid, Node: uid, Kind: marks.KindCondition}
	}
	for name, tc := range map[string]struct {
		with    []ledger.Entry
		carries bool
		step    Step
	}{
		"first":                           {step: StepSetCondition},
		"entered, and not set yet":        {with: []ledger.Entry{entry("u1", time.Second)}, step: StepSetCondition},
		"set":                             {with: []ledger.Entry{entry("u1", time.Minute)}, carries: true},
		"another node's later":            {with: []ledger.Entry{entry("u1", time.Minute), entry("gone", time.Second)}, carries: true},
		"set, and its entry is gone":      {with: []ledger.Entry{entry("gone", time.Minute)}, carries: true},
		"another node's before it":        {with: []ledger.Entry{entry("gone", time.Minute)}, step: StepNone},
		"removed meanwhile, counted once": {with: []ledger.Entry{entry("u1", 2*time.Minute), entry("gone", time.Minute)}, step: StepSetCondition},
	} {
		in, w := failing(5, deleting, asksForRepair, maxDeletionsPerHour(1)), deletable()
		if tc.carries {
			carrying(required)(&in)
		}
		w.ledger.Entries = tc.with
		if plan, _ := conditionPlan(t, in, w); plan.Step != tc.step {
			t.Errorf("%s: %q, want %q", name, plan.Step, tc.step)
		}
	}
	if RemediationEntered(failing(5), Ledger{Contents: ledger.Contents{Entries: []ledger.Entry{entry("u1", time.Hour)}}}, marks.KindCondition, now) != true {
		t.Error("an entry since the node was created")
	}
	passed := verified(func(in *Input) { in.Node.Record.VerifiedTime = ago(time.Minute) })
	if RemediationEntered(passed, Ledger{Contents: ledger.Contents{Entries: []ledger.Entry{entry("u1", time.Hour)}}}, marks.KindCondition, now) {
		t.Error("an entry of before the node passed")
	}
	passed.Node.Record.VerifiedTime = ptr.To(now.Add(time.Hour))
	if !Passed(passed, now).IsZero() {
		t.Error("a pass in the future is forged")
	}
}

// What excuses an action from the hourly limit is an entry of the same action since the node's last pass. Nothing else
// does: the node's other actions count like those of any node.
func TestHourlyLimitCountsTheNodesOtherActions(t *testing.T) {
	entry := func(kind string, age time.Duration) ledger.Entry {
		return ledger.Entry{Time: metav1.NewTime(now.Add(-age)), UID: "u1", Kind: kind}
	}
	passedAgo := func(age time.Duration) func(*Input) {
		return func(in *Input) {
			in.Node.Record.VerifiedTime = ago(age)
			in.Config.NodeManagement.Remediation.NeverVerifiedOnly = ptr.To(false)
		}
	}
	for name, tc := range map[string]struct {
		change  []func(*Input)
		entries []ledger.Entry
		held    bool
	}{
		"deleted before, in this round":          {entries: []ledger.Entry{entry("NodeClaim", time.Minute)}},
		"under another kind of owner":            {entries: []ledger.Entry{entry("Node", time.Minute)}},
		"the condition stays after it":           {change: []func(*Input){carrying(required)}, entries: []ledger.Entry{entry(marks.KindCondition, time.Minute)}, held: true},
		"the condition went":                     {entries: []ledger.Entry{entry(marks.KindCondition, time.Minute)}, held: true},
		"deleted, and it passed since":           {change: []func(*Input){passedAgo(30 * time.Second)}, entries: []ledger.Entry{entry("NodeClaim", time.Minute)}, held: true},
		"deleted, an hour ago, and passed since": {change: []func(*Input){passedAgo(30 * time.Second)}, entries: []ledger.Entry{entry("NodeClaim", time.Hour)}},
		"the condition, asks for it again":       {change: []func(*Input){asksForRepair}, entries: []ledger.Entry{entry(marks.KindCondition, time.Minute)}},
		"the condition, passed since":            {change: []func(*Input){asksForRepair, passedAgo(30 * time.Second)}, entries: []ledger.Entry{entry(marks.KindCondition, time.Minute)}, held: true},
		"deleted, asks for the condition":        {change: []func(*Input){asksForRepair}, entries: []ledger.Entry{entry("NodeClaim", time.Minute)}, held: true},
	} {
		in, w := exhausted(append([]func(*Input){maxDeletionsPerHour(1)}, tc.change...)...), pool()
		w.ledger.Entries = tc.entries
		plan, _ := ask(t, in, w)
		if held := plan.Change.Record.Held; (held == GuardMaxDeletionsPerHour) != tc.held || !tc.held && held != "" {
			t.Errorf("%s: %q, held by %q, want it held: %t", name, plan.Step, held, tc.held)
		}
	}
}

// maxInFlight holds an action for those that began before it, and not for later ones: a lower limit, or a node that
// counts all pools, would else take back what was let through, or let two nodes hold each other.
func TestInFlightHoldsTheLaterAction(t *testing.T) {
	entry := func(uid, kind string, age time.Duration) ledger.Entry {
		return ledger.Entry{Time: metav1.NewTime(now.Add(-age)), UID: uid, Kind: kind}
	}
	const other, condition = "pool-mu0", marks.KindCondition
	for name, tc := range map[string]struct {
		change  []func(*Input)
		entries []ledger.Entry
		intends bool // the other node's record shows a deletion, and no entry does
		held    bool
	}{
		"the condition is set, the other's later":   {change: []func(*Input){asksForRepair, carrying(required)}, entries: []ledger.Entry{entry("u1", condition, 2*time.Minute), entry(other, condition, time.Minute)}},
		"the condition is set, the other's earlier": {change: []func(*Input){asksForRepair, carrying(required)}, entries: []ledger.Entry{entry(other, condition, 2*time.Minute), entry("u1", condition, time.Minute)}, held: true},
		"set, its entry is gone, the other's later": {change: []func(*Input){asksForRepair, carrying(required), func(in *Input) {
			in.Node.RemediationConditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
		}}, entries: []ledger.Entry{entry(other, condition, time.Minute)}},
		"entered, not deleted yet, the other's later": {entries: []ledger.Entry{entry("u1", "NodeClaim", 2*time.Minute), entry(other, "NodeClaim", time.Minute)}},
		"the other's alone":                           {entries: []ledger.Entry{entry(other, "NodeClaim", time.Minute)}, held: true},
		"its condition before, the other's later":     {entries: []ledger.Entry{entry("u1", condition, 2*time.Minute), entry(other, "NodeClaim", time.Minute)}, held: true},
		"the other's time is unknown":                 {entries: []ledger.Entry{entry("u1", "NodeClaim", 2*time.Minute)}, intends: true, held: true},
	} {
		in, w := exhausted(tc.change...), pool()
		w.ledger.Entries = tc.entries
		for i := range w.ledger.Entries {
			w.ledger.Entries[i].Pool = "pool"
		}
		w.fleet[0].RemediationIntended = tc.intends
		if in.Node.Owner.Pool = "pool"; w.fleet[0].UID != other {
			t.Fatal(w.fleet[0])
		}
		ev := Evidence{}
		for _, need := range needs {
			w.load(&in, &ev, need)
		}
		if held := inFlight(in, ev, now); (held != "") != tc.held {
			t.Errorf("%s: held %q, want it held: %t", name, held, tc.held)
		}
	}
}

// An outage that grows beyond maxUnhealthy takes back a condition that was let through before: a repairer that has not
// acted yet must not act. Once the outage is over, the condition returns, and counts for no limit again.
func TestGrowingOutageTakesTheConditionBack(t *testing.T) {
	perZone := func(in *Input) {
		in.Node.Zone, in.Config.NodeManagement.Remediation.MaxUnhealthyPerZone = "a", ptrTo("20%")
		in.Config.NodeManagement.Remediation.MaxUnhealthy = ptrTo("100%")
	}
	for name, limit := range map[string]func(*Input){"of the cluster": maxUnhealthy(*ptrTo("20%")), "of a zone": perZone} {
		for bad, carried := range map[int]bool{1: true, 2: true, 3: false, 10: false} {
			in, w := failing(5, deleting, asksForRepair, carrying(required), maxDeletionsPerHour(1), limit), deletable()
			w.ledger.Entries = []ledger.Entry{{Time: metav1.NewTime(now.Add(-time.Minute)), UID: "u1", Kind: marks.KindCondition}}
			for i := range w.fleet {
				w.fleet[i].Zone, w.fleet[i].Unhealthy = in.Node.Zone, i < bad-1 || w.fleet[i].UID == in.Node.UID
			}
			if plan, _ := conditionPlan(t, in, w); (plan.Step == StepNone) != carried || (plan.Step == StepRemoveConditions) == carried {
				t.Errorf("%s, %d of 10 are unhealthy: %q", name, bad, plan.Step)
			}
			in.Node.RemediationConditions, in.Node.Conditions = nil, nil
			if plan, _ := conditionPlan(t, in, w); (plan.Step == StepSetCondition) != carried {
				t.Errorf("%s, without it, %d of 10 are unhealthy: %q", name, bad, plan.Step)
			}
		}
	}
}

// A failure under other checks counts for nothing. A node whose checks were corrected is tried again, with all retries,
// before anything is done about it.
func TestFailureBelongsToItsChecks(t *testing.T) {
	corrected := func(in *Input) { in.Checks, in.Node.Record.LastTime = "c2", ago(time.Second) }
	for name, in := range map[string]Input{
		"exhausted":          failing(5, deleting, corrected),
		"a deletion intent":  failing(5, deleting, corrected, intended),
		"held":               failing(5, deleting, corrected, heldBy(GuardPaused)),
		"with the condition": failing(5, deleting, asksForRepair, corrected),
	} {
		w := deletable()
		plan, _ := ask(t, in, w)
		for range 3 { // an intent is dropped first
			if plan.Step != StepRecord {
				break
			}
			in.Node.Record = plan.Change.Record
			plan, _ = ask(t, in, w)
		}
		if plan.Step != StepStart {
			t.Errorf("%s: %q: %+v", name, plan.Step, plan.Change.Record)
		}
		in.Pods = append(in.Pods, pod(6, ended(attempt.Failed)))
		in.Pods[0].Attempt.Basis.Checks = "c2"
		w.probes = nil
		in.Config.NodeManagement.Remediation.ControlProbe = ptr.To(false)
		plan, _ = ask(t, in, w)
		if r := plan.Change.Record; plan.Step != StepRecord || r.Attempts != 1 || r.Checks != "c2" {
			t.Errorf("%s: the first failure under the corrected checks: %q %+v", name, plan.Step, r)
		}
	}
	if s := SummaryOf(failing(5, deleting)); !s.Unhealthy {
		t.Error("a failed node is healthy")
	}
	if s := SummaryOf(failing(5, deleting, corrected)); s.Unhealthy {
		t.Error("a node that failed other checks counts as unhealthy")
	}
}
