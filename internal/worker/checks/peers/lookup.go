package peers

import (
	"context"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// Pages are small, since a thousand new nodes read them at once: an EndpointSlice has up to a hundred endpoints of 300
// to 400 bytes, a pod 5 to 15 KiB.
const (
	slicesPerPage = 2
	podsPerPage   = 10
	// podsPerPeer is how many pods are looked at for each peer that is wanted.
	podsPerPeer = 20
)

// found are the pods that were looked at: no more than it takes to choose from.
type found struct {
	// of says how they were found.
	of string
	// peers are the ready ones on other nodes.
	peers []Peer
	// all of them, and whether one is on another node, ready or not.
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

// lookUp finds the pods, within a quarter of the check's time: the rest is for connections, so that a slow list is not
// taken for peers that do not answer.
func (p neighbours) lookUp(ctx context.Context) (*found, *check.Finding) {
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
			failure.Outcome = check.Inconclusive // it did not last for the check's time, and is no word about peers
		}
		return nil, &failure
	case f.of == "":
		return nil, check.Failure(check.ReasonServiceNotFound, "Service %s/%s does not exist, or has no EndpointSlices",
			p.Namespace, p.Service)
	}
	return f, nil
}

// enough reports whether there are as many peers as are asked for, or so many pods without that many peers among them
// that the rest of the list is not worth its size.
func (p neighbours) enough(f *found) bool {
	wanted := max(p.sample(), int(p.MinPeers))
	return len(f.peers) >= wanted || f.all >= wanted*podsPerPeer
}

// ofService reads the Service's EndpointSlices; what it returns has no "of" if there are none. The EndpointSlice
// controller makes one for a Service without endpoints too (k8s.io/kubernetes staging/src/k8s.io/endpointslice,
// placeholder slice). Of a pod in slices of two families the address in the cluster's first one counts, as in its
// status.podIP.
func (p neighbours) ofService(ctx context.Context) (*found, error) {
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
		return !p.enough(first) && !p.enough(second)
	})
	if err != nil {
		return &found{of: of}, err
	}
	if first.all == 0 {
		return second, nil
	}
	return first, nil
}

func (p neighbours) addSlice(f *found, slice apiserver.EndpointSlice) {
	for _, e := range slice.Endpoints {
		if e.NodeName == "" || len(e.Addresses) == 0 {
			continue // no pod
		}
		peer := Peer{Name: e.Addresses[0], UID: e.Addresses[0], Node: e.NodeName, Zone: e.Zone, IP: e.Addresses[0]}
		if e.TargetRef != nil {
			peer.Name, peer.UID = e.TargetRef.Name, e.TargetRef.UID
		}
		f.add(peer, ptr.Deref(e.Conditions.Ready, true) && ptr.Deref(e.Conditions.Serving, true), p.node)
	}
}

// bySelector reads pods. They say in which zone they are since Kubernetes 1.35; before, the sample is spread over nodes
// alone.
func (p neighbours) bySelector(ctx context.Context) (*found, error) {
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
