package decide

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// NodeSummary is what decisions about other nodes need to know of a node.
type NodeSummary struct {
	Name, UID, BootID, Pool, Zone, Arch, Profile string
	Created                                      time.Time
	// Excluded: the node is not verified, or others remove it. It counts only while our own action on it lasts.
	Excluded bool
	// Unhealthy: it failed under its present checks, or exceeded its deadline, and has not passed since. A failure that
	// others share does not count; a suspicion that closed the gate does, because maxUnhealthy limits those.
	Unhealthy bool
	// CanHostProbe: it is verified and healthy, so a probe may run on it.
	CanHostProbe bool
	// Verified is when it last passed; zero for never.
	Verified time.Time
	// RemediationIntended: its record contains an intended deletion, or a condition asks a repairer to act on it.
	RemediationIntended bool
	// Settled is the result of the function Settled.
	Settled bool
}

// target is the node as the host of a probe.
func (m NodeSummary) target() workerpod.Target {
	return workerpod.Target{Name: m.Name, UID: m.UID, BootID: m.BootID}
}

// SummaryOf summarises a node.
func SummaryOf(in Input) NodeSummary {
	f, r := in.Node, in.Node.Record
	intended := r.Deletion != nil || len(f.RemediationConditions) > 0
	return NodeSummary{Name: f.Name, UID: f.UID, BootID: f.BootID, Created: f.Created,
		Pool: f.Owner.Pool, Zone: f.Zone, Arch: f.Arch, Profile: in.Profile.Profile,
		Excluded: !Eligible(in) || f.Leaving != "" && !intended, RemediationIntended: intended,
		Settled:  Settled(in),
		Verified: ptr.Deref(r.VerifiedTime, time.Time{}),
		Unhealthy: r.Attempts > 0 && r.LastOutcome != attempt.Passed && r.Checks == in.Checks ||
			ReportsDeadlineExceeded(in) && !SharesFailure(in) ||
			r.Suspicion != nil && in.Closed(),
		CanHostProbe: f.Labelled && !f.Gated && f.Ready && f.Leaving == "" && r.LastOutcome == attempt.Passed &&
			r.Suspicion == nil,
	}
}

// Counts are the numbers that the limits on remediation compare. They are the same for every node, so one pass over the
// fleet serves all held nodes.
type Counts struct {
	groups map[group]count
	// healthy says, by UID, whether a node counts as healthy.
	healthy map[string]bool
	// inFlight are the nodes that still exist although an action on them was let through, in the order of the fleet.
	inFlight []nodeInFlight
}

// group identifies nodes that are counted together: those of a NodePool, those of a zone or, if both are empty, all.
type group struct{ pool, zone string }

// groups are the groups of a node of the pool and the zone.
func groups(pool, zone string) []group {
	in := []group{{}}
	if pool != "" {
		in = append(in, group{pool: pool})
	}
	if zone != "" {
		in = append(in, group{zone: zone})
	}
	return in
}

// count is how many nodes of a group failed or were deleted within the window, and how many there are in all.
type count struct{ bad, total int }

// tally collects the input of a count.
type tally struct {
	count
	created, deleted []time.Time
}

// nodeInFlight is a node that is being deleted or repaired, and the pools in which it counts. These are the pool of its
// ledger entry and, if the remediation shows on it, its own pool. began is the time of the entry; zero for none.
type nodeInFlight struct {
	name, uid string
	pools     []string
	began     time.Time
}

// CountNodes counts the nodes of the fleet, which is sorted by name, and those of the ledger that are gone. A node
// counts once, by its last action. A deleted node counts as unhealthy for the window, or each deletion would shrink the
// pool and its limit. Its replacement does not count in addition, or the pool would seem to grow with each deletion.
func CountNodes(fleet []NodeSummary, entries []ledger.Entry, window time.Duration, now time.Time) Counts {
	c := Counts{groups: map[group]count{}, healthy: make(map[string]bool, len(fleet))}
	inLedger := map[string]ledger.Entry{} // by the node's UID, the last
	for _, e := range entries {
		inLedger[e.UID] = e
	}
	tallies, excluded := map[group]*tally{}, map[string]bool{}
	each := func(pool, zone string, do func(*tally)) {
		for _, g := range groups(pool, zone) {
			if tallies[g] == nil {
				tallies[g] = &tally{}
			}
			do(tallies[g])
		}
	}
	for _, m := range fleet {
		var pools []string
		var began time.Time
		if d, ok := inLedger[m.UID]; ok && !m.Verified.After(d.Time.Time) { // after an action the node may pass
			pools, began = append(pools, d.Pool), d.Time.Time
		}
		if m.RemediationIntended && !m.Excluded {
			pools = append(pools, m.Pool)
		}
		if len(pools) > 0 {
			c.inFlight = append(c.inFlight, nodeInFlight{name: m.Name, uid: m.UID, pools: pools, began: began})
		}
		if m.Excluded {
			excluded[m.UID] = true
			continue
		}
		c.healthy[m.UID] = !m.Unhealthy
		each(m.Pool, m.Zone, func(t *tally) {
			t.created = append(t.created, m.Created)
			if t.total++; m.Unhealthy {
				t.bad++
			}
		})
	}
	for _, d := range inLedger {
		_, counted := c.healthy[d.UID]
		stays := d.Kind == marks.KindCondition && excluded[d.UID] // nothing was deleted
		if !counted && !stays && now.Sub(d.Time.Time) < window {
			each(d.Pool, d.Zone, func(t *tally) { t.deleted = append(t.deleted, d.Time.Time) })
		}
	}
	for g, t := range tallies {
		c.groups[g] = count{bad: t.bad + len(t.deleted), total: t.total + unreplaced(t.deleted, t.created)}
	}
	return c
}

// unreplaced is how many deletions have no replacement. A node that was created after a deletion replaces one deleted
// node. Creation times are from the API server's clock, and deletion times from the controller's. A difference between
// the clocks changes the total by at most one.
func unreplaced(deleted, created []time.Time) (n int) {
	if len(deleted) == 0 {
		return 0
	}
	slices.SortFunc(deleted, time.Time.Compare)
	slices.SortFunc(created, time.Time.Compare)
	next := 0
	for _, at := range deleted {
		for next < len(created) && !created[next].After(at) {
			next++
		}
		if next < len(created) {
			next++
		} else {
			n++
		}
	}
	return n
}

// of is the count of the node's group. The node counts as failed, even if the fleet does not show that yet.
func (c Counts) of(in Input, g group) count {
	n := c.groups[g]
	if c.healthy[in.Node.UID] {
		n.bad++
	}
	return n
}

// samePool reports whether a node of the pool counts together with this one. For a node without a NodePool, every node
// does.
func samePool(in Input, pool string) bool {
	return in.Node.Owner.Pool == "" || in.Node.Owner.Pool == pool
}
