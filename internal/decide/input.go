// Package decide decides what to do about a node. It is pure: it imports no client, logger or clock.
//
// Next is the entry, and Resolve loads the evidence that it needs. A decision goes through these files:
//
//   - eligible.go: whether the node must be verified
//   - state.go: the state of a node
//   - not_ours.go, verified.go, waiting.go, verifying.go, backing_off.go, exhausted.go, held.go, remediating.go: what
//     follows in each state, a function lookAt... of what was read and the time
//   - next.go, reopen.go: what comes before that in any state
//   - pods.go, termination.go: which worker pods are deleted, kept or waited for
//   - remedy.go, guards.go, fleet.go: what may be done about an exhausted node, and what holds it
//   - remediationcondition.go: whether a condition should ask a repairer to act on the node
//   - attribution.go, record.go: the control probe of a failure, and the record of a result
//   - worked.go: what closes the gate of a node that worked
//   - prerequisites.go: what the first attempt waits for
//   - takenback.go: passes that another writer takes back
//   - flapping.go: two machines under one name
//   - gateremoved.go: gating taints that another writer removes before the first record
//   - deadline.go: the round and its deadline
//   - condition.go, event.go: what the node reports
//   - eviction.go: NoExecute taints on nodes that run ordinary pods
//
// admission.go, adoption.go and nodepool.go decide for other controllers; status.go and timeline.go are for metrics.
package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Input is what the caches show of one node. It costs nothing.
type Input struct {
	Node    marks.Facts
	Config  *config.Config
	Profile config.Effective
	// Checks identifies the configuration of a worker of the node's profile; see workerpod.Builder.
	Checks string
	// Selected: nodeManagement.nodeSelector matches the node.
	Selected bool
	// Installed is when the controller was installed, on the API server's clock; zero if that is not known. A process that
	// knows only its own node does not know it.
	Installed time.Time
	// Pods are the worker pods on the node: verify pods and control probes.
	Pods []workerpod.Observation
	// Vanished is the attempt whose pod was deleted without a result; its number is 0 for none.
	Vanished attempt.Attempt
	// LocalWorker is the process on the node that verifies it, in DaemonSet mode; else nil.
	LocalWorker *LocalWorker
	// GateOpenSeen is when this process last observed the node without a gating taint, if it had one before or after; else
	// zero.
	GateOpenSeen time.Time
	// NeedsVerificationSince is when this process first observed that the node must be verified; zero if nobody tracks it.
	NeedsVerificationSince time.Time
	// NotReadySeen is when this process last observed that the node is not Ready; zero for never.
	NotReadySeen time.Time
	// BootReturned is when a watch last showed this process that a boot ID of the node returned within BootReturns; zero
	// for never. BootIDs are that one and the one before it.
	BootReturned time.Time
	BootIDs      []string
	// SuspectSince is when this process first saw the present transition of the conditions that make the node suspect.
	SuspectSince map[corev1.NodeConditionType]time.Time
	// Sharing is how many nodes of the node's group share a failure, this one included; see SharesFailure. It is 0 if
	// nobody counts them.
	Sharing int
	// GroupPassed is when a verification or control probe of the node's group last passed and made the node's next attempt
	// due, on this process's clock; zero for never. See Waits.
	GroupPassed time.Time
	// DryRunDone: this is a dry run, and the node's attempt has ended or its remediation was decided.
	DryRunDone bool
}

// NextAttempt is the attempt that would start now, without its result.
func (in Input) NextAttempt() attempt.Attempt {
	return attempt.Attempt{Number: in.Node.Record.Sequence + 1,
		Basis: attempt.Basis{BootID: in.Node.BootID, Checks: in.Checks, Gated: in.Closed(),
			Request: PendingRequest(in.Node.Record)}}
}

// LocalWorker is a process that runs the checks of its own node, in a DaemonSet's pod.
type LocalWorker struct {
	// Attempt is its last attempt; Number is 0 before the first.
	Attempt attempt.Attempt
	// Began is when the attempt began, on the process's clock.
	Began time.Time
	// Released: the process released the node and waits for its end.
	Released bool
}

// Need names evidence that a decision lacks. It costs something, so Resolve loads it on demand.
type Need string

// The needs, cheapest first.
const (
	NeedNothing       Need = ""
	NeedPrerequisites Need = "prerequisites" // evaluated in memory
	NeedSlot          Need = "slot"          // reserved in memory; released if no worker pod is created
	NeedProbes        Need = "probes"        // in memory
	NeedFleet         Need = "fleet"         // in memory, as long as the fleet
	NeedFresh         Need = "fresh node"    // a read from the API server
	NeedWarning       Need = "warning"       // a list of a pod's events, for few pods
	NeedLedger        Need = "ledger"        // a read from the API server
	NeedCounts        Need = "counts"        // in memory; after a fresh node a list of all nodes
	NeedOccupants     Need = "occupants"     // a list of the node's pods, before a NoExecute taint is added
	NeedWorkloads     Need = "workloads"     // the same list, for a remediation
	NeedOwner         Need = "owner"         // a list of all objects that may own a node
)

// Evidence is what was loaded beyond the Input. Nil means not loaded.
type Evidence struct {
	// Fresh: the Input's node, and its pods without a result, were just read from the API server and not from a cache.
	Fresh bool
	// Unmet are the node's unmet prerequisites.
	Unmet *[]Unmet
	// Slot: one of maxConcurrentVerifications is reserved for the node.
	Slot *bool
	// SlotHolders are loaded with Slot where there is none: pods that should have ended and hold one, by when they lose
	// it.
	SlotHolders *[]SlotHolder
	// Probes are the control probes for nodes of the same pool and profile.
	Probes *[]workerpod.Observation
	// ProbeRefused says why the API server refused to create the control probe.
	ProbeRefused string
	// Fleet are all nodes, sorted by name.
	Fleet *[]NodeSummary
	// Warning is the last Warning event of the current pod, which does not start; empty if there is none, or if it is not
	// known.
	Warning *string
	// Ledger are the actions of the last hour or window.
	Ledger *Ledger
	// Counts are the numbers that the limits on remediation compare.
	Counts *Counts
	// Workloads are the ordinary pods on the node.
	Workloads *Workloads
	// Owner is the object that owns the node.
	Owner *owner.Owner
	// held is what the guards say of all this; nil if they were not evaluated yet.
	held *held
}

// SlotHolder is a worker pod that should have ended and still holds a slot.
type SlotHolder struct {
	// Pod and Node are names.
	Pod, Node string
	// Due is when the pod should have ended, Until when it holds its slot at the latest.
	Due, Until time.Time
	// Terminating: the pod was deleted and has not ended. Finalizers keep it.
	Terminating bool
	Finalizers  []string
	// Refused is the API server's message where it refuses to delete the pod; empty where it does not.
	Refused string
}

// Step is what to do next about a node. A reconcile takes at most one; its effect causes a watch event and the next
// one.
type Step string

// The steps.
const (
	// StepNone: there is nothing to do until something changes or Plan.RequeueAfter is over.
	StepNone Step = ""
	// StepStart: create the pod of attempt Plan.Number.
	StepStart Step = "start"
	// StepProbe: create the control probe Plan.Probe.
	StepProbe Step = "probe"
	// StepRecord: write Plan.Change, then emit Plan.Events.
	StepRecord Step = "record"
	// StepDelete: write Plan.Change, which holds the intent, delete Plan.Target, then emit Plan.Events.
	StepDelete Step = "delete"
	// StepSetCondition: remove Plan.RemoveConditions, set remediation.condition whether or not that was refused, then emit
	// Plan.Events.
	StepSetCondition Step = "set condition"
	// StepRemoveConditions: remove Plan.RemoveConditions, then emit Plan.Events.
	StepRemoveConditions Step = "remove conditions"
)

// Plan is what Next decided.
type Plan struct {
	// Need, if set, is evidence to load before another decision. Then only Condition is valid.
	Need Need
	Step Step
	// Number and Scheduling describe the pod of StepStart.
	Number     int32
	Scheduling config.Scheduling
	// Probe is the pod of StepProbe.
	Probe Probe
	// Change is the write of StepRecord and StepDelete.
	Change marks.Change
	// Recorded is the attempt whose result Change records; nil if it records none.
	Recorded *Recorded
	// Suspect is the type of the condition for which Change begins a suspicion; empty if it begins none.
	Suspect corev1.NodeConditionType
	// TakenBack is the mark that another writer took back, where Change records that it is not for the first time; else
	// empty.
	TakenBack Mark
	// Target is what StepDelete deletes, or the condition of StepSetCondition. For an action that is held only its Kind is
	// set.
	Target owner.Target
	// RemoveConditions are the types of conditions with our reason that the node should not have.
	RemoveConditions []corev1.NodeConditionType
	// Cause is what led to StepDelete or StepSetCondition.
	Cause string
	// Events are emitted after the step or, without a step, after the condition is written.
	Events []Event
	// Condition is the node's condition; nil leaves it as it is.
	Condition *marks.Condition
	// Unmet is what the node waits for: prerequisites, a slot or its registration.
	Unmet []Unmet
	// ClearCondition removes the condition from a node that is not verified any more.
	ClearCondition bool
	// Delete are pods to delete, Keep ended pods to mark as recorded and keep for their logs.
	Delete, Keep []workerpod.Observation
	// ForceDelete are terminating pods to delete without grace: they should have ended, and none of their containers runs.
	ForceDelete []workerpod.Observation
	// RequeueAfter is when to decide again even if nothing changes; 0 for the periodic resync.
	RequeueAfter time.Duration
}

// Releases reports whether the plan removes the gating taints from a node that passed.
func (p Plan) Releases() bool {
	return p.Step == StepRecord && p.Recorded != nil && p.Change.Gate == marks.GateOpen
}

// ReleasesUnverified reports whether the plan removes the gating taints from a node past its deadline that did not
// pass.
func (p Plan) ReleasesUnverified() bool {
	return p.Step == StepRecord && p.Recorded == nil && p.Change.Record.Released != nil && p.Change.Gate == marks.GateOpen
}

// EndsPods reports whether the plan marks or deletes a pod.
func (p Plan) EndsPods() bool { return len(p.Delete)+len(p.Keep)+len(p.ForceDelete) > 0 }

// requeueAfter sets RequeueAfter to d, unless it is shorter already.
func (p *Plan) requeueAfter(d time.Duration) {
	if d > 0 && (p.RequeueAfter == 0 || d < p.RequeueAfter) {
		p.RequeueAfter = d
	}
}
