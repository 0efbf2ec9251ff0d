package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
)

// The guards that can hold a deletion, as they appear in the record, the event and the metric's label.
const (
	GuardDoNotDelete         = "doNotDelete"
	GuardNeverVerifiedOnly   = "neverVerifiedOnly"
	GuardSparePods           = "sparePodsOtherThanDaemonSets"
	GuardMaxUnhealthy        = "maxUnhealthy"
	GuardMaxDeletionsPerHour = "maxDeletionsPerHour"
	GuardControlProbe        = "controlProbe"
	GuardNodeClaim           = "nodeClaim" // the lookup failed or is ambiguous
	GuardDryRun              = "dryRun"
)

// Guards lists every guard.
func Guards() []string {
	return []string{GuardDoNotDelete, GuardNeverVerifiedOnly, GuardSparePods, GuardMaxUnhealthy,
		GuardMaxDeletionsPerHour, GuardControlProbe, GuardNodeClaim, GuardDryRun}
}

// Kind is what a deletion is about.
type Kind string

// The kinds of objects that are deleted.
const (
	KindNodeClaim Kind = "NodeClaim"
	KindNode      Kind = "Node"
)

// Claim is what the lookup of a node's NodeClaim found.
type Claim struct {
	// Name and UID of the one NodeClaim that is the node's; empty when there is none.
	Name, UID string
	Deleting  bool
	// Problem says why the lookup cannot be trusted; then nothing may be deleted, the Node least of all.
	Problem string
}

// Deletion is one entry of the ledger.
type Deletion struct {
	Time          time.Time
	NodeUID, Pool string
}

// Evidence is what was read, fresh, before a deletion.
type Evidence struct {
	Claim     Claim
	Fleet     []Member
	Deletions []Deletion
	// LedgerProblem says why the deletions are not known; then there is no telling whether the limit is reached.
	LedgerProblem string
	// Pods are the ordinary pods on the node, as namespace/name.
	Pods []string
}

// Remediation is what Remediate decided: a deletion, or a guard that holds it, or (neither) nothing to do.
type Remediation struct {
	Delete Kind   // empty: nothing is deleted
	Name   string // of the object to delete
	UID    string // precondition
	Told   Event  // tells of the deletion
	Plan   Plan   // what to write down: the guard that holds, or that the NodeClaim is on its way out
}

// Remediate decides about a node whose retries are exhausted.
func Remediate(in Input, ev Evidence, now time.Time) Remediation {
	kind, name, uid := KindNode, in.Node.Name, in.Node.UID
	if ev.Claim.Name != "" {
		kind, name, uid = KindNodeClaim, ev.Claim.Name, ev.Claim.UID
	}
	if ev.Claim.Deleting {
		return Remediation{Plan: leave(in, ev.Claim.Name)}
	}
	for _, guard := range []func(Input, Evidence, Kind, string, time.Time) (string, string){
		optedOut, verifiedBefore, lookup, workloads, unhealthy, hourly, rehearsal,
	} {
		if held, message := guard(in, ev, kind, name, now); held != "" {
			return Remediation{Plan: hold(in, held, message)}
		}
	}
	event := Event{Type: corev1.EventTypeWarning, Reason: EventNodeDeleted, Sequence: in.Node.Record.Sequence}
	if kind == KindNodeClaim {
		event.Reason = EventNodeClaimDeleted
	}
	event.Message = fmt.Sprintf("Deleted %s %s: %d attempts failed, last: %s", kind, name, in.Node.Record.Attempts, Fault(in.Node.Record))
	after := Plan{Step: StepNone} // a Node without a NodeClaim is gone at once
	if kind == KindNodeClaim {
		after = leave(in, name)
	}
	return Remediation{Delete: kind, Name: name, UID: uid, Told: event, Plan: after}
}

// leave writes down that the node's NodeClaim is on its way out, so that no more attempts are made while it drains.
func leave(in Input, claim string) Plan {
	r := in.Node.Record
	if r.Deleting == claim {
		return Plan{Step: StepNone}
	}
	r.Deleting, r.NextAttemptTime, r.Held, r.HeldMessage = claim, nil, "", ""
	return Plan{Step: StepRecord, Change: node.Change{Record: r, Gate: node.GateClose, Label: ptr.To(false)}}
}

// hold writes the guard into the record, and tells of it if it is another one than before.
func hold(in Input, guard, message string) Plan {
	r := in.Node.Record
	message = node.Truncate(message)
	gateOpen := !in.Node.Gated
	if r.Held == guard && r.HeldMessage == message && !gateOpen {
		return Plan{Step: StepNone, Condition: between(in, run(in))}
	}
	var events []Event
	if r.Held != guard {
		e := Event{Type: corev1.EventTypeWarning, Reason: EventHeld, Sequence: r.Sequence, Message: fmt.Sprintf("Deletion is held by %s: %s", guard, message)}
		if guard == GuardNeverVerifiedOnly {
			e.Reason = EventQuarantined
		}
		events = append(events, e)
	}
	r.Held, r.HeldMessage = guard, message
	return Plan{Step: StepRecord, Change: node.Change{Record: r, Gate: node.GateClose, Label: ptr.To(false)}, Events: events}
}

func optedOut(in Input, _ Evidence, _ Kind, _ string, _ time.Time) (string, string) {
	if !in.Node.DoNotDelete {
		return "", ""
	}
	return GuardDoNotDelete, fmt.Sprintf("the node carries %s, %s or %s", node.AnnotationDoNotDelete, node.AnnotationKarpenterDoNotRepair, node.AnnotationCAPISkipRemediation)
}

func verifiedBefore(in Input, _ Evidence, _ Kind, _ string, _ time.Time) (string, string) {
	if !ptr.Deref(in.Config.NodeManagement.Remediation.NeverVerifiedOnly, true) || !in.Node.Record.Verified() {
		return "", ""
	}
	return GuardNeverVerifiedOnly, fmt.Sprintf("the node was verified at %s, so it is quarantined by its taint and not deleted", in.Node.Record.VerifiedTime.UTC().Format(time.RFC3339))
}

func lookup(_ Input, ev Evidence, _ Kind, _ string, _ time.Time) (string, string) {
	if ev.Claim.Problem == "" {
		return "", ""
	}
	return GuardNodeClaim, ev.Claim.Problem
}

func workloads(in Input, ev Evidence, _ Kind, _ string, _ time.Time) (string, string) {
	if !ptr.Deref(in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets, true) || len(ev.Pods) == 0 {
		return "", ""
	}
	const shown = 3
	list := strings.Join(ev.Pods[:min(shown, len(ev.Pods))], ", ")
	if more := len(ev.Pods) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return GuardSparePods, "the node runs ordinary pods: " + list
}

// unhealthy bounds how much of a pool may be unhealthy. Deletions within the window count as unhealthy members
// still, or each one would shrink the pool and with it what the limit protects.
func unhealthy(in Input, ev Evidence, _ Kind, _ string, now time.Time) (string, string) {
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthy
	if limit == nil {
		return "", ""
	}
	total, bad, present := 0, 0, map[string]bool{}
	for _, m := range ev.Fleet {
		if !together(in, m.Pool) {
			continue
		}
		present[m.UID] = true
		total++
		if m.Unhealthy || m.UID == in.Node.UID {
			bad++
		}
	}
	window := in.Config.NodeManagement.Remediation.Window.Duration
	for _, d := range ev.Deletions {
		if together(in, d.Pool) && !present[d.NodeUID] && now.Sub(d.Time) < window {
			total++
			bad++
		}
	}
	// Rounded up, as Karpenter's node repair does (sigs.k8s.io/karpenter pkg/controllers/node/health).
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, total, true)
	if err != nil {
		return GuardMaxUnhealthy, fmt.Sprintf("nodeManagement.remediation.maxUnhealthy %q is not a number or percentage", limit.String())
	}
	if bad <= most {
		return "", ""
	}
	pool := "the cluster"
	if in.Node.Pool != "" {
		pool = "NodePool " + in.Node.Pool
	}
	return GuardMaxUnhealthy, fmt.Sprintf("%d of %d nodes of %s failed or were deleted within %s, more than %s (%d)", bad, total, pool, window, limit.String(), most)
}

// together tells whether a node of the pool counts with this one: in a NodePool its own members do, outside every node.
func together(in Input, pool string) bool { return in.Node.Pool == "" || in.Node.Pool == pool }

func hourly(in Input, ev Evidence, _ Kind, _ string, now time.Time) (string, string) {
	limit := in.Config.NodeManagement.Remediation.MaxDeletionsPerHour
	if ev.LedgerProblem != "" {
		return GuardMaxDeletionsPerHour, ev.LedgerProblem
	}
	if limit == nil {
		return "", ""
	}
	n := int32(0)
	for _, d := range ev.Deletions {
		if d.NodeUID != in.Node.UID && now.Sub(d.Time) < time.Hour {
			n++
		}
	}
	if n < *limit {
		return "", ""
	}
	return GuardMaxDeletionsPerHour, fmt.Sprintf("%d nodes were deleted within the last hour, the limit is %d", n, *limit)
}

// rehearsal is last, so that a dry run tells what would really have been deleted.
func rehearsal(in Input, _ Evidence, kind Kind, name string, _ time.Time) (string, string) {
	if !in.Config.NodeManagement.Remediation.DryRun {
		return "", ""
	}
	return GuardDryRun, fmt.Sprintf("would delete %s %s", kind, name)
}
