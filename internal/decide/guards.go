package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Guard can hold an action. Documentation, metrics and the order of evaluation follow from Guards.
type Guard struct {
	// Name is the guard's name in the record, events and the metric's label.
	Name string
	// Needs is the evidence that it is evaluated on.
	Needs []Need
	// About says when it holds, for the documentation.
	About string
	// holds returns why the action is held, or an empty string. It is nil for a guard that is evaluated elsewhere.
	holds func(*decision) string
}

// Names of the guards.
const (
	GuardDoNotDelete         = "doNotDelete"
	GuardControlPlane        = "controlPlane"
	GuardNeverVerifiedOnly   = "neverVerifiedOnly"
	GuardMaxUnhealthy        = "maxUnhealthy"
	GuardMaxUnhealthyPerZone = "maxUnhealthyPerZone"
	GuardMaxInFlight         = "maxInFlight"
	GuardPaused              = "paused"
	GuardMaxDeletionsPerHour = "maxDeletionsPerHour"
	GuardSparePods           = "sparePodsOtherThanDaemonSets"
	GuardDryRun              = "dryRun"
	GuardControlProbe        = "controlProbe"
	GuardCondition           = "condition"
	GuardBootIDFlapping      = "bootIDFlapping"
)

// guards is the list that every look at a held node goes through.
var guards = Guards()

// Guards lists every guard, those with the cheapest evidence first. A guard that needs two kinds of evidence at
// different costs is listed twice. The dry run is last, so that it reports only actions that would really be taken.
func Guards() []Guard {
	return []Guard{
		{GuardDoNotDelete, nil, "an annotation of the node opts the node out, or the node is virtual", (*decision).optedOut},
		{GuardControlPlane, nil,
			"the node is a control-plane node, and `includeControlPlane` is off", (*decision).controlPlane},
		{GuardNeverVerifiedOnly, nil,
			"the node was verified before, so its taint quarantines it", (*decision).verifiedBefore},
		{GuardBootIDFlapping, nil, "two machines report under the node's name: their boot IDs alternate",
			(*decision).flapping},
		{GuardCondition, nil, "with `remediation.action: condition`, another program already set the condition",
			(*decision).foreignCondition},
		{GuardControlProbe, []Need{NeedProbes},
			"the same checks also fail on a verified node, or no verified node can run them", nil},
		{GuardPaused, []Need{NeedLedger},
			"`kubectl node-ready pause` stopped remediation: the ledger has the annotation `node-ready/paused`",
			(*decision).paused},
		{GuardMaxDeletionsPerHour, []Need{NeedLedger},
			"the limit of actions in the last hour is reached, or the ledger cannot be read or is less than an hour old",
			(*decision).deletedPerHour},
		{GuardMaxUnhealthy, []Need{NeedCounts},
			"too many nodes of the NodePool, or of the cluster, failed or were deleted within the window",
			(*decision).unhealthy},
		{GuardMaxUnhealthyPerZone, []Need{NeedCounts},
			"too many nodes of the node's zone, over all pools, failed or were deleted within the window",
			(*decision).unhealthyZone},
		{GuardMaxInFlight, []Need{NeedCounts},
			"the NodePool, or the cluster, has reached its limit of nodes that are being deleted or repaired",
			(*decision).inFlight},
		{GuardSparePods, []Need{NeedWorkloads}, "the node runs ordinary pods", (*decision).workloads},
		{GuardControlPlane, []Need{NeedWorkloads}, "the node runs a static pod of an API server or etcd, or its pods are " +
			"unknown, and `includeControlPlane` is off", (*decision).controlPlanePods},
		{owner.Guard, []Need{NeedOwner},
			"the node's owner (its " + strings.Join(owner.Names(), " or ") + ") is missing or ambiguous",
			func(d *decision) string { return d.ev.Owner.Problem }},
		{GuardDoNotDelete, []Need{NeedOwner},
			"`karpenter.sh/do-not-disrupt` on its owner opts the node out", (*decision).ownerOptedOut},
		{GuardDryRun, []Need{NeedOwner}, "`remediation.dryRun` is on: it reports what would be done", (*decision).dryRun},
	}
}

// GuardNames lists the guards' names, each once.
func GuardNames() []string {
	var names []string
	for _, g := range Guards() {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	return names
}

func (d *decision) optedOut() string {
	switch {
	case d.in.Node.Virtual:
		return "the node's labels mark it as virtual, so no machine is behind it"
	case !d.in.Node.DoNotDelete:
		return ""
	}
	return fmt.Sprintf("the node carries %s, %s, %s or %s", marks.AnnotationDoNotDelete, owner.AnnotationDoNotDisrupt,
		owner.AnnotationDoNotRepair, marks.AnnotationCAPISkipRemediation)
}

func (d *decision) ownerOptedOut() string {
	if d.ev.Owner.OptedOut == "" {
		return ""
	}
	return fmt.Sprintf("%s %s carries %s", d.ev.Owner.Kind, d.ev.Owner.Name, d.ev.Owner.OptedOut)
}

func (d *decision) controlPlane() string {
	if !protected(d.in) {
		return ""
	}
	return "no action is taken on a control-plane node unless nodeManagement.includeControlPlane is on"
}

// controlPlanePods finds the control plane that no label shows. In doubt, it holds.
func (d *decision) controlPlanePods() string {
	w := d.ev.Workloads
	switch {
	case d.in.Config.NodeManagement.IncludeControlPlane:
		return ""
	case w.Problem != "":
		return w.Problem
	case w.ControlPlane == "":
		return ""
	}
	return fmt.Sprintf("the node runs the static pod %s, so it is a control-plane node; no action is taken on it unless "+
		"nodeManagement.includeControlPlane is on", w.ControlPlane)
}

func (d *decision) verifiedBefore() string {
	r := d.in.Node.Record
	if !*d.in.Config.NodeManagement.Remediation.NeverVerifiedOnly || !r.MayHaveVerified() {
		return ""
	}
	return fmt.Sprintf("the node counts as verified since %s, so its taint quarantines it and no action is taken",
		r.VerifiedTime.UTC().Format(time.RFC3339))
}

func (d *decision) paused() string {
	if d.ev.Ledger.Paused == "" {
		return ""
	}
	return fmt.Sprintf("remediation is paused (%s); to continue, run kubectl node-ready resume", d.ev.Ledger.Paused)
}

func (d *decision) workloads() string {
	if !*d.in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets {
		return ""
	}
	return d.ev.Workloads.occupied()
}

func (d *decision) dryRun() string {
	if !d.in.Config.NodeManagement.Remediation.DryRun {
		return ""
	}
	if m := d.in.Config.NodeManagement.Remediation; m.Action == config.ActionCondition {
		return fmt.Sprintf("would set condition %s=%s", m.Condition.Type, m.Condition.Status)
	}
	return fmt.Sprintf("would delete %s %s", d.ev.Owner.Kind, d.ev.Owner.Name)
}

// LookBack is how far back the guards count actions: an hour, or the window if that is longer.
func LookBack(r config.Remediation) time.Duration { return max(time.Hour, r.Window.Duration) }

func (d *decision) deletedPerHour() string {
	if d.ev.Ledger.Problem != "" {
		return d.ev.Ledger.Problem
	}
	r := d.in.Config.NodeManagement.Remediation
	// A dry run does nothing, and may not begin a ledger.
	if known := d.ev.Ledger.CompleteSince.Add(LookBack(r)); d.now.Before(known) && !r.DryRun {
		return fmt.Sprintf("the ledger of remediations starts at %s and shows no earlier actions, so no action is taken "+
			"until %s",
			d.ev.Ledger.CompleteSince.UTC().Format(time.RFC3339), known.UTC().Format(time.RFC3339))
	}
	if _, counted := d.began(); counted {
		return "" // the limit counted it then
	}
	limit, n := *r.MaxDeletionsPerHour, int32(0)
	for _, entry := range d.ev.Ledger.Entries {
		if d.now.Sub(entry.Time.Time) < time.Hour {
			n++
		}
	}
	if n < limit {
		return ""
	}
	return fmt.Sprintf("%d actions were taken within the last hour, the limit is %d", n, limit)
}

// began is when the node's action was let through, if it was: it is in the ledger since the node last passed, or the
// node carries the condition. Such an action is not held again by what began later.
func (d *decision) began() (at time.Time, ok bool) {
	condition := d.in.Config.NodeManagement.Remediation.Action == config.ActionCondition
	if d.ev.Ledger == nil { // earlier guards load it
		return time.Time{}, false
	}
	if e := entered(d.in, *d.ev.Ledger, d.targetKind(), d.now); e != nil {
		return e.Time.Time, true
	}
	if !condition || !d.carriesCondition() {
		return time.Time{}, false
	}
	for _, c := range d.in.Node.RemediationConditions {
		if c.Type == d.in.Config.NodeManagement.Remediation.Condition.Type {
			at = c.LastTransitionTime.Time
		}
	}
	return at, true
}

func (d *decision) unhealthy() string {
	of := cmp.Or(d.in.Node.Owner.PoolName(), "the cluster")
	limit := d.in.Config.NodeManagement.Remediation.MaxUnhealthy
	return d.tooMany("maxUnhealthy", limit, of, group{pool: d.in.Node.Owner.Pool})
}

// unhealthyZone counts the node's zone over all pools, since an outage of a zone affects every pool in it. A node
// without a zone has no limit.
func (d *decision) unhealthyZone() string {
	limit := d.in.Config.NodeManagement.Remediation.MaxUnhealthyPerZone
	if limit == nil || d.in.Node.Zone == "" {
		return ""
	}
	return d.tooMany("maxUnhealthyPerZone", limit, "zone "+d.in.Node.Zone, group{zone: d.in.Node.Zone})
}

// tooMany says that more nodes of the group are unhealthy than the limit allows. It is empty if not. Unlike the limits
// on the rate of actions, it also holds an action that was let through, by what came after it: in an outage that grows,
// a repairer that has not acted yet must not act. A condition so goes, and returns once the outage is over.
func (d *decision) tooMany(field string, limit *intstr.IntOrString, of string, g group) string {
	n := d.ev.Counts.of(d.in, g)
	// Rounded up, as Karpenter's node repair does (sigs.k8s.io/karpenter pkg/controllers/node/health).
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, n.total, true)
	if err != nil {
		return fmt.Sprintf("nodeManagement.remediation.%s %q is not a number or percentage", field, limit.String())
	}
	if n.bad <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of %s failed or were deleted within %s, more than %s (%d)",
		n.bad, n.total, of, d.in.Config.NodeManagement.Remediation.Window.Duration, limit.String(), most)
}

// maxNamed is how many nodes a message names.
const maxNamed = 3

// inFlight counts the nodes that still exist although their deletion is in the ledger or in their record. A deletion
// that hangs, for example on a finalizer or an endless drain, blocks the next deletion. The record blocks it until the
// node is gone, and the ledger blocks it for the window. An action that was let through is held by earlier ones only.
func (d *decision) inFlight() string {
	var names []string
	at, counted := d.began()
	for _, n := range d.ev.Counts.deleting {
		if n.uid != d.in.Node.UID && (!counted || n.began.Before(at)) &&
			slices.ContainsFunc(n.pools, func(pool string) bool { return samePool(d.in, pool) }) {
			names = append(names, n.name)
		}
	}
	limit := int(*d.in.Config.NodeManagement.Remediation.MaxInFlight)
	if len(names) < limit {
		return ""
	}
	list := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d nodes are still being deleted or repaired, the limit is %d: %s", len(names), limit, list)
}
