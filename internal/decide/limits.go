package decide

import (
	"fmt"
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
	if known := ev.Ledger.Begun.Add(LookBack(r)); now.Before(known) && !r.DryRun {
		return fmt.Sprintf("the ledger of deletions was begun at %s and does not know what was deleted before, so nothing is deleted until %s",
			ev.Ledger.Begun.UTC().Format(time.RFC3339), known.UTC().Format(time.RFC3339))
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

func unhealthy(in Input, ev Evidence, now time.Time) string {
	of := "the cluster"
	if in.Node.Karpenter.Pool != "" {
		of = "NodePool " + in.Node.Karpenter.Pool
	}
	count := func(pool, _ string) bool { return together(in, pool) }
	return tooMany(in, ev, "maxUnhealthy", in.Config.NodeManagement.Remediation.MaxUnhealthy, of, count, now)
}

// unhealthyZone counts the node's zone over all pools: a zone's outage hits every pool in it. A node without a zone has no limit.
func unhealthyZone(in Input, ev Evidence, now time.Time) string {
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthyPerZone
	if limit == nil || in.Node.Zone == "" {
		return ""
	}
	count := func(_, zone string) bool { return zone == in.Node.Zone }
	return tooMany(in, ev, "maxUnhealthyPerZone", limit, "zone "+in.Node.Zone, count, now)
}

// tooMany says that more of the nodes that count are unhealthy than the limit allows; empty where there are not.
func tooMany(in Input, ev Evidence, field string, limit *intstr.IntOrString, of string, count func(pool, zone string) bool, now time.Time) string {
	bad, total := health(in, *ev.Fleet, ev.Ledger.Deletions, count, now)
	// Rounded up, as Karpenter's node repair does (sigs.k8s.io/karpenter pkg/controllers/node/health).
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, total, true)
	if err != nil {
		return fmt.Sprintf("nodeManagement.remediation.%s %q is not a number or percentage", field, limit.String())
	}
	if bad <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of %s failed or were deleted within %s, more than %s (%d)",
		bad, total, of, in.Config.NodeManagement.Remediation.Window.Duration, limit.String(), most)
}

// maxNamed is how many nodes a message names.
const maxNamed = 3

// inFlight counts the nodes that are still there although their deletion was entered in the ledger, or stands in their record. One
// that hangs in its deletion (a finalizer, a drain that does not end) holds the next for as long as either says so: the record of
// a node that is being deleted until it is gone, the ledger for the window.
func inFlight(in Input, ev Evidence, _ time.Time) string {
	pools := map[string]string{}
	for _, d := range ev.Ledger.Deletions {
		pools[d.NodeUID] = d.Pool
	}
	var names []string // the fleet is sorted
	for _, m := range *ev.Fleet {
		pool, entered := pools[m.UID]
		if m.UID != in.Node.UID && (entered && together(in, pool) || m.Intended && !m.Excluded && together(in, m.Pool)) {
			names = append(names, m.Name)
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
