package peers

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Peer is a pod to connect to.
type Peer struct {
	Name, UID, Node, Zone, IP string
}

// Sample chooses at most n peers: one from each zone in turn, and from nodes that were not
// chosen yet before others. Which ones depends on the node that asks, so that many nodes
// spread their connections over all peers, and is the same at every attempt, so that a retry
// repeats what failed.
func Sample(peers []Peer, node string, n int) []Peer {
	type candidate struct {
		Peer
		rank uint64
		// nth counts the candidates of one node, best rank first.
		nth int
	}
	candidates := make([]candidate, len(peers))
	for i, p := range peers {
		h := fnv.New64a()
		_, _ = h.Write([]byte(node + "\x00" + p.UID))
		candidates[i] = candidate{Peer: p, rank: mix(h.Sum64())}
	}
	byRank := func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.UID, b.UID))
	}
	slices.SortFunc(candidates, byRank)
	perNode := map[string]int{}
	for i := range candidates {
		candidates[i].nth = perNode[candidates[i].Node]
		perNode[candidates[i].Node]++
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.nth, b.nth) })

	zones := map[string][]candidate{}
	var order []string
	for _, c := range candidates {
		if _, seen := zones[c.Zone]; !seen {
			order = append(order, c.Zone)
		}
		zones[c.Zone] = append(zones[c.Zone], c)
	}
	var sample []Peer
	for len(sample) < min(n, len(peers)) {
		for _, z := range order {
			if len(zones[z]) > 0 && len(sample) < n {
				sample = append(sample, zones[z][0].Peer)
				zones[z] = zones[z][1:]
			}
		}
	}
	return sample
}

// mix spreads a hash over all its bits (the finaliser of SplitMix64), for FNV leaves inputs
// that differ in their last bytes close together.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
