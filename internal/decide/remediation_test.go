package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// exhausted is a node of a NodePool whose retries are exhausted, with deletion on.
func exhausted(change ...func(*Input)) Input {
	return failing(5, append([]func(*Input){deleting, managed}, change...)...)
}

// pool is a world in which the NodeClaim of a node in the pool can be deleted.
func pool(change ...func(*world)) world {
	w := world{fleet: append(healthyNodes(9, "pool"), self("pool")), owner: owner.Owner{Target: nodeClaim("claim-1", "c1")}}
	for _, f := range change {
		f(&w)
	}
	return w
}

func deletions(n int, pool string, age time.Duration) func(*world) {
	return func(w *world) {
		for i := range n {
			w.ledger.Entries = append(w.ledger.Entries, ledger.Entry{Time: metav1.NewTime(now.Add(-age)), UID: fmt.Sprintf("gone-%s-%d", pool, i), Pool: pool})
		}
	}
}

// sick is a pool of eleven nodes, of which the given number is unhealthy.
func sick(n int) func(*world) {
	return func(w *world) {
		w.fleet = append(healthyNodes(10, "pool"), self("pool"))
		for i := range n - 1 {
			w.fleet[i].Unhealthy, w.fleet[i].CanHostProbe = true, false
		}
	}
}

func maxUnhealthy(v intstr.IntOrString) func(*Input) {
	return func(in *Input) { in.Config.NodeManagement.Remediation.MaxUnhealthy = &v }
}

func maxDeletionsPerHour(n int32) func(*Input) {
	return func(in *Input) { in.Config.NodeManagement.Remediation.MaxDeletionsPerHour = &n }
}

func maxRetries(n int32) func(*Input) {
	return func(in *Input) { in.Config.Reconciliation.MaxRetries = n }
}

func verifiedOnce(in *Input) { in.Node.Record.VerifiedTime = ago(time.Hour) }

func killPods(in *Input) {
	in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets = ptr.To(false)
}

func optOut(in *Input) { in.Node.DoNotDelete = true }

func dryRun(in *Input) { in.Config.NodeManagement.Remediation.DryRun = true }

func maxInFlight(n int32) func(*Input) {
	return func(in *Input) { in.Config.NodeManagement.Remediation.MaxInFlight = &n }
}

// perZone limits the unhealthy nodes of zone z, which the node is in.
func perZone(in *Input) {
	in.Node.Zone, in.Config.NodeManagement.Remediation.MaxUnhealthyPerZone = "z", ptrTo("30%")
}

// zone puts the node and nine others, each from another pool, into zone z. The given number of them is unhealthy.
func zone(unhealthy int) func(*world) {
	return func(w *world) {
		for i := range w.fleet {
			w.fleet[i].Zone = "z"
			if i < 9 {
				w.fleet[i].Pool, w.fleet[i].Unhealthy = fmt.Sprint(i), i < unhealthy-1
			}
		}
	}
}

func deletedInZone(zone string) func(*world) {
	return func(w *world) {
		for _, uid := range []string{"gone-1", "gone-2"} {
			w.ledger.Entries = append(w.ledger.Entries, ledger.Entry{Time: metav1.NewTime(now.Add(-time.Minute)), UID: uid, Pool: "other", Zone: zone})
		}
	}
}

// going adds the deletion of the fleet's first node to the ledger. That node still exists.
func going(pool string) func(*world) {
	return func(w *world) {
		w.fleet[0].Pool = pool
		w.ledger.Entries = append(w.ledger.Entries, ledger.Entry{Time: metav1.NewTime(now.Add(-50 * time.Minute)), UID: w.fleet[0].UID, Pool: pool})
	}
}

func anyNode(in *Input) { in.Config.NodeManagement.Remediation.NeverVerifiedOnly = ptr.To(false) }

// own is the ledger's entry about the node under test.
var own = ledger.Entry{Time: metav1.NewTime(now), UID: "u1", Pool: "pool", Kind: "NodeClaim"}

func TestRemediate(t *testing.T) {
	running := func(names ...string) func(*world) {
		return func(w *world) { w.workloads.Names = names }
	}
	for name, tc := range map[string]struct {
		in     Input
		world  world
		held   string
		delete string // a kind
	}{
		"the NodeClaim goes":                  {exhausted(), pool(), "", "NodeClaim"},
		"the Node goes where there is none":   {failing(5, deleting), deletable(), "", owner.Node},
		"a failed lookup deletes nothing":     {exhausted(), pool(func(w *world) { w.owner = owner.Owner{Problem: "timeout"} }), owner.Guard, ""},
		"nor where there seems to be none":    {failing(5, deleting), world{fleet: deletable().fleet, owner: owner.Owner{Problem: "ambiguous"}}, owner.Guard, ""},
		"opted out":                           {exhausted(optOut), pool(), GuardDoNotDelete, ""},
		"a control plane":                     {exhausted(controlplane), pool(), GuardControlPlane, ""},
		"a control plane without a label":     {exhausted(), pool(func(w *world) { w.workloads.ControlPlane = "kube-system/etcd-n" }), GuardControlPlane, ""},
		"the same, included":                  {exhausted(includeControlPlane), pool(func(w *world) { w.workloads.ControlPlane = "kube-system/etcd-n" }), "", "NodeClaim"},
		"the same, ordinary pods do not hold": {exhausted(killPods), pool(running("a/b"), func(w *world) { w.workloads.ControlPlane = "kube-system/etcd-n" }), GuardControlPlane, ""},
		"unknown whether it is one":           {exhausted(killPods), pool(func(w *world) { w.workloads.Problem = "forbidden" }), GuardControlPlane, ""},
		"verified before":                     {exhausted(verifiedOnce), pool(), GuardNeverVerifiedOnly, ""},
		"perhaps verified before":             {exhausted(func(in *Input) { in.Node.Record.VerifiedTime = &in.Node.Created }), pool(), GuardNeverVerifiedOnly, ""},
		"verified before, guard off":          {exhausted(verifiedOnce, func(in *Input) { in.Config.NodeManagement.Remediation.NeverVerifiedOnly = ptr.To(false) }), pool(), "", "NodeClaim"},
		"ordinary pods":                       {exhausted(), pool(running("a/b")), GuardSparePods, ""},
		"ordinary pods that cannot be listed": {exhausted(), pool(func(w *world) { w.workloads.Problem = "forbidden" }), GuardSparePods, ""},
		"ordinary pods, guard off":            {exhausted(func(in *Input) { in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets = ptr.To(false) }), pool(running("a/b")), "", "NodeClaim"},
		"20% of 11, rounded up, is 3":         {exhausted(), pool(sick(3)), "", "NodeClaim"},
		"4 of 11 are too many":                {exhausted(), pool(sick(4)), GuardMaxUnhealthy, ""},
		"a number":                            {exhausted(maxUnhealthy(intstr.FromInt32(4))), pool(sick(4)), "", "NodeClaim"},
		"zero":                                {exhausted(maxUnhealthy(intstr.FromInt32(0))), pool(), GuardMaxUnhealthy, ""},
		"neither number nor percentage":       {exhausted(maxUnhealthy(intstr.FromString("many"))), pool(), GuardMaxUnhealthy, ""},
		"other pools do not count":            {exhausted(), pool(sick(3), func(w *world) { w.fleet = append(w.fleet, NodeSummary{UID: "x", Pool: "other", Unhealthy: true}) }), "", "NodeClaim"},
		"deletions do not shrink the pool":    {exhausted(), pool(deletions(3, "pool", time.Minute)), GuardMaxUnhealthy, ""},
		"nor count after the window":          {exhausted(), pool(deletions(3, "pool", 61*time.Minute)), "", "NodeClaim"},
		"deletions of other pools":            {exhausted(), pool(deletions(3, "other", time.Minute)), "", "NodeClaim"},
		"without a pool all nodes count":      {failing(5, deleting), pool(sick(4), func(w *world) { w.owner = owner.Owner{} }), GuardMaxUnhealthy, ""},
		"ten deletions in an hour":            {exhausted(), pool(deletions(10, "other", 59*time.Minute)), GuardMaxDeletionsPerHour, ""},
		"nine deletions in an hour":           {exhausted(), pool(deletions(9, "other", 59*time.Minute)), "", "NodeClaim"},
		"its own entry does not count twice":  {exhausted(maxDeletionsPerHour(1)), pool(func(w *world) { w.ledger.Entries = []ledger.Entry{own} }), "", "NodeClaim"},
		"nor does one of another round":       {exhausted(maxDeletionsPerHour(1), verifiedOnce, anyNode), pool(func(w *world) { w.ledger.Entries = []ledger.Entry{own} }), "", "NodeClaim"},
		"its other action counts": {exhausted(maxDeletionsPerHour(1)), pool(func(w *world) {
			w.ledger.Entries = []ledger.Entry{{Time: own.Time, UID: "u1", Kind: marks.KindCondition}}
		}), GuardMaxDeletionsPerHour, ""},
		"what began after it does not hold it": {exhausted(maxDeletionsPerHour(1)), pool(deletions(1, "other", time.Minute), func(w *world) { w.ledger.Entries = append(w.ledger.Entries, own) }), "", "NodeClaim"},
		"no deletions allowed":                 {exhausted(maxDeletionsPerHour(0)), pool(), GuardMaxDeletionsPerHour, ""},
		"a ledger that cannot be read":         {exhausted(), pool(func(w *world) { w.ledger.Problem = "not JSON" }), GuardMaxDeletionsPerHour, ""},
		"dry run":                              {exhausted(dryRun), pool(), GuardDryRun, ""},
		"a NodeClaim that opts out":            {exhausted(), pool(func(w *world) { w.owner.OptedOut = owner.AnnotationDoNotDisrupt }), GuardDoNotDelete, ""},
		"a zone that fails":                    {exhausted(perZone), pool(zone(4)), GuardMaxUnhealthyPerZone, ""},
		"a zone of which some fail":            {exhausted(perZone), pool(zone(3)), "", "NodeClaim"},
		"a zone that fails, no limit":          {exhausted(func(in *Input) { in.Node.Zone = "z" }), pool(zone(4)), "", "NodeClaim"},
		"a node without a zone":                {exhausted(perZone, func(in *Input) { in.Node.Zone = "" }), pool(zone(4)), "", "NodeClaim"},
		"deletions in the zone":                {exhausted(perZone), pool(zone(3), deletedInZone("z")), GuardMaxUnhealthyPerZone, ""},
		"deletions in another zone":            {exhausted(perZone), pool(zone(3), deletedInZone("y")), "", "NodeClaim"},
		"the last one is still there":          {exhausted(), pool(going("pool")), GuardMaxInFlight, ""},
		"the last one is gone":                 {exhausted(), pool(deletions(1, "pool", time.Minute)), "", "NodeClaim"},
		"the last one of another pool":         {exhausted(), pool(going("other")), "", "NodeClaim"},
		"the last one, excluded since":         {exhausted(), pool(going("pool"), func(w *world) { w.fleet[0].Excluded = true }), GuardMaxInFlight, ""},
		"the last one, two may go at once":     {exhausted(maxInFlight(2)), pool(going("pool")), "", "NodeClaim"},
		"another one is intended":              {exhausted(), pool(func(w *world) { w.fleet[0].RemediationIntended = true }), GuardMaxInFlight, ""},
		"one of another pool is intended":      {exhausted(), pool(func(w *world) { w.fleet[0].RemediationIntended, w.fleet[0].Pool = true, "other" }), "", "NodeClaim"},
		"an excluded one was intended":         {exhausted(), pool(func(w *world) { w.fleet[0].RemediationIntended, w.fleet[0].Excluded = true, true }), "", "NodeClaim"},
		"itself is intended and entered": {exhausted(intended), pool(func(w *world) {
			w.fleet[9].RemediationIntended, w.ledger.Entries = true, []ledger.Entry{own}
		}), "", "NodeClaim"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, asked := ask(t, tc.in, tc.world)
			r := plan.Change.Record
			if plan.Step == StepDelete != (tc.delete != "") || tc.delete != "" && plan.Target.Kind != tc.delete || r.Held != tc.held {
				t.Fatalf("%q %+v, held by %q (%s); want %q, %q", plan.Step, plan.Target, r.Held, r.HeldMessage, tc.delete, tc.held)
			}
			if plan.Change.Gate != gateClose && tc.held != GuardControlPlane || plan.Change.Label == nil || *plan.Change.Label {
				t.Errorf("the gate must be closed: %+v", plan.Change)
			}
			if want := map[bool]int{true: 2, false: 1}[plan.Step == StepDelete]; len(plan.Events) != want {
				t.Errorf("events %+v", plan.Events)
			}
			if tc.held != "" {
				if r.Deletion != nil || r.HeldMessage == "" || plan.Step != StepRecord || plan.Recorded != nil {
					t.Errorf("a hold: %+v", plan)
				}
				return
			}
			if want := (owner.Target{Kind: owner.Node, Name: "n", UID: "u1"}); tc.delete == owner.Node && plan.Target != want {
				t.Errorf("deletes %+v", plan.Target)
			}
			if want := (nodeClaim("claim-1", "c1")); tc.delete == "NodeClaim" && plan.Target != want {
				t.Errorf("deletes %+v", plan.Target)
			}
			if d := r.Deletion; d == nil || d.Kind != plan.Target.Kind || d.Name != plan.Target.Name || d.UID != plan.Target.UID || !d.Time.Equal(now) || r.NextAttemptTime != nil {
				t.Errorf("the intent: %+v", r)
			}
			fresh := slices.Index(asked, NeedFresh)
			if fresh < 0 || !slices.Contains(asked[fresh:], NeedOwner) || !slices.Contains(asked[fresh:], NeedLedger) {
				t.Errorf("all evidence is loaded again after the fresh read of the node: %v", asked)
			}
		})
	}
}

// Evidence from before the wait in the queue no longer counts.
func TestADeletionIsDecidedAgainOnTheFreshNode(t *testing.T) {
	for name, fresh := range map[string]Input{
		"opted out meanwhile":      exhausted(optOut),
		"passed meanwhile":         verified(deleting, managed),
		"skipped meanwhile":        exhausted(skipped),
		"being deleted meanwhile":  exhausted(func(in *Input) { in.Node.Deleting = true }),
		"tried again meanwhile":    exhausted(func(in *Input) { in.Node.Record.Sequence, in.Node.Record.LastOutcome = 6, attempt.Inconclusive }),
		"a worker is under way":    exhausted(with(pod(6))),
		"rebooted meanwhile":       exhausted(rebootedTo("b2")),
		"its record was removed":   given(deleting, managed),
		"of an earlier node's age": exhausted(due),
	} {
		plan, asked := ask(t, exhausted(), pool(func(w *world) { w.fresh = &fresh }))
		if plan.Step == StepDelete || !slices.Contains(asked, NeedFresh) {
			t.Errorf("%s: %q after %v", name, plan.Step, asked)
		}
	}
}

func TestWhatIsOnItsWayOutIsNotDeletedAgain(t *testing.T) {
	going := pool(func(w *world) { w.owner.Terminating = true })
	plan, _ := ask(t, exhausted(), going)
	if d := plan.Change.Record.Deletion; plan.Step != StepRecord || d == nil || d.UID != "c1" {
		t.Fatalf("somebody else's deletion is written down: %+v", plan)
	}
	in := exhausted(func(in *Input) { in.Node.Record = plan.Change.Record })
	if plan, _ = ask(t, in, going); plan.Step != StepNone || !strings.Contains(plan.Condition.Message, "NodeClaim claim-1 is being deleted") {
		t.Errorf("then %+v", plan)
	}
}

// A leader was killed between the intent and the deletion. Its successor deletes the node if all guards still allow it.
func TestAnIntentIsTakenUpAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		in    Input
		world world
		step  Step
		held  string
	}{
		"nothing changed":        {exhausted(intended), pool(), StepDelete, ""},
		"opted out meanwhile":    {exhausted(intended, optOut), pool(), StepRecord, GuardDoNotDelete},
		"long ago":               {exhausted(intended, due), pool(), StepRecord, ""},
		"rebooted meanwhile":     {exhausted(intended, rebootedTo("b2")), pool(), StepRecord, ""},
		"maxRetries was raised":  {exhausted(intended, maxRetries(6)), pool(), StepRecord, ""},
		"probes are wanted now":  {exhausted(intended, unprobed), pool(), StepRecord, ""},
		"a forged intent":        {puzzling(1, deleting, intended), pool(), StepRecord, ""},
		"on its way out by now":  {exhausted(intended), pool(func(w *world) { w.owner.Terminating = true }), StepNone, ""},
		"deletion is off by now": {exhausted(intended, func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }), pool(), StepRecord, ""},
	} {
		plan, _ := ask(t, tc.in, tc.world)
		r := plan.Change.Record
		if plan.Step != tc.step || r.Held != tc.held {
			t.Errorf("%s: %q held by %q, want %q %q", name, plan.Step, r.Held, tc.step, tc.held)
		}
		if plan.Step == StepRecord && (r.Deletion != nil || plan.Recorded != nil) {
			t.Errorf("%s: the intent is still there: %+v", name, r)
		}
	}
}

// A worker that was running when a deletion was decided must not end that deletion. The node is not released, and not
// tried again, while its NodeClaim terminates or may be terminating.
func TestNoAttemptIsRecordedWhileADeletionGoesOn(t *testing.T) {
	registered := func(in *Input) { in.Node.Owner.Registered = true }
	claim := func(c owner.Owner) world { return pool(func(w *world) { w.owner = c }) }
	going := claim(owner.Owner{Target: nodeClaim("c", "cu"), Terminating: true})
	gone := claim(owner.Owner{Problem: "no NodeClaim has its provider ID"})
	for name, in := range map[string]Input{
		"it passed":           exhausted(intended, registered, with(pod(6, ended(attempt.Passed)))),
		"it failed":           exhausted(intended, with(pod(6, ended(attempt.Failed)))),
		"it proved nothing":   exhausted(intended, with(pod(6, imageMissing))),
		"it hangs":            exhausted(intended, with(pod(6, seenFor(time.Hour)))),
		"its pod was deleted": exhausted(intended, func(in *Input) { in.Vanished.Number = 6 }),
		"after a reboot":      exhausted(intended, rebootedTo("b2"), with(pod(6, ended(attempt.Passed)))),
	} {
		plan, _ := ask(t, in, going)
		if plan.Step != StepNone || plan.Recorded != nil {
			t.Errorf("%s, and the NodeClaim goes: %q %+v", name, plan.Step, plan.Change)
		}
		plan, _ = ask(t, in, gone)
		r := plan.Change.Record
		if plan.Recorded != nil || r.Deletion == nil || r.Held != owner.Guard || plan.Change.Gate != gateClose {
			t.Errorf("%s, and the NodeClaim cannot be found: %q %+v", name, plan.Step, plan.Change)
		}
		plan, asked := ask(t, in, pool())
		r = plan.Change.Record
		if plan.Step != StepRecord || plan.Recorded != nil || r.Deletion != nil || !slices.Contains(asked, NeedFresh) {
			t.Errorf("%s, and the NodeClaim stays: %q after %v", name, plan.Step, asked)
		}
		in.Node.Record = r
		if plan, _ = ask(t, in, pool()); plan.Step == StepNone || plan.Step == StepRecord && plan.Recorded == nil {
			t.Errorf("%s, and goes on: %q", name, plan.Step)
		}
	}
	plan, _ := ask(t, exhausted(intended, with(pod(6, seenFor(time.Second)))), going)
	if plan.Step != StepNone || len(plan.Delete) > 0 {
		t.Errorf("it has not ended: %+v", plan)
	}
}

// A failed lookup does not show whether the deletion goes on. So the intent stays while the node is held, and both end
// with the answer.
func TestAnIntentOutlivesAFailedLookup(t *testing.T) {
	in := exhausted(intended)
	failed := pool(func(w *world) { w.owner = owner.Owner{Problem: "timeout"} })
	plan, _ := ask(t, in, failed)
	r := plan.Change.Record
	if plan.Step != StepRecord || r.Held != owner.Guard || r.Deletion == nil || r.NextAttemptTime != nil ||
		len(plan.Events) != 1 {
		t.Fatalf("%+v", plan)
	}
	in.Node.Record = r
	plan, _ = ask(t, in, failed)
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonRemediationHeld || len(plan.Events) > 0 {
		t.Errorf("again: %+v", plan)
	}
	plan, _ = ask(t, in, pool(func(w *world) { w.owner.Terminating = true }))
	if r := plan.Change.Record; plan.Step != StepRecord || r.Held != "" || r.Deletion == nil {
		t.Errorf("it goes: %+v", plan)
	}
	if plan, _ = ask(t, in, pool()); plan.Step != StepDelete || plan.Change.Record.Held != "" {
		t.Errorf("it stays: %+v", plan)
	}
	in = failing(5, deleting, func(in *Input) {
		in.Node.Record.Deletion = &marks.Deletion{Kind: owner.Node, Name: "n", UID: "u1", Time: now}
	})
	plan, _ = ask(t, in, world{fleet: deletable().fleet, owner: owner.Owner{Problem: "timeout"}})
	if plan.Change.Record.Deletion != nil {
		t.Errorf("a Node that is not being deleted: %+v", plan)
	}
}

// A NodeClaim that was deleted a moment ago still looks alive in an earlier list. Its node must not be tried again.
func TestAnIntentIsDroppedOnFreshEvidenceOnly(t *testing.T) {
	for name, in := range map[string]Input{"long ago": exhausted(intended, due), "rebooted": exhausted(intended, rebootedTo("b2"))} {
		ev := Evidence{Owner: &owner.Owner{Target: nodeClaim("c", "cu")}}
		if plan := Next(in, ev, now); plan.Need != NeedFresh || plan.Step != StepNone {
			t.Errorf("%s: %+v", name, plan)
		}
		if plan, _ := ask(t, in, pool(func(w *world) { w.owner.Terminating = true })); plan.Step != StepNone {
			t.Errorf("%s, and it is on its way out: %+v", name, plan)
		}
	}
}

func TestAHoldIsOneEvent(t *testing.T) {
	in := exhausted(optOut)
	first, asked := ask(t, in, pool())
	if len(asked) > 0 {
		t.Errorf("a free guard holds, and %v was loaded", asked)
	}
	in.Node.Record = first.Change.Record
	again, _ := ask(t, in, pool())
	if again.Step != StepNone || len(again.Events) != 0 || again.RequeueAfter <= 0 {
		t.Errorf("the same hold was written again: %+v", again)
	}
	if c := again.Condition; c == nil || c.Reason != marks.ReasonRemediationHeld || !strings.Contains(c.Message, GuardDoNotDelete) {
		t.Errorf("condition %+v", c)
	}
	in.Node.DoNotDelete = false
	if plan, _ := ask(t, in, pool()); plan.Step != StepDelete || plan.Change.Record.Held != "" {
		t.Errorf("the guard holds no more: %+v", plan)
	}
	if plan, _ := ask(t, exhausted(verifiedOnce), pool()); plan.Events[0].Reason != EventQuarantined {
		t.Errorf("a node that once was verified: %+v", plan.Events)
	}
}

// With deletion switched off, no guard holds the node and no event reports one, for as long as the node exists.
func TestNothingIsHeldOnceDeletionIsOff(t *testing.T) {
	off := func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }
	for name, in := range map[string]Input{
		"held":              exhausted(heldBy(GuardMaxUnhealthy), off),
		"a shared outage":   puzzling(1, heldBy(GuardControlProbe), off),
		"to be deleted":     exhausted(intended, off),
		"held, then reboot": exhausted(heldBy(GuardMaxUnhealthy), off, rebootedTo("b2")),
	} {
		plan, _ := ask(t, in, world{})
		r := plan.Change.Record
		if plan.Step != StepRecord || r.Held != "" || r.HeldMessage != "" || r.Deletion != nil || r.Sequence != in.Node.Record.Sequence || len(plan.Events) > 0 || plan.Change.Gate != gateKeep {
			t.Errorf("%s: %+v", name, plan)
		}
		in.Node.Record = r
		if plan, _ = ask(t, in, world{}); plan.Step == StepRecord || reasonOf(plan.Condition) == marks.ReasonRemediationHeld {
			t.Errorf("%s: then %+v", name, plan)
		}
	}
}

// A text that differs each time, for example by a count or a port number in an error, is written once.
func TestAGuardsVaryingMessageIsWrittenOnce(t *testing.T) {
	in := exhausted()
	writes := 0
	for i := range 10 {
		w := pool(func(w *world) { w.owner = owner.Owner{Problem: fmt.Sprintf("dial tcp 10.0.0.1:%d: refused", 40000+i)} })
		plan, _ := ask(t, in, w)
		if plan.Step == StepRecord {
			writes++
			in.Node.Record = plan.Change.Record
		}
		if said := betweenAttempts(in, now).Message; !strings.Contains(said, ":40000: refused") {
			t.Errorf("look %d: the condition changes to %q", i, said)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes", writes)
	}
	plan, _ := ask(t, exhausted(), pool(func(w *world) { w.owner = owner.Owner{Problem: strings.Repeat("a\n", 1<<20)} }))
	if m := plan.Change.Record.HeldMessage; len(m) > attempt.MaxMessage || strings.Contains(m, "\n") {
		t.Errorf("%d bytes are written", len(m))
	}
}

// A person who removes the taint of a held node has not verified the node.
func TestAHeldNodeIsGatedAgainOnce(t *testing.T) {
	in := exhausted(optOut, heldBy(GuardDoNotDelete), ungated)
	plan, _ := ask(t, in, pool())
	if plan.Step != StepRecord || plan.Change.Gate != gateClose || len(plan.Events) != 0 || plan.Change.Record.HeldMessage != "as it was found" {
		t.Errorf("%+v", plan)
	}
	in.Node.Gated, in.Node.Record = true, plan.Change.Record
	if plan, _ = ask(t, in, pool()); plan.Step != StepNone {
		t.Errorf("and again: %+v", plan)
	}
}

// A node whose deletion is held is tried again like any other with exhausted retries. Otherwise it would not recover
// when the outage that holds it ends.
func TestAHeldNodeIsTriedAgainWhenItIsDue(t *testing.T) {
	for _, tc := range []struct {
		age  time.Duration
		step Step
	}{{47 * time.Second, StepNone}, {time.Minute, StepStart}} {
		in := exhausted(optOut, heldBy(GuardDoNotDelete), exhaustedRetrySeconds(60), recordedAgo(tc.age))
		if plan, _ := ask(t, in, pool()); plan.Step != tc.step {
			t.Errorf("after %s: %q, want %q", tc.age, plan.Step, tc.step)
		}
	}
}

// An operator must find the node whose deletion hangs, although a message is bounded.
func TestMaxInFlightNamesTheNodes(t *testing.T) {
	w := pool(func(w *world) {
		for i := range 5 {
			w.fleet[i].RemediationIntended = true
		}
	})
	plan, _ := ask(t, exhausted(), w)
	if want := "5 nodes are still being deleted or repaired, the limit is 1: pool-m0, pool-m1, pool-m2 and 2 more"; plan.Change.Record.HeldMessage != want {
		t.Errorf("%q, want %q", plan.Change.Record.HeldMessage, want)
	}
}
