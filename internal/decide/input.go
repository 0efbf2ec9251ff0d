// Package decide holds the rules: what is done about a node, as pure functions of what was observed and of the time. It
// knows no client, logger or clock.
package decide

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Input is what is observed of one node at no cost, from caches.
type Input struct {
	Node    marks.Facts
	Config  *config.Config
	Profile config.Effective
	// Checks identifies what a worker of the node's profile is told to do; see workerpod.Builder.
	Checks string
	// Selected: nodeManagement.nodeSelector matches the node.
	Selected bool
	// Pods are our pods on the node, verify pods and probes.
	Pods []workerpod.Observation
	// FormerNamespaces are the namespaces in which a worker of the node may run and is not among Pods.
	FormerNamespaces []FormerNamespace
	// VanishedAttempt is the number of the attempt whose pod was seen to vanish without a result; 0 for none.
	VanishedAttempt int32
	// LocalWorker is the process that asks, where it verifies the node by itself; nil where worker pods do.
	LocalWorker *LocalWorker
	// GateOpenSeen is when this process last saw a node with no gating taint before or after it carried one; zero for never.
	GateOpenSeen time.Time
	// NeedsVerificationSince is when this process first saw that the node must be verified; zero where nobody keeps account.
	NeedsVerificationSince time.Time
	// NotReadySeen is when this process last saw the node not Ready; zero for never.
	NotReadySeen time.Time
	// DryRunDone: this is a dry run, and the node has had its attempt, or its deletion was considered.
	DryRunDone bool
}

// NextAttempt is the attempt that would start now, without its result.
func (in Input) NextAttempt() attempt.Attempt {
	return attempt.Attempt{Number: in.Node.Record.Sequence + 1, Basis: attempt.Basis{BootID: in.Node.BootID, Checks: in.Checks, Gated: in.Node.Gated}}
}

// LocalWorker is a process on the node itself that runs the checks, as a DaemonSet's does.
type LocalWorker struct {
	// Attempt is the process's last one; its Number is 0 while there was none.
	Attempt attempt.Attempt
	// Began is when it began, on the process's own clock.
	Began time.Time
	// Released: the process released the node, and waits to be ended.
	Released bool
}

// Need names evidence that a decision lacks. It costs something to load, so Resolve loads it only when it is asked for.
type Need string

// The needs, cheapest first.
const (
	NeedNothing              Need = ""
	NeedPrerequisites        Need = "prerequisites" // evaluated in memory
	NeedSlot                 Need = "slot"          // taken in memory; given back when the decision comes out otherwise
	NeedProbes               Need = "probes"        // in memory
	NeedFleet                Need = "fleet"         // in memory, as long as the fleet
	NeedControlPrerequisites Need = "elsewhere"     // evaluated in memory
	NeedFresh                Need = "fresh node"    // a read from the API server
	NeedLedger               Need = "ledger"        // a read from the API server
	NeedCounts               Need = "counts"        // in memory, as long as the fleet; after a fresh node a list of all nodes
	NeedOccupants            Need = "occupants"     // a list of the node's pods, before a NoExecute taint goes on
	NeedWorkloads            Need = "workloads"     // the same list, for a deletion
	NeedOwner                Need = "owner"         // a list of all objects that may own a node
)

// Evidence is what was loaded beyond the Input. A nil pointer is not loaded.
type Evidence struct {
	// Fresh: the Input's node, and the pods on it that have no result, were read from the API server just now, not from a cache.
	Fresh bool
	// Current: the Input's node, from a cache, is proved to hold every record that was written for it.
	Current bool
	// Unmet are the prerequisites that do not hold.
	Unmet *[]Unmet
	// Slot: there is room for one more worker pod, and it is reserved.
	Slot *bool
	// Probes are the control probes for nodes of the same pool and profile.
	Probes *[]workerpod.Observation
	// ProbeRefused says why the probe that was asked for does not exist.
	ProbeRefused string
	// Fleet are all nodes, sorted by name.
	Fleet *[]NodeSummary
	// ControlUnmet are the prerequisites of the node's profile that do not hold on the verified node Plan.Probe.On.
	ControlUnmet *[]Unmet
	// Ledger are the deletions of the last hour or window.
	Ledger *Ledger
	// Counts are those of the fleet and the ledger.
	Counts *Counts
	// Workloads are the ordinary pods on the node.
	Workloads *Workloads
	// Owner is the object that owns the node.
	Owner *owner.Owner
}

// Step is what to do next about a node. At most one step is taken per reconcile; its effect comes back as a watch event.
type Step string

// The steps.
const (
	// StepNone: there is nothing to do until Plan.Wait is over or something changes.
	StepNone Step = ""
	// StepStart: create the pod of attempt Plan.Number.
	StepStart Step = "start"
	// StepProbe: create the control probe Plan.Probe.
	StepProbe Step = "probe"
	// StepRecord: write Plan.Change, then emit Plan.Events.
	StepRecord Step = "record"
	// StepDelete: write Plan.Change, which holds the intent, delete Plan.Target, then emit Plan.Events.
	StepDelete Step = "delete"
)

// Plan is what Next decided.
type Plan struct {
	// Need, if set, is the evidence to load before asking again. Until then only Condition counts.
	Need Need
	Step Step
	// Number and Via describe the pod of StepStart.
	Number     int32
	Scheduling config.Scheduling
	// Probe is the pod of StepProbe; of NeedElsewhere, On alone counts.
	Probe Probe
	// Change is the write of StepRecord and StepDelete.
	Change marks.Change
	// Recorded is the attempt whose result Change records; nil where it records none.
	Recorded *Recorded
	// Target is what StepDelete deletes; of a deletion that is held, its kind.
	Target owner.Target
	// Cause is what led to StepDelete.
	Cause string
	// Events are emitted once the step is taken, or, without a step, once the condition is written.
	Events []Event
	// Condition is what the node should say; nil leaves it as it is.
	Condition *marks.Condition
	// Unmet are what the node waits for, if that is a prerequisite, a slot or its registration.
	Unmet []Unmet
	// ClearCondition removes ours from a node that is no longer our business.
	ClearCondition bool
	// Delete and Keep are pods to delete, and ended ones to mark as kept.
	Delete, Keep []workerpod.Observation
	// ForceDelete are terminating pods to delete without grace: none of their containers runs, and they should have ended.
	ForceDelete []workerpod.Observation
	// RequeueAfter is when to look again even if nothing changes; 0 for the safety-net resync.
	RequeueAfter time.Duration
}

// Releases reports whether the plan takes the gating taints off a node that passed.
func (p Plan) Releases() bool {
	return p.Step == StepRecord && p.Recorded != nil && p.Change.Gate == marks.GateOpen
}

// requeueAfter looks again after d, or sooner if something else asked for that.
func (p *Plan) requeueAfter(d time.Duration) {
	if d > 0 && (p.RequeueAfter == 0 || d < p.RequeueAfter) {
		p.RequeueAfter = d
	}
}

// need asks for evidence.
func (p *Plan) need(n Need) { p.Need = n }
