package decide

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Member is what decisions need to know of a node among the others.
type Member struct {
	Name, UID, BootID, Pool, Zone, Profile string
	Created                                time.Time
	// Excluded: it is not verified at all. It counts for nothing but a deletion that is under way.
	Excluded bool
	// Unhealthy: it failed, or is past its deadline, and has not passed since.
	Unhealthy bool
	// Control: it is verified and well, a probe may run on it.
	Control bool
	// Intended: its deletion was decided and stands in its record.
	Intended bool
}

// MemberOf is a node's part among the others.
func MemberOf(in Input) Member {
	f, r := in.Node, in.Node.Record
	return Member{Name: f.Name, UID: f.UID, BootID: f.BootID, Pool: f.Karpenter.Pool, Zone: f.Zone, Profile: in.Profile.Profile, Created: f.Created,
		Excluded: !Subject(in), Intended: r.Deletion != nil,
		Unhealthy: r.Attempts > 0 && r.LastOutcome != attempt.Passed || SaysOverdue(in),
		Control:   f.Labelled && !f.Gated && f.Ready && f.Leaving == "" && r.LastOutcome == attempt.Passed,
	}
}

// control chooses the verified node for a probe: of the same profile, or it would run checks that are not meant for it, of
// the same pool if there is one, and another one for each attempt, so that one odd control node does not decide for the
// cluster always.
func control(in Input, number int32, fleet []Member, tried map[string]bool) (workerpod.Target, bool) {
	var best *Member
	var bestRank uint64
	for i, m := range fleet {
		if !m.Control || m.Excluded || m.UID == in.Node.UID || m.Profile != in.Profile.Profile || tried[m.Name] {
			continue
		}
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d/%s/%s", number, in.Node.UID, m.UID) // a hash takes everything
		rank := h.Sum64() >> 1
		if m.Pool == in.Node.Karpenter.Pool {
			rank |= 1 << 63
		}
		if best == nil || rank > bestRank {
			best, bestRank = &fleet[i], rank
		}
	}
	if best == nil {
		return workerpod.Target{}, false
	}
	return workerpod.Target{Name: best.Name, UID: best.UID, BootID: best.BootID}, true
}

// health counts the nodes whose pool and zone count, and the unhealthy ones among them. A deleted node
// counts as an unhealthy one for the window, or each deletion would shrink the pool and with it what the limit protects;
// the node that replaced it is not one more, or the pool would seem to grow by each deletion.
func health(in Input, fleet []Member, deletions []Deletion, counts func(pool, zone string) bool, now time.Time) (bad, total int) {
	present := map[string]bool{}
	var born []time.Time
	for _, m := range fleet {
		if m.Excluded || !counts(m.Pool, m.Zone) {
			continue
		}
		present[m.UID] = true
		total++
		born = append(born, m.Created)
		if m.Unhealthy || m.UID == in.Node.UID {
			bad++
		}
	}
	slices.SortFunc(born, time.Time.Compare)
	var gone []time.Time
	for _, d := range deletions {
		if counts(d.Pool, d.Zone) && !present[d.NodeUID] && now.Sub(d.Time) < in.Config.NodeManagement.Remediation.Window.Duration {
			bad++
			gone = append(gone, d.Time)
		}
	}
	slices.SortFunc(gone, time.Time.Compare)
	// Every node that came after a deletion stands for one deleted node. Times of the API server and ours are compared
	// here; being wrong about one changes the total by one.
	next := 0
	for _, at := range gone {
		for next < len(born) && !born[next].After(at) {
			next++
		}
		if next < len(born) {
			next++
		} else {
			total++
		}
	}
	return bad, total
}

// together reports whether a node of the pool counts with this one: in a NodePool its own members do, outside every node.
func together(in Input, pool string) bool {
	return in.Node.Karpenter.Pool == "" || in.Node.Karpenter.Pool == pool
}
