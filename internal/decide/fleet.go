package decide

import (
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// NodeSummary is what decisions need to know of a node among the others.
type NodeSummary struct {
	Name, UID, BootID, Pool, Zone, Profile string
	Created                                time.Time
	// Excluded: it is not verified at all. It counts for nothing but a deletion that is under way.
	Excluded bool
	// Unhealthy: it failed, or is past its deadline, and has not passed since.
	Unhealthy bool
	// CanHostProbe: it is verified and well, a probe may run on it.
	CanHostProbe bool
	// DeletionIntended: its deletion was decided and stands in its record.
	DeletionIntended bool
}

// SummaryOf is a node's part among the others.
func SummaryOf(in Input) NodeSummary {
	f, r := in.Node, in.Node.Record
	return NodeSummary{Name: f.Name, UID: f.UID, BootID: f.BootID, Pool: f.Owner.Pool, Zone: f.Zone, Profile: in.Profile.Profile, Created: f.Created,
		Excluded: !Eligible(in), DeletionIntended: r.Deletion != nil,
		Unhealthy:    r.Attempts > 0 && r.LastOutcome != attempt.Passed || ReportsDeadlineExceeded(in),
		CanHostProbe: f.Labelled && !f.Gated && f.Ready && f.Leaving == "" && r.LastOutcome == attempt.Passed,
	}
}

// Counts are the numbers that the limits on deletions go by. They are the same for every node, so that one pass over
// the fleet serves all nodes that are held.
type Counts struct {
	groups map[group]count
	// healthy says of each node that counts, by its UID, whether it counts as a healthy one.
	healthy map[string]bool
	// deleting are the nodes that are still there although they are to be deleted, in the order of the fleet.
	deleting []deletingNode
}

// group is the nodes that count together: those of a NodePool, those of a zone or, with neither set, all.
type group struct{ pool, zone string }

// groups are those that a node or a deletion of the pool and the zone counts in.
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

// tally is a count in the making.
type tally struct {
	count
	created, deleted []time.Time
}

// deletingNode is a node whose deletion is under way, and the pools in which it counts: the one of its entry in the
// ledger, and its own where the deletion stands in its record.
type deletingNode struct {
	name, uid string
	pools     []string
}

// CountNodes counts the nodes of the fleet, which is sorted by name, and the deletions of the ledger. A deleted node
// counts as an unhealthy one for the window, or each deletion would shrink the pool and with it what the limit
// protects; the node that replaced it is not one more, or the pool would seem to grow by each deletion.
func CountNodes(fleet []NodeSummary, ledger []Deletion, window time.Duration, now time.Time) Counts {
	c := Counts{groups: map[group]count{}, healthy: make(map[string]bool, len(fleet))}
	entered := map[string]string{} // pools by the UIDs of nodes
	for _, d := range ledger {
		entered[d.NodeUID] = d.Pool
	}
	tallies := map[group]*tally{}
	each := func(pool, zone string, do func(*tally)) {
		for _, g := range groups(pool, zone) {
			if tallies[g] == nil {
				tallies[g] = &tally{}
			}
			do(tallies[g])
		}
	}
	for _, m := range fleet {
		c.addDeleting(m, entered)
		if m.Excluded {
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
	for _, d := range ledger {
		if _, present := c.healthy[d.NodeUID]; !present && now.Sub(d.Time) < window {
			each(d.Pool, d.Zone, func(t *tally) { t.deleted = append(t.deleted, d.Time) })
		}
	}
	for g, t := range tallies {
		c.groups[g] = count{bad: t.bad + len(t.deleted), total: t.total + unreplaced(t.deleted, t.created)}
	}
	return c
}

// addDeleting notes a node whose deletion is under way.
func (c *Counts) addDeleting(m NodeSummary, entered map[string]string) {
	var pools []string
	if pool, ok := entered[m.UID]; ok {
		pools = append(pools, pool)
	}
	if m.DeletionIntended && !m.Excluded {
		pools = append(pools, m.Pool)
	}
	if len(pools) > 0 {
		c.deleting = append(c.deleting, deletingNode{name: m.Name, uid: m.UID, pools: pools})
	}
}

// unreplaced is how many of the deletions no node has replaced: every node that came after a deletion stands for one
// deleted node. Times of the API server and ours are compared here; being wrong about one changes the total by one.
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

// of counts a group for a node of it, which failed, whatever the fleet shows of it so far.
func (c Counts) of(in Input, g group) count {
	n := c.groups[g]
	if c.healthy[in.Node.UID] {
		n.bad++
	}
	return n
}

// samePool reports whether a node of the pool counts with this one: in a NodePool its own members do, outside every node.
func samePool(in Input, pool string) bool {
	return in.Node.Owner.Pool == "" || in.Node.Owner.Pool == pool
}
