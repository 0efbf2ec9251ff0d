package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

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
