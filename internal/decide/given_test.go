package decide

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	workerchecks "github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// checks is the configuration of a worker of the default profile.
const checks = "c1"

func ago(d time.Duration) *time.Time { return ptr.To(now.Add(-d)) }

// given is a tainted node without any history, with the default configuration.
func given(change ...func(*Input)) Input {
	c := &config.Config{}
	c.SetDefaults()
	in := Input{Config: c, Profile: c.For(nil), Checks: checks, Selected: true,
		Node: marks.Facts{Name: "n", UID: "u1", BootID: "b1", Gated: true, Ready: true}}
	for _, f := range change {
		f(&in)
	}
	return in
}

// verified is a node that passed its first attempt an hour ago.
func verified(change ...func(*Input)) Input {
	return given(append([]func(*Input){func(in *Input) {
		in.Node.Gated, in.Node.Labelled, in.Node.HasRecord = false, true, true
		in.Node.Record = marks.Record{NodeUID: "u1", BootID: "b1", Checks: checks, Sequence: 1, LastOutcome: attempt.Passed,
			LastTime: ago(time.Hour), VerifiedTime: ago(time.Hour)}
	}}, change...)...)
}

// failing is a tainted node with the given number of failures, the last one just now.
func failing(attempts int32, change ...func(*Input)) Input {
	return given(append([]func(*Input){func(in *Input) {
		in.Node.HasRecord = true
		in.Node.Record = marks.Record{NodeUID: "u1", BootID: "b1", Checks: checks, Sequence: attempts, Attempts: attempts,
			LastOutcome: attempt.Failed, LastCheck: "dns", LastReason: "Timeout", LastMessage: "no answer", LastTime: ago(0)}
	}}, change...)...)
}

// puzzling is a tainted node with inconclusive attempts only, the last one just now.
func puzzling(inconclusive int32, change ...func(*Input)) Input {
	return failing(inconclusive, append([]func(*Input){func(in *Input) {
		r := &in.Node.Record
		r.Attempts, r.Inconclusive = 0, inconclusive
		r.LastOutcome, r.LastCheck, r.LastReason, r.LastMessage = attempt.Inconclusive, "", attempt.ReasonImagePull, "no such image"
	}}, change...)...)
}

// The states that a node may be in.

func gated(in *Input)      { in.Node.Gated = true }
func ungated(in *Input)    { in.Node.Gated = false }
func unlabelled(in *Input) { in.Node.Labelled = false }

// failedOnce is a node that worked and whose attempt 2 failed by its own fault.
func failedOnce(in *Input) {
	r := &in.Node.Record
	r.Sequence, r.Attempts, r.LastOutcome, r.LastCheck, r.LastReason, r.Probed = 2, 1, attempt.Failed, "dns", "Timeout", true
}

func lost(in *Input)         { in.Node.Ready, in.Node.Lost = false, true }
func leaving(in *Input)      { in.Node.Leaving = "it has the taint karpenter.sh/disrupted" }
func skipped(in *Input)      { in.Node.Skip = true }
func unselected(in *Input)   { in.Selected = false }
func controlplane(in *Input) { in.Node.ControlPlane = true }

func virtual(in *Input) { in.Node.Virtual = true }

// windows makes the node a Windows node, and lists the taints that gate it.
func windows(in *Input) {
	in.Node.OtherOS, in.Node.GatedBy = "windows", in.Profile.Taints
}

func rebootedTo(boot string) func(*Input) {
	return func(in *Input) { in.Node.BootID = boot }
}

// unchecked has no checks to run.
func unchecked(in *Input) { in.Profile.Checks = []workerchecks.Spec{} }

// unreadable is a record that cannot be read. Unless it has a time, the node was created a day ago.
func unreadable(in *Input) {
	if in.Node.Created.IsZero() {
		in.Node.Created = now.Add(-24 * time.Hour)
	}
	in.Node.HasRecord, in.Node.RecordProblem, in.Node.Record = true, "is not a record", marks.Record{VerifiedTime: &in.Node.Created}
}

// due is long after the last attempt.
func due(in *Input) { in.Node.Record.LastTime = ago(time.Hour) }

// recordedAgo is a node whose last attempt was recorded at the given age.
func recordedAgo(d time.Duration) func(*Input) {
	return func(in *Input) { in.Node.Record.LastTime = ago(d) }
}

// deleting switches deletion on. The failures of the node so far have been attributed by a probe.
func deleting(in *Input) {
	in.Config.NodeManagement.DeleteFailedNodes = true
	in.Node.Record.Probed = in.Node.Record.LastOutcome == attempt.Failed
}

func unprobed(in *Input) { in.Node.Record.Probed = false }

func noProbe(in *Input) { in.Config.NodeManagement.Remediation.ControlProbe = ptr.To(false) }

func managed(in *Input) { in.Node.Owner = owner.Signs{Kind: "NodeClaim", Managed: true, Pool: "pool"} }

func heldBy(guard string) func(*Input) {
	return func(in *Input) { in.Node.Record.Held, in.Node.Record.HeldMessage = guard, "as it was found" }
}

func with(pods ...workerpod.Observation) func(*Input) {
	return func(in *Input) { in.Pods = pods }
}

// pod is a worker of the attempt, made and started three seconds ago.
func pod(number int32, change ...func(*workerpod.Observation)) workerpod.Observation {
	o := workerpod.Observation{Name: fmt.Sprintf("verify-n-%d", number), UID: fmt.Sprintf("p%d", number), Node: "n", Purpose: workerpod.PurposeVerify,
		Attempt: attempt.Attempt{Number: number, Basis: attempt.Basis{BootID: "b1", Checks: checks, Gated: true}},
		State:   workerpod.Running, Occupies: true,
		Seen: workerpod.FirstSeen{First: now.Add(-3 * time.Second), Running: now.Add(-3 * time.Second), UnderWay: true}}
	for _, f := range change {
		f(&o)
	}
	return o
}

// ended is a worker that ended just now, while this process observed it.
func ended(outcome attempt.Outcome) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		o.State, o.Occupies = workerpod.Ended, false
		o.Seen.Result, o.Seen.Witnessed = now, true
		o.Attempt.Result = &attempt.Result{Outcome: outcome, Duration: 2 * time.Second, Report: &result.Report{}}
		if outcome != attempt.Passed {
			o.Attempt.Result.Check, o.Attempt.Result.Reason, o.Attempt.Result.Message = "dns", "Timeout", "no answer"
		}
	}
}

func pending(o *workerpod.Observation) {
	o.State, o.Seen.Running = workerpod.Pending, time.Time{}
}

// seenFor is a worker that was first observed, and observed to run, at the given age.
func seenFor(age time.Duration) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		o.Seen.First = now.Add(-age)
		if !o.Seen.Running.IsZero() {
			o.Seen.Running = now.Add(-age)
		}
	}
}

func unschedulable(age time.Duration) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		o.Unschedulable, o.Seen.Unschedulable = "kube-scheduler: no node", now.Add(-age)
	}
}

func terminating(o *workerpod.Observation) { o.Terminating = true }
func markedKept(o *workerpod.Observation)  { o.Recorded = true }
func openGate(o *workerpod.Observation)    { o.Attempt.Basis.Gated = false }
func otherChecks(o *workerpod.Observation) { o.Attempt.Basis.Checks = "c2" }
func fromBoot(o *workerpod.Observation)    { o.Attempt.Basis.BootID = "b0" }
func imageMissing(o *workerpod.Observation) { // it has a result, and still occupies the node
	pending(o)
	o.Attempt.Result = attempt.NewInconclusive(attempt.ReasonImagePull, "no such image")
	o.Seen.Result, o.Seen.Witnessed = now, true
}

// probe is a control probe on a node, created three seconds ago for another node's failure.
func probe(on string, change ...func(*workerpod.Observation)) workerpod.Observation {
	o := pod(0, func(o *workerpod.Observation) {
		o.Name, o.UID, o.Node, o.Purpose = "probe-"+on, "probe-"+on, on, workerpod.PurposeProbe
		o.Subject, o.Attempt.Basis.Gated = "u2/1", false
	})
	for _, f := range change {
		f(&o)
	}
	return o
}

// resultSeen is a pod whose result was observed at the given time.
func resultSeen(at time.Time) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) { o.Seen.Result = at }
}

func subject(s string) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) { o.Subject = s }
}

// world is the evidence that can be loaded in addition to an Input.
type world struct {
	waits        []Unmet
	full         bool // there is no slot
	probes       []workerpod.Observation
	probeRefused string
	fleet        []NodeSummary
	ledger       Ledger
	workloads    Workloads
	warning      string
	owner        owner.Owner
	// fresh is the node as the API server has it, if that differs from the cache.
	fresh *Input
}

func nodeClaim(name, uid string) owner.Target {
	return owner.Target{Kind: "NodeClaim", Name: name, UID: uid}
}

// needs lists them in the order of their cost.
var needs = []Need{NeedPrerequisites, NeedSlot, NeedProbes, NeedFleet, NeedFresh, NeedWarning, NeedLedger, NeedCounts,
	NeedOccupants, NeedWorkloads, NeedOwner}

// loaders load the evidence of the world. Each need is passed to asked first.
func (w world) loaders(in *Input, ev *Evidence, asked func(Plan)) Loaders {
	all := Loaders{}
	for _, need := range needs {
		all[need] = func(p Plan) error {
			asked(p)
			w.load(in, ev, need)
			return nil
		}
	}
	return all
}

// load answers a need.
func (w world) load(in *Input, ev *Evidence, need Need) {
	switch need {
	case NeedPrerequisites:
		ev.Unmet = &w.waits
	case NeedSlot:
		ev.Slot = ptr.To(!w.full)
	case NeedProbes:
		ev.Probes = &w.probes
	case NeedFleet:
		ev.Fleet = &w.fleet
	case NeedFresh:
		if w.fresh != nil {
			*in = *w.fresh
		}
		ev.Fresh = true
	case NeedWarning:
		ev.Warning = &w.warning
	case NeedLedger:
		ev.Ledger = &w.ledger
	case NeedCounts:
		ev.Counts = ptr.To(CountNodes(w.fleet, w.ledger.Entries, in.Config.NodeManagement.Remediation.Window.Duration, now))
	case NeedWorkloads, NeedOccupants:
		ev.Workloads = &w.workloads
	case NeedOwner:
		found := w.owner
		if found == (owner.Owner{}) {
			found = owner.OfNode(in.Node.Name, in.Node.UID)
		}
		ev.Owner = &found
	}
}

// ask decides until no more evidence is needed. asked are the needs that were loaded.
func ask(t *testing.T, in Input, w world) (plan Plan, asked []Need) {
	t.Helper()
	return askAt(t, in, w, now)
}

func askAt(t *testing.T, in Input, w world, now time.Time) (plan Plan, asked []Need) {
	t.Helper()
	ev := Evidence{ProbeRefused: w.probeRefused}
	plan, err := Resolve(&in, &ev, func() time.Time { return now }, w.loaders(&in, &ev, func(p Plan) {
		if asked = append(asked, p.Need); len(asked) > 20 {
			t.Fatalf("there is no end of needs: %v", asked)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return plan, asked
}

func reasonOf(c *marks.Condition) string {
	if c == nil {
		return ""
	}
	return c.Reason
}

func names(pods []workerpod.Observation) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func reasons(events []Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Reason.Name)
	}
	return out
}

// The changes to the gate, in short.
const gateKeep, gateOpen, gateClose = marks.GateKeep, marks.GateOpen, marks.GateClose

// healthyNodes are healthy verified nodes of a pool.
func healthyNodes(n int, pool string) []NodeSummary {
	var out []NodeSummary
	for i := range n {
		out = append(out, NodeSummary{Name: fmt.Sprintf("%s-m%d", pool, i), UID: fmt.Sprintf("%s-mu%d", pool, i), Pool: pool, CanHostProbe: true})
	}
	return out
}

// self is the failing node among the others.
func self(pool string) NodeSummary {
	return NodeSummary{Name: "n", UID: "u1", Pool: pool, Unhealthy: true}
}

// deletable is a world in which nothing holds a deletion.
func deletable() world {
	return world{fleet: append(healthyNodes(9, ""), self(""))}
}

func ptrTo(maxUnhealthy string) *intstr.IntOrString { return ptr.To(intstr.Parse(maxUnhealthy)) }
