package peers_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
)

// pods makes so many on each of so many nodes in each zone.
func pods(zones, nodes, perNode int) []peers.Peer {
	var all []peers.Peer
	for z := range zones {
		for n := range nodes {
			for p := range perNode {
				id := fmt.Sprintf("%d-%d-%d", z, n, p)
				all = append(all, peers.Peer{Name: "p-" + id, UID: id, Node: fmt.Sprintf("n-%d-%d", z, n), Zone: fmt.Sprintf("z-%d", z)})
			}
		}
	}
	return all
}

func count(sample []peers.Peer, key func(peers.Peer) string) map[string]int {
	n := map[string]int{}
	for _, p := range sample {
		n[key(p)]++
	}
	return n
}

func TestSampleSpreads(t *testing.T) {
	sample := peers.Sample(pods(3, 4, 10), "me", 6)
	if len(sample) != 6 {
		t.Fatalf("got %d", len(sample))
	}
	for zone, n := range count(sample, func(p peers.Peer) string { return p.Zone }) {
		if n != 2 {
			t.Errorf("zone %s was chosen %d times", zone, n)
		}
	}
	for node, n := range count(sample, func(p peers.Peer) string { return p.Node }) {
		if n != 1 {
			t.Errorf("node %s was chosen %d times although others were not", node, n)
		}
	}
}

func TestSampleIsStableAndDiffersByNode(t *testing.T) {
	all := pods(1, 100, 1)
	first := peers.Sample(all, "a", 5)
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	if !slices.Equal(first, peers.Sample(reversed, "a", 5)) {
		t.Error("the order of the list changes the sample")
	}
	if slices.Equal(first, peers.Sample(all, "b", 5)) {
		t.Error("two nodes have the same sample")
	}
}

func TestSampleLoadsAllPeers(t *testing.T) {
	all := pods(1, 20, 1)
	hits := map[string]int{}
	for i := range 1000 {
		for _, p := range peers.Sample(all, fmt.Sprintf("node-%d", i), 4) {
			hits[p.UID]++
		}
	}
	// 200 each on average; 5 standard deviations of a binomial are about 63.
	for uid, n := range hits {
		if n < 130 || n > 270 {
			t.Errorf("%s was chosen %d times of 1000", uid, n)
		}
	}
	if len(hits) != 20 {
		t.Errorf("%d of 20 peers were ever chosen", len(hits))
	}
}

func TestSampleOfFew(t *testing.T) {
	if got := peers.Sample(pods(2, 1, 1), "me", 5); len(got) != 2 {
		t.Errorf("got %v", got)
	}
	if got := peers.Sample(nil, "me", 5); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	uneven := append(pods(1, 5, 1), peers.Peer{UID: "other", Zone: "other", Node: "other"})
	if got := count(peers.Sample(uneven, "me", 4), func(p peers.Peer) string { return p.Zone }); got["other"] != 1 || got["z-0"] != 3 {
		t.Errorf("got %v", got)
	}
}
