package peers

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// Pages are small, since a thousand new nodes may read them at once. An EndpointSlice has up to a hundred endpoints of
// 300 to 400 bytes each; a pod has 5 to 15 KiB.
const (
	slicesPerPage = 2
	podsPerPage   = 10
	// podsPerPeer is how many pods are read at most for each peer that is needed.
	podsPerPeer = 20
)

// found are the pods that were read.
type found struct {
	// of is the Service or the selector.
	of string
	// peers are the ready pods on other nodes.
	peers []Peer
	// all counts all pods; elsewhere reports whether one is on another node, ready or not.
	all       int
	elsewhere bool
}

func (f *found) add(peer Peer, ready bool, node string) {
	f.all++
	if peer.Node != node {
		f.elsewhere = true
		if ready {
			f.peers = append(f.peers, peer)
		}
	}
}

// lookUp finds the pods, within a quarter of the check's time. The rest is for connections, so that a slow list does
// not look like peers that do not answer.
func (p peersCheck) lookUp(ctx context.Context) (*found, *check.Finding) {
	within := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, time.Until(deadline)/4)
		defer cancel()
	}
	f, err := &found{}, error(nil)
	if p.Service != "" {
		f, err = p.ofService(within)
	}
	if err == nil && f.all == 0 && f.of == "" && p.Selector != "" {
		f, err = p.bySelector(within)
	}
	switch {
	case err != nil:
		reason, phrase := neterror.Of(err)
		failure := check.Fail(reason, "listing pods to connect to (%s): the API server at %s %s",
			f.of, p.api.Address(), phrase)
		if reason.Transient() && ctx.Err() == nil {
			failure.Outcome = check.Inconclusive // a short fault of the API server says nothing about peers
		}
		return nil, &failure
	case f.of == "":
		return nil, check.Failure(check.ReasonServiceNotFound, "Service %s/%s does not exist, or has no EndpointSlices",
			p.Namespace, p.Service)
	}
	return f, nil
}

// enough reports whether there are as many peers as needed, or so many other pods that it stops reading.
func (p peersCheck) enough(f *found) bool {
	wanted := max(p.sample(), int(p.MinPeers))
	return len(f.peers) >= wanted || f.all >= wanted*podsPerPeer
}

// ofService reads the Service's EndpointSlices. Its result has no "of" if there are none: the EndpointSlice controller
// makes one for a Service without endpoints too (placeholder slice in staging/src/k8s.io/endpointslice of
// k8s.io/kubernetes). For a pod in slices of two families it uses the cluster's first family, as status.podIP does.
func (p peersCheck) ofService(ctx context.Context) (*found, error) {
	of := "Service " + p.Namespace + "/" + p.Service
	first, second := &found{}, &found{}
	err := p.api.EndpointSlicePages(ctx, p.Namespace, p.Service, slicesPerPage, func(page []apiserver.EndpointSlice) bool {
		for _, slice := range page {
			first.of, second.of = of, of
			f := second
			if (slice.AddressType == "IPv6") == p.ipv6 {
				f = first
			}
			p.addSlice(f, slice)
		}
		return !p.enough(first) // slices of both families come in any order
	})
	if err != nil {
		return &found{of: of}, err
	}
	if first.all == 0 {
		return second, nil
	}
	return first, nil
}

func (p peersCheck) addSlice(f *found, slice apiserver.EndpointSlice) {
	for _, e := range slice.Endpoints {
		if e.NodeName == "" || len(e.Addresses) == 0 {
			continue // not a pod
		}
		peer := Peer{Name: e.Addresses[0], UID: e.Addresses[0], Node: e.NodeName, Zone: e.Zone, IP: e.Addresses[0]}
		if e.TargetRef != nil {
			peer.Name, peer.UID = e.TargetRef.Name, e.TargetRef.UID
		}
		f.add(peer, ptr.Deref(e.Conditions.Ready, true) && ptr.Deref(e.Conditions.Serving, true), p.node)
	}
}

// bySelector reads pods. They have their zone as a label since Kubernetes 1.35; before, the sample spreads over nodes
// only.
func (p peersCheck) bySelector(ctx context.Context) (*found, error) {
	f := &found{of: "selector " + p.Selector + " in namespace " + p.Namespace}
	return f, p.api.PodPages(ctx, p.Namespace, p.Selector, podsPerPage, func(page []apiserver.Pod) bool {
		for _, pod := range page {
			peer := Peer{Name: pod.Metadata.Name, UID: pod.Metadata.UID, Node: pod.Spec.NodeName,
				Zone: pod.Metadata.Labels[apiserver.ZoneLabel], IP: pod.Status.PodIP}
			f.add(peer, pod.Ready(), p.node)
		}
		return !p.enough(f)
	})
}

// Peer is a pod to connect to.
type Peer struct {
	Name, UID, Node, Zone, IP string
}

// Sample chooses at most n peers: one from each zone in turn, and one from each node before a second one. The choice
// depends on this node, so that many nodes spread their connections over all peers, and is the same at every attempt,
// so that a retry repeats what failed.
func Sample(peers []Peer, node string, n int) []Peer {
	rank := func(p Peer) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(node + "\x00" + p.UID))
		return mix(h.Sum64())
	}
	ranked := slices.SortedFunc(slices.Values(peers), func(a, b Peer) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.UID, b.UID))
	})
	rounds := make([][]Peer, len(peers)) // the best of each node, then the second of each, ...
	perNode := map[string]int{}
	for _, p := range ranked {
		rounds[perNode[p.Node]] = append(rounds[perNode[p.Node]], p)
		perNode[p.Node]++
	}
	zones := map[string][]Peer{}
	var order []string
	for _, p := range slices.Concat(rounds...) {
		if len(zones[p.Zone]) == 0 {
			order = append(order, p.Zone)
		}
		zones[p.Zone] = append(zones[p.Zone], p)
	}
	var sample []Peer
	for len(sample) < min(n, len(peers)) {
		for _, z := range order {
			if len(zones[z]) > 0 && len(sample) < n {
				sample = append(sample, zones[z][0])
				zones[z] = zones[z][1:]
			}
		}
	}
	return sample
}

// mix spreads a hash over all its bits (the finaliser of SplitMix64): FNV hashes of inputs that differ only in their
// last bytes are close.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
