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

// Guard can hold a deletion. Documentation, metrics and the order in which guards are asked follow from the list.
type Guard struct {
	// Name is the guard's in the record, the event and the metric's label.
	Name string
	// Needs is the evidence that it is decided on.
	Needs []Need
	// About says when it holds, for the documentation.
	About string
	// holds returns why the deletion is held; empty when the guard lets it through. nil for a guard that holds by other means.
	holds func(Input, Evidence, time.Time) string
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
)

// Guards lists every guard, those that need the cheapest evidence first; one that looks at two things of different cost stands
// twice. A dry run is last, so that it says what would really have been deleted.
func Guards() []Guard {
	return []Guard{
		{GuardDoNotDelete, nil, "an annotation of the node opts it out, or the node is virtual", optedOut},
		{GuardControlPlane, nil, "the node is of the control plane, and `includeControlPlane` is off", controlPlane},
		{GuardNeverVerifiedOnly, nil, "the node once was verified: it is quarantined by its taint", verifiedBefore},
		{GuardControlProbe, []Need{NeedProbes}, "the same checks fail on a verified node too, or there is none to run them on", nil},
		{GuardPaused, []Need{NeedLedger}, "`kubectl node-ready pause` stopped deletions: the ledger carries the annotation `node-ready/paused`", paused},
		{GuardMaxDeletionsPerHour, []Need{NeedLedger}, "so many nodes were deleted within the last hour, or the ledger cannot be read or does not reach back so far", hourly},
		{GuardMaxUnhealthy, []Need{NeedCounts}, "too large a part of the NodePool, or of the cluster, failed or was deleted within the window", unhealthy},
		{GuardMaxUnhealthyPerZone, []Need{NeedCounts}, "too large a part of the node's zone, over all pools, failed or was deleted within the window", unhealthyZone},
		{GuardMaxInFlight, []Need{NeedCounts}, "as many nodes of the NodePool, or of the cluster, as may be at once are still being deleted", inFlight},
		{GuardSparePods, []Need{NeedWorkloads}, "the node runs ordinary pods", workloads},
		{owner.Guard, []Need{NeedOwner}, "the node's owner (its " + strings.Join(owner.Names(), " or ") + ") cannot be found for certain", lookup},
		{GuardDoNotDelete, []Need{NeedOwner}, "`karpenter.sh/do-not-disrupt` on its owner opts the node out", ownerOptedOut},
		{GuardDryRun, []Need{NeedOwner}, "`remediation.dryRun` is on: it says what would be deleted", isDryRun},
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

func optedOut(in Input, _ Evidence, _ time.Time) string {
	switch {
	case in.Node.Virtual:
		return "no machine is behind the node: its labels say that it is virtual"
	case !in.Node.DoNotDelete:
		return ""
	}
	return fmt.Sprintf("the node carries %s, %s, %s or %s", marks.AnnotationDoNotDelete, owner.AnnotationDoNotDisrupt,
		owner.AnnotationDoNotRepair, marks.AnnotationCAPISkipRemediation)
}

func ownerOptedOut(_ Input, ev Evidence, _ time.Time) string {
	if ev.Owner.OptedOut == "" {
		return ""
	}
	return fmt.Sprintf("%s %s carries %s", ev.Owner.Kind, ev.Owner.Name, ev.Owner.OptedOut)
}

func controlPlane(in Input, _ Evidence, _ time.Time) string {
	if !protected(in) {
		return ""
	}
	return "a control-plane node is not deleted unless nodeManagement.includeControlPlane is on"
}

func verifiedBefore(in Input, _ Evidence, _ time.Time) string {
	r := in.Node.Record
	if !*in.Config.NodeManagement.Remediation.NeverVerifiedOnly || !r.MayHaveVerified() {
		return ""
	}
	when := "once"
	if r.VerifiedTime != nil {
		when = "at " + r.VerifiedTime.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the node was verified %s, so it is quarantined by its taint and not deleted", when)
}

func paused(_ Input, ev Evidence, _ time.Time) string {
	if ev.Ledger.Paused == "" {
		return ""
	}
	return fmt.Sprintf("deletions are paused (%s); kubectl node-ready resume ends that", ev.Ledger.Paused)
}

func lookup(_ Input, ev Evidence, _ time.Time) string { return ev.Owner.Problem }

func workloads(in Input, ev Evidence, _ time.Time) string {
	if !*in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets {
		return ""
	}
	return ev.Workloads.busy()
}

func isDryRun(in Input, ev Evidence, _ time.Time) string {
	if !in.Config.NodeManagement.Remediation.DryRun {
		return ""
	}
	return fmt.Sprintf("would delete %s %s", ev.Owner.Kind, ev.Owner.Name)
}

// The guards that count nodes and deletions.

// LookBack is how far back they count deletions: an hour, or the window where that is longer.
func LookBack(r config.Remediation) time.Duration { return max(time.Hour, r.Window.Duration) }

func hourly(in Input, ev Evidence, now time.Time) string {
	if ev.Ledger.Problem != "" {
		return ev.Ledger.Problem
	}
	r := in.Config.NodeManagement.Remediation
	// A dry run deletes nothing, and may not begin a ledger.
	if known := ev.Ledger.CompleteSince.Add(LookBack(r)); now.Before(known) && !r.DryRun {
		return fmt.Sprintf("the ledger of deletions was begun at %s and does not know what was deleted before, so nothing is deleted until %s",
			ev.Ledger.CompleteSince.UTC().Format(time.RFC3339), known.UTC().Format(time.RFC3339))
	}
	limit, n := *r.MaxDeletionsPerHour, int32(0)
	for _, d := range ev.Ledger.Deletions {
		if d.NodeUID != in.Node.UID && now.Sub(d.Time) < time.Hour {
			n++
		}
	}
	if n < limit {
		return ""
	}
	return fmt.Sprintf("%d nodes were deleted within the last hour, the limit is %d", n, limit)
}

func unhealthy(in Input, ev Evidence, _ time.Time) string {
	of := cmp.Or(in.Node.Owner.PoolName(), "the cluster")
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthy
	return tooMany(in, ev, "maxUnhealthy", limit, of, group{pool: in.Node.Owner.Pool})
}

// unhealthyZone counts the node's zone over all pools: a zone's outage hits every pool in it. A node without a zone has no limit.
func unhealthyZone(in Input, ev Evidence, _ time.Time) string {
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthyPerZone
	if limit == nil || in.Node.Zone == "" {
		return ""
	}
	return tooMany(in, ev, "maxUnhealthyPerZone", limit, "zone "+in.Node.Zone, group{zone: in.Node.Zone})
}

// tooMany says that more of the group's nodes are unhealthy than the limit allows; empty where there are not.
func tooMany(in Input, ev Evidence, field string, limit *intstr.IntOrString, of string, g group) string {
	n := ev.Counts.of(in, g)
	// Rounded up, as Karpenter's node repair does (sigs.k8s.io/karpenter pkg/controllers/node/health).
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, n.total, true)
	if err != nil {
		return fmt.Sprintf("nodeManagement.remediation.%s %q is not a number or percentage", field, limit.String())
	}
	if n.bad <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of %s failed or were deleted within %s, more than %s (%d)",
		n.bad, n.total, of, in.Config.NodeManagement.Remediation.Window.Duration, limit.String(), most)
}

// maxNamed is how many nodes a message names.
const maxNamed = 3

// inFlight counts the nodes that are still there although their deletion was entered in the ledger, or stands in their record. One
// that hangs in its deletion (a finalizer, a drain that does not end) holds the next for as long as either says so: the record of
// a node that is being deleted until it is gone, the ledger for the window.
func inFlight(in Input, ev Evidence, _ time.Time) string {
	var names []string
	for _, d := range ev.Counts.deleting {
		if d.uid != in.Node.UID && slices.ContainsFunc(d.pools, func(pool string) bool { return samePool(in, pool) }) {
			names = append(names, d.name)
		}
	}
	limit := int(*in.Config.NodeManagement.Remediation.MaxInFlight)
	if len(names) < limit {
		return ""
	}
	list := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d nodes are still being deleted, the limit is %d: %s", len(names), limit, list)
}
