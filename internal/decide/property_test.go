package decide

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// dice makes inputs and evidence, the same ones for the same seed. What leads far (an exhausted node, a result) is likelier
// than the rest, or most of them would end at the first question.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func oneOf[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// time is now, some time ago, or some time ahead.
func (d dice) time() time.Time {
	return now.Add(oneOf(d, 0, -time.Second, -time.Minute, -9*time.Minute, -time.Hour, -48*time.Hour, 30*time.Second, time.Hour))
}

func (d dice) outcome() attempt.Outcome {
	return oneOf(d, "", attempt.Passed, attempt.Failed, attempt.Failed, attempt.Failed, attempt.Inconclusive, "nonsense")
}

func (d dice) input() Input {
	in := given(func(in *Input) {
		c := in.Config
		c.Reconciliation.MaxRetries = oneOf[int32](d, 1, 3, 5)
		c.Reconciliation.ExhaustedRetrySeconds = oneOf[int32](d, -1, 60, 600, 86400)
		m := &c.NodeManagement
		m.DeleteFailedNodes, m.IncludeControlPlane, m.VerifyUntainted = d.chance(70), d.chance(20), d.chance(20)
		m.Reverify.Taint, *m.Reverify.OnReboot = d.chance(50), d.chance(80)
		m.Reverify.Interval.Duration = oneOf(d, 0, time.Minute, time.Hour)
		m.Remediation.DryRun, *m.Remediation.MaxInFlight = d.chance(10), oneOf[int32](d, 1, 3)
		m.Remediation.MaxUnhealthyPerZone = oneOf(d, nil, nil, nil, ptrTo("0%"), ptrTo("90%"))
		*m.Remediation.NeverVerifiedOnly, *m.Remediation.ControlProbe, *m.Remediation.SparePodsOtherThanDaemonSets = d.chance(60), d.chance(70), d.chance(80)
		*c.Worker.KeepFailedSeconds = oneOf[int32](d, 0, 600)
		in.Profile.VerificationDeadlineSeconds = oneOf[int32](d, 0, 60, 60, 3600)
	})
	n := &in.Node
	n.Created, in.NeedsVerificationSince = d.time(), oneOf(d, time.Time{}, now, now.Add(-time.Hour), now.Add(-time.Hour))
	in.GateOpenSeen = oneOf(d, time.Time{}, time.Time{}, d.time())
	n.Images = oneOf(d, nil, []corev1.ContainerImage{{Names: []string{"docker.io/library/worker:1"}}})
	n.BootID, n.Gated, n.Labelled, n.Ready = oneOf(d, "b1", "b1", "b1", "b2", ""), d.chance(75), d.chance(30), d.chance(90)
	n.Lost, n.Skip, n.DoNotDelete, n.ControlPlane, n.Deleting = d.chance(5), d.chance(5), d.chance(10), d.chance(10), d.chance(3)
	if d.chance(20) {
		in.Profile.Taints = []marks.Taint{execute, schedule}
		if n.Gated {
			n.GatedBy = oneOf(d, nil, []marks.Taint{execute}, []marks.Taint{standIn})
		}
	}
	if d.chance(5) {
		unchecked(&in)
	}
	n.Zone = oneOf(d, "", "z")
	n.Leaving = oneOf(d, "", "", "", "", "", "", "", "it has a taint")
	if d.chance(30) {
		n.Owner = owner.Signs{Kind: "NodeClaim", Managed: true, Pool: "pool", Registered: d.chance(70)}
	}
	if d.chance(10) {
		n.Condition = &corev1.NodeCondition{Status: corev1.ConditionFalse, Reason: marks.ReasonDeadlineExceeded}
	} else if d.chance(30) {
		n.Condition = &corev1.NodeCondition{Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed}
	}
	if d.chance(80) {
		n.HasRecord, n.Record = true, d.record()
	}
	in.Selected, in.DryRunDone = d.chance(95), d.chance(5)
	in.Checks = oneOf(d, checks, checks, checks, "c2")
	in.VanishedAttempt = n.Record.Sequence + oneOf[int32](d, 0, 0, 1)
	for range d.IntN(4) {
		in.Pods = append(in.Pods, d.pod(n.Record.Sequence+oneOf[int32](d, -1, 0, 1, 1, 1, 7)))
	}
	if d.chance(25) {
		d.late(&in)
	}
	return in
}

// late is a node far past its deadline, of which little else is wrong.
func (d dice) late(in *Input) {
	n := &in.Node
	in.Config.NodeManagement.DeleteFailedNodes, in.Profile.VerificationDeadlineSeconds = true, 60
	n.Created, in.NeedsVerificationSince = now.Add(-48*time.Hour), now.Add(-time.Hour)
	n.Gated, n.BootID, n.HasRecord, n.Record, in.VanishedAttempt, in.Pods = true, "b1", true, d.overdue(), 0, nil
	if d.chance(50) {
		n.Record.DeadlineCause.Time = now.Add(-time.Hour)
	}
	if d.chance(40) {
		in.Pods = append(in.Pods, d.pod(n.Record.Sequence+1))
	}
}

func (d dice) record() marks.Record {
	if d.chance(3) {
		return marks.Record{HistoryLost: true}
	}
	at := d.time()
	if d.chance(35) { // far on its way to a deletion
		at = oneOf(d, now, now.Add(-time.Minute))
		return marks.Record{NodeUID: "u1", BootID: "b1", Sequence: 5, Attempts: 5, LastOutcome: attempt.Failed, LastTime: &at, Probed: d.chance(90)}
	}
	if d.chance(20) { // past its deadline, by somebody's fault
		return d.overdue()
	}
	r := marks.Record{NodeUID: "u1", BootID: oneOf(d, "b1", "b1", "b1", "b2", ""), Sequence: oneOf[int32](d, 0, 1, 5, 1<<29-9), Attempts: oneOf[int32](d, 0, 2, 5, 5, 5, 1<<29-9),
		Inconclusive: oneOf[int32](d, 0, 1, 100), Superseded: oneOf[int32](d, 0, 0, 1, 2), LastOutcome: d.outcome(), LastReason: oneOf(d, "", "Timeout", attempt.ReasonKubeletRejected),
		LastTime: oneOf(d, &at, &at, &at, nil), Probed: d.chance(80), Unseen: d.chance(20), HistoryLost: d.chance(5), Held: oneOf(d, "", "", GuardControlProbe, GuardDoNotDelete)}
	if d.chance(30) {
		v := d.time()
		r.VerifiedTime = &v
	}
	if d.chance(15) {
		r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu", Time: d.time()}
	}
	return r
}

func (d dice) overdue() marks.Record {
	at := oneOf(d, now, now.Add(-time.Minute))
	r := marks.Record{NodeUID: "u1", BootID: "b1", Held: oneOf(d, "", "", GuardMaxUnhealthy),
		DeadlineCause: &marks.DeadlineCause{Time: oneOf(d, at, at, d.time()), BootID: oneOf(d, "b1", "b1", "b2", ""), Message: "m",
			Fault: oneOf(d, marks.FaultNode, marks.FaultNode, marks.FaultShared, marks.FaultUnclear, "nonsense")}}
	if d.chance(60) {
		r.Sequence, r.Inconclusive, r.LastOutcome, r.LastTime = 3, 3, attempt.Inconclusive, &at
		r.LastReason = oneOf(d, attempt.ReasonKubeletRejected, attempt.ReasonStartTimeout, attempt.ReasonImagePull, attempt.ReasonUndecided)
	}
	if d.chance(20) {
		since, v := d.time(), d.time()
		r.Since, r.VerifiedTime = &since, &v
	}
	return r
}

func (d dice) pod(number int32) workerpod.Observation {
	o := pod(number, seenFor(oneOf(d, 0, 6*time.Second, time.Minute, time.Hour)))
	if d.chance(20) {
		o = probe("n", seenFor(oneOf(d, 0, time.Hour)))
	}
	d.shape(&o)
	return o
}

// shape is what may be the matter with a pod.
func (d dice) shape(o *workerpod.Observation) {
	switch d.IntN(6) {
	case 0:
		pending(o)
		if d.chance(50) {
			unschedulable(oneOf(d, time.Second, time.Minute))(o)
		}
	case 1:
		imageMissing(o)
	case 2, 3, 4:
		ended(oneOf(d, attempt.Passed, attempt.Failed, attempt.Inconclusive))(o)
		o.Seen.Result, o.Seen.Witnessed = d.time(), d.chance(70)
		o.Seen.UnderWay = o.Seen.Witnessed || d.chance(50)
	}
	o.Terminating, o.Recorded, o.Attempt.Basis.Gated = d.chance(15), d.chance(15), d.chance(70)
	o.Attempt.Basis.BootID, o.Attempt.Basis.Checks = oneOf(d, "b1", "b1", "b1", "b2", ""), oneOf(d, checks, checks, checks, "c2", "")
	o.Images = oneOf(d, nil, []string{"worker:1"}, []string{"worker:1", "init:2"})
	if r := o.Attempt.Result; r != nil && r.Outcome == attempt.Inconclusive && d.chance(60) {
		r.Check, r.Reason = "", oneOf(d, attempt.ReasonKubeletRejected, attempt.ReasonStartTimeout, attempt.ReasonUndecided)
	}
	o.Timeout, o.StartTimeout = oneOf(d, 0, 30*time.Second), oneOf(d, 0, 30*time.Second)
}

func (d dice) world(in Input) world {
	w := world{full: d.chance(20)}
	if d.chance(20) {
		w.waits = []Unmet{{Kind: "nodeReady", Message: "the node"}}
	}
	if in.NeedsVerificationSince.Equal(now.Add(-time.Hour)) && d.chance(50) {
		w.waits = []Unmet{{Kind: "nodeReady", Message: "the node"}}
		w.probes = append(w.probes, probe("pool-m0", ended(attempt.Passed)))
	}
	w.elsewhere = oneOf(d, nil, nil, []Unmet{{Kind: "pods", Message: "a pod"}})
	for i := range d.IntN(4) {
		p := probe(oneOf(d, "pool-m0", "pool-m1", "m"))
		d.shape(&p)
		p.Seen.Result = oneOf(d, p.Seen.Result, now.Add(time.Second))
		if p.UID += string(rune('a' + i)); d.chance(50) {
			p.Subject = "u1/6"
		}
		w.probes = append(w.probes, p)
	}
	w.fleet = append(healthyNodes(d.IntN(12), oneOf(d, "pool", "")), self(in.Node.Owner.Pool))
	for i := range w.fleet {
		w.fleet[i].Zone, w.fleet[i].DeletionIntended, w.fleet[i].Excluded = oneOf(d, "", "", "z"), d.chance(1), d.chance(5)
	}
	w.ledger.Problem, w.workloads.Problem, w.owner.Problem = oneOf(d, "", "", "", "p"), oneOf(d, "", "", "", "p"), oneOf(d, "", "", "", "p")
	for range d.IntN(3) {
		w.ledger.Deletions = append(w.ledger.Deletions, Deletion{Time: d.time(), NodeUID: oneOf(d, "x", "x", "u1", "u1", "pool-mu0"), Pool: "pool", Zone: oneOf(d, "", "z")})
	}
	w.workloads.Names = oneOf(d, nil, nil, nil, []string{"a/b"})
	if w.owner.Problem == "" && d.chance(60) {
		w.owner = owner.Owner{Target: nodeClaim("c", "cu"), Terminating: d.chance(20), OptedOut: oneOf(d, "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", owner.AnnotationDoNotDisrupt)}
	}
	return w
}

// mutated is the node as the API server has it: mostly what the cache has.
func (d dice) mutated(in Input) Input {
	if d.chance(80) {
		return in
	}
	other := d.input()
	other.Config, other.Checks = in.Config, in.Checks
	return other
}

// rounds bounds how often a decision may ask for evidence: each of it, once more after the fresh read, and one spare.
const rounds = 12

// Whatever is observed and loaded, a decision comes to an end and keeps to the rules.
func TestNextKeepsToTheRules(t *testing.T) {
	steps, overdue, most := map[Step]int{}, map[string]int{}, 0
	for seed := range uint64(45_000) {
		d := dice{rand.New(rand.NewPCG(seed, 1))}
		in, ev := d.input(), Evidence{Current: seed%3 == 0}
		if d.chance(5) {
			ev.ProbeRefused = "quota"
		}
		asked, loaders := 0, Loaders{}
		for _, need := range needs {
			loaders[need] = func(plan Plan) error {
				if asked++; asked > rounds {
					t.Fatalf("seed %d: asks for %s in round %d", seed, need, asked)
				}
				if ev.has(need) {
					t.Fatalf("seed %d: asks for %s, which it has", seed, need)
				}
				if plan.Step == StepDelete || plan.Change.Gate == gateOpen {
					t.Fatalf("seed %d: acts before it has %s: %+v", seed, need, plan)
				}
				w := d.world(in)
				if need == NeedFresh {
					fresh := d.mutated(in)
					w.fresh = &fresh
				}
				w.load(&in, &ev, need)
				return nil
			}
		}
		plan, err := Resolve(&in, &ev, func() time.Time { return now }, loaders)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		most = max(most, asked)
		steps[plan.Step]++
		if o := plan.Change.Record.DeadlineCause; o != nil && plan.Step == StepRecord && o.Time.Equal(now) && o != in.Node.Record.DeadlineCause {
			overdue[fmt.Sprintf("%s, with an attempt %t", o.Fault, plan.Recorded != nil)]++
		}
		if plan.Step == StepDelete && in.Node.Record.LastOutcome != attempt.Failed {
			overdue["deleted"]++
		}
		for _, rule := range rulesOfPlans {
			if !rule.holds(in, ev, plan) {
				t.Fatalf("seed %d: %s\nnode %+v\npods %+v\nevidence %+v\nplan %+v", seed, rule.says, in.Node, in.Pods, ev, plan)
			}
		}
		if again := Next(in, ev, now); !reflect.DeepEqual(plan, again) {
			t.Fatalf("seed %d: decided otherwise the second time", seed)
		}
	}
	t.Logf("steps %v, past the deadline %v, at most %d needs", steps, overdue, most)
	for _, what := range []string{"deleted", "node, with an attempt true", "node, with an attempt false", "shared, with an attempt true", "shared, with an attempt false"} {
		if overdue[what] < 5 {
			t.Errorf("past the deadline, %s: %d times: the inputs are too much alike", what, overdue[what])
		}
	}
	for step, least := range map[Step]int{StepNone: 1000, StepStart: 1000, StepProbe: 100, StepRecord: 1000, StepDelete: 100} {
		if steps[step] < least {
			t.Errorf("step %q was decided %d times: the inputs are too much alike", step, steps[step])
		}
	}
}

// deletableOverdue reports whether the record of a node past its deadline says that it is to blame, and it is still so: every
// other cause never deletes.
func deletableOverdue(in Input, ev Evidence) bool {
	r, o := in.Node.Record, in.Node.Record.DeadlineCause
	at, ok := verificationDeadline(in, now)
	if !ok || now.Before(at) || o == nil || o.Fault != marks.FaultNode || !recent(&o.Time, now) || otherBoot(o.BootID, in.Node.BootID) || unavailableReason(in) != "" {
		return false
	}
	waits := ev.Unmet != nil && len(*ev.Unmet) > 0 && (r.LastOutcome == "" || r.LastOutcome == attempt.Passed || rebooted(in) || r.Superseded > 0)
	return waits || r.LastOutcome == attempt.Inconclusive && (r.LastReason == attempt.ReasonKubeletRejected || r.LastReason == attempt.ReasonStartTimeout)
}

// rulesOfPlans hold for every plan that needs nothing more.
var rulesOfPlans = []struct {
	says  string
	holds func(Input, Evidence, Plan) bool
}{
	{"a deletion is decided on a fresh node with the evidence of every guard", func(_ Input, ev Evidence, p Plan) bool {
		return p.Step != StepDelete || ev.Fresh && !slices.ContainsFunc(Guards(), func(g Guard) bool {
			return g.holds != nil && slices.ContainsFunc(g.Needs, func(n Need) bool { return !ev.has(n) })
		})
	}},
	{"a deletion is of a node that may be deleted", func(in Input, _ Evidence, p Plan) bool {
		r, c := in.Node.Record, in.Config
		return p.Step != StepDelete || c.NodeManagement.DeleteFailedNodes && !in.Node.DoNotDelete && !protected(in) && !in.Node.Skip && in.Selected && !in.Node.Deleting && in.Node.Leaving == "" &&
			!c.NodeManagement.Remediation.DryRun && (!r.MayHaveVerified() || !*c.NodeManagement.Remediation.NeverVerifiedOnly)
	}},
	{"a deletion follows a fresh failure of an exhausted node, or what was found out of one past its deadline", func(in Input, ev Evidence, p Plan) bool {
		r, c := in.Node.Record, in.Config
		exhausted := r.LastOutcome == attempt.Failed && r.Attempts >= c.Reconciliation.MaxRetries && recent(r.LastTime, now) && (r.Probed || !needsControlProbe(c))
		return p.Step != StepDelete || exhausted || deletableOverdue(in, ev)
	}},
	{"what is found to lie on a node past its deadline was compared with a verified one after it", func(in Input, ev Evidence, p Plan) bool {
		before, o := in.Node.Record.DeadlineCause, p.Change.Record.DeadlineCause
		if o == nil || before == o || o.Fault != marks.FaultNode {
			return true
		}
		at, ok := verificationDeadline(in, now)
		rejected := p.Recorded != nil && p.Recorded.Result.Reason == attempt.ReasonKubeletRejected
		stuck := p.Recorded != nil && p.Recorded.Result.Reason == attempt.ReasonStartTimeout && ev.Fresh && in.Node.Images != nil
		lacks := p.Recorded == nil && ev.Unmet != nil && len(*ev.Unmet) > 0 && ev.ControlUnmet != nil && len(*ev.ControlUnmet) == 0
		return ok && !now.Before(at) && (rejected || stuck || lacks) && unavailableReason(in) == "" && in.Config.NodeManagement.DeleteFailedNodes &&
			slices.ContainsFunc(*ev.Probes, func(o workerpod.Observation) bool {
				return o.Passed() && o.Attempt.Basis.Checks == in.Checks && !o.Seen.First.Before(at)
			})
	}},
	{"a node past its deadline counts as failed, unless a guard holds its deletion or its retries are exhausted", func(in Input, _ Evidence, p Plan) bool {
		at, ok := verificationDeadline(in, now)
		if !ok || now.Before(at) || p.Condition == nil || !Eligible(in) || !NeedsVerification(in, now) || in.DryRunDone {
			return true
		}
		return p.Condition.Reason == marks.ReasonDeadlineExceeded || p.Condition.Reason == marks.ReasonRemediationHeld || p.Condition.Reason == marks.ReasonRetriesExhausted
	}},
	{"a deletion waits for the nodes of those before, and spares a NodeClaim that opts out", func(in Input, ev Evidence, p Plan) bool {
		if p.Step != StepDelete {
			return true
		}
		before := 0
		for _, d := range ev.Counts.deleting {
			if d.uid != in.Node.UID && slices.ContainsFunc(d.pools, func(pool string) bool { return samePool(in, pool) }) {
				before++
			}
		}
		return before < int(*in.Config.NodeManagement.Remediation.MaxInFlight) && ev.Owner.OptedOut == ""
	}},
	{"no attempt is recorded while a deletion is intended", func(in Input, _ Evidence, p Plan) bool {
		return p.Recorded == nil || in.Node.Record.Deletion == nil || !in.Config.NodeManagement.DeleteFailedNodes
	}},
	{"a deletion names its target, which stands in the record first", func(in Input, ev Evidence, p Plan) bool {
		d := p.Change.Record.Deletion
		return p.Step != StepDelete || p.Target == ev.Owner.Target && p.Target.Name != "" && p.Target.UID != "" && d != nil && d.UID == p.Target.UID && !ev.Owner.Terminating
	}},
	{"the gate opens for a pass whose basis still holds, or where there is nothing to check and all prerequisites hold", func(in Input, ev Evidence, p Plan) bool {
		if p.Change.Gate != gateOpen {
			return true
		}
		if in.Profile.Unchecked() && p.Change.Record.LastReason == attempt.ReasonNoChecks {
			return ev.Unmet != nil && len(*ev.Unmet) == 0 && Eligible(in) && in.Node.Leaving == "" && !in.Node.Lost &&
				(!in.Node.Owner.Managed || in.Node.Owner.Registered)
		}
		pod := CurrentPod(in.Node.Record, in.Pods)
		return pod != nil && p.Recorded != nil && p.Recorded.Number == pod.Attempt.Number && p.Recorded.Result.Outcome == attempt.Passed && pod.Passed() &&
			pod.Attempt.Basis.Checks == in.Checks && !otherBoot(pod.Attempt.Basis.BootID, in.Node.BootID) && pod.Attempt.Basis.Gated && Eligible(in) &&
			!pod.Terminating && !in.GateOpenSeen.After(pod.Seen.First)
	}},
	{"the label is set with a pass only", func(_ Input, _ Evidence, p Plan) bool {
		return p.Change.Label == nil || !*p.Change.Label || p.Recorded.Result.Outcome == attempt.Passed
	}},
	{"no worker starts beside another, on a lost node or one that is leaving, or where none is wanted", func(in Input, ev Evidence, p Plan) bool {
		return p.Step != StepStart || !in.Profile.Unchecked() && !in.Node.Lost && in.Node.Leaving == "" && Eligible(in) && NeedsVerification(in, now) && (ev.Fresh || ev.Current) && *ev.Slot && p.Number == in.Node.Record.Sequence+1 &&
			!slices.ContainsFunc(in.Pods, func(o workerpod.Observation) bool { return o.Purpose == workerpod.PurposeVerify && o.Occupies })
	}},
	{"a probe has a slot, and is not on the node itself", func(in Input, ev Evidence, p Plan) bool {
		return p.Step != StepProbe || *ev.Slot && p.Probe.On.Name != "" && p.Probe.On.UID != in.Node.UID
	}},
	{"a gated node does not claim to be verified", func(in Input, _ Evidence, p Plan) bool {
		return p.Condition == nil || p.Condition.Status != corev1.ConditionTrue || !in.Node.Gated
	}},
	{"an excluded node is left alone", func(in Input, _ Evidence, p Plan) bool {
		return in.Selected || p.Step == StepNone && p.Condition == nil && !p.ClearCondition
	}},
	{"a control plane that is not included is never tainted", func(in Input, _ Evidence, p Plan) bool {
		return !protected(in) || p.Change.Gate != gateClose
	}},
	{"a taint that evicts goes onto a node only if it runs no ordinary pods", func(in Input, ev Evidence, p Plan) bool {
		return p.Change.Gate != gateClose || !slices.Contains(p.Change.GateTaints, execute) || ev.Workloads != nil && ev.Workloads.occupied() == ""
	}},
	{"a failure is held against a node beside a passing probe", func(in Input, ev Evidence, p Plan) bool {
		return p.Recorded == nil || p.Recorded.Result.Outcome != attempt.Failed || !needsControlProbe(in.Config) || p.Change.Record.Probed &&
			slices.ContainsFunc(*ev.Probes, func(o workerpod.Observation) bool { return o.Passed() && o.Attempt.Basis.Checks == in.Checks })
	}},
	{"a record goes forward by one attempt, or by none", func(in Input, _ Evidence, p Plan) bool {
		before, r := in.Node.Record, p.Change.Record
		if p.Recorded != nil {
			return r.Sequence == before.Sequence+1 && r.NodeUID == in.Node.UID && r.LastTime.Equal(now) && r.Attempts <= max(before.Attempts, in.Config.Reconciliation.MaxRetries) && len(r.Encode()) > 0 &&
				(!before.MayHaveVerified() || r.MayHaveVerified())
		}
		return p.Step != StepRecord && p.Step != StepDelete || r.Sequence == before.Sequence && r.Attempts == before.Attempts && r.LastOutcome == before.LastOutcome
	}},
	{"a pod of no recorded attempt is deleted on a fresh node only", func(in Input, ev Evidence, p Plan) bool {
		return ev.Fresh || !hasUnrecorded(in.Node.Record, p.Delete, ev.Current)
	}},
	{"a pod on its way out is not deleted again", func(_ Input, _ Evidence, p Plan) bool {
		return !slices.ContainsFunc(p.Delete, func(o workerpod.Observation) bool { return o.Terminating })
	}},
	{"an event has a declared reason, a key and a bound", func(_ Input, _ Evidence, p Plan) bool {
		return !slices.ContainsFunc(p.Events, func(e Event) bool {
			return e.Reason.Name == "" || e.Reason.Type == "" || e.Reason.Action == "" || e.Key == "" ||
				len(e.Message) > 4*attempt.MaxMessage
		})
	}},
	{"a pod is kept only once it ended", func(_ Input, _ Evidence, p Plan) bool {
		return !slices.ContainsFunc(p.Keep, func(o workerpod.Observation) bool { return o.Occupies || o.Recorded })
	}},
	{"it looks again later, and says no more than a condition holds", func(_ Input, _ Evidence, p Plan) bool {
		return p.RequeueAfter >= 0 && (p.Condition == nil || len(p.Condition.Message) < 4*attempt.MaxMessage)
	}},
}
