package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
