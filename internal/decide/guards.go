package decide

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
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
	GuardMaxDeletionsPerHour = "maxDeletionsPerHour"
	GuardSparePods           = "sparePodsOtherThanDaemonSets"
	GuardNodeClaim           = "nodeClaim"
	GuardDryRun              = "dryRun"
	GuardControlProbe        = "controlProbe"
)

// Guards lists every guard, those that need the cheapest evidence first. A dry run is last, so that it says what would
// really have been deleted.
func Guards() []Guard {
	return []Guard{
		{GuardDoNotDelete, nil, "an annotation opts the node out", optedOut},
		{GuardControlPlane, nil, "the node is of the control plane, and `includeControlPlane` is off", controlPlane},
		{GuardNeverVerifiedOnly, nil, "the node once was verified: it is quarantined by its taint", verifiedBefore},
		{GuardControlProbe, []Need{NeedProbes}, "the same checks fail on a verified node too, or there is none to run them on", nil},
		{GuardMaxDeletionsPerHour, []Need{NeedLedger}, "so many nodes were deleted within the last hour, or the ledger cannot be read", hourly},
		{GuardMaxUnhealthy, []Need{NeedFleet, NeedLedger}, "too large a part of the NodePool, or of the cluster, failed or was deleted within the window", unhealthy},
		{GuardSparePods, []Need{NeedWorkloads}, "the node runs ordinary pods", workloads},
		{GuardNodeClaim, []Need{NeedClaim}, "the node's NodeClaim cannot be found for certain", lookup},
		{GuardDryRun, []Need{NeedClaim}, "`remediation.dryRun` is on: it says what would be deleted", rehearsal},
	}
}

func optedOut(in Input, _ Evidence, _ time.Time) string {
	if !in.Node.DoNotDelete {
		return ""
	}
	return fmt.Sprintf("the node carries %s, %s or %s", marks.AnnotationDoNotDelete, marks.AnnotationKarpenterDoNotRepair, marks.AnnotationCAPISkipRemediation)
}

func controlPlane(in Input, _ Evidence, _ time.Time) string {
	if !spared(in) {
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

func lookup(_ Input, ev Evidence, _ time.Time) string { return ev.Claim.Problem }

func workloads(in Input, ev Evidence, _ time.Time) string {
	w := ev.Workloads
	switch {
	case !*in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets:
		return ""
	case w.Problem != "":
		return w.Problem
	case len(w.Names) == 0:
		return ""
	}
	list := strings.Join(w.Names, ", ")
	if w.More {
		list += " and more"
	}
	return "the node runs ordinary pods: " + list
}

func hourly(in Input, ev Evidence, now time.Time) string {
	if ev.Ledger.Problem != "" {
		return ev.Ledger.Problem
	}
	limit, n := *in.Config.NodeManagement.Remediation.MaxDeletionsPerHour, int32(0)
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

func unhealthy(in Input, ev Evidence, now time.Time) string {
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthy
	bad, total := health(in, *ev.Fleet, ev.Ledger.Deletions, now)
	// Rounded up, as Karpenter's node repair does (sigs.k8s.io/karpenter pkg/controllers/node/health).
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, total, true)
	if err != nil {
		return fmt.Sprintf("nodeManagement.remediation.maxUnhealthy %q is not a number or percentage", limit.String())
	}
	if bad <= most {
		return ""
	}
	pool := "the cluster"
	if in.Node.Karpenter.Pool != "" {
		pool = "NodePool " + in.Node.Karpenter.Pool
	}
	return fmt.Sprintf("%d of %d nodes of %s failed or were deleted within %s, more than %s (%d)",
		bad, total, pool, in.Config.NodeManagement.Remediation.Window.Duration, limit.String(), most)
}

func rehearsal(in Input, ev Evidence, _ time.Time) string {
	if !in.Config.NodeManagement.Remediation.DryRun {
		return ""
	}
	t := targetOf(in, *ev.Claim)
	return fmt.Sprintf("would delete %s %s", t.Kind, t.Name)
}
