// Package peers is the check type peers: pods on other nodes, in every zone, can be reached.
package peers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/around"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/guard"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/cause"
)

// neighbours is a check with its settings.
type neighbours struct {
	Settings
	node string
	api  *apiserver.Client
}

// New prepares the check. The pods of the worker's own node are no peers.
func (s *Settings) New(pod around.Pod) check.Func {
	p := neighbours{Settings: ptr.Deref(s, Settings{}), node: pod.Node, api: pod.API}
	p.Namespace = cmp.Or(p.Namespace, pod.Namespace, "default")
	return p.run
}

func (p neighbours) run(ctx context.Context) check.Finding {
	if p.node == "" {
		return check.Fail(check.ReasonConfiguration, "NODE_NAME is not set, so that peers cannot be told from this node's own pods")
	}
	pods, err := p.api.Pods(ctx, p.Namespace, p.Selector)
	if err != nil {
		reason, phrase := cause.Of(err)
		return check.Fail(reason, "listing the pods of namespace %s: the API server at %s %s", p.Namespace, p.api.Address(), phrase)
	}
	candidates := p.candidates(ctx, pods)
	if len(candidates) < int(p.MinPeers) {
		return check.Fail(check.ReasonTooFewPeers, "%s on other nodes match %s in namespace %s, expected at least %d",
			check.Count(len(candidates), "ready pod"), p.Selector, p.Namespace, p.MinPeers)
	}
	elsewhere := func(pod apiserver.Pod) bool { return pod.Spec.NodeName != p.node }
	switch {
	case len(candidates) > 0:
	case len(pods) == 0:
		return check.Warn(check.ReasonTooFewPeers, "no running pod in namespace %s matches %s, so there was none to connect to", p.Namespace, p.Selector)
	case slices.ContainsFunc(pods, elsewhere):
		return check.Warn(check.ReasonTooFewPeers, "none of the %s in namespace %s that match %s is ready on another node, so there was none to connect to",
			check.Count(len(pods), "running pod"), p.Namespace, p.Selector)
	default:
		return check.Pass("no ready pod on another node matches %s in namespace %s, so there was none to connect to", p.Selector, p.Namespace)
	}
	return p.judge(connectAll(ctx, Sample(candidates, p.node, int(ptr.Deref(p.Sample, defaultSample))), p.Port))
}

// candidates are the ready pods on other nodes.
func (p neighbours) candidates(ctx context.Context, pods []apiserver.Pod) []Peer {
	var peers []Peer
	zoneless := false
	for _, pod := range pods {
		if !pod.Ready() || pod.Spec.NodeName == p.node {
			continue
		}
		zone := pod.Metadata.Labels[apiserver.ZoneLabel]
		zoneless = zoneless || zone == ""
		peers = append(peers, Peer{Name: pod.Metadata.Name, UID: pod.Metadata.UID, Node: pod.Spec.NodeName, Zone: zone, IP: pod.Status.PodIP})
	}
	if !zoneless {
		return peers
	}
	// Before Kubernetes 1.35 pods do not carry their node's zone. Without permission to list
	// nodes the sample is spread over nodes only.
	if zones, err := p.api.Zones(ctx); err == nil {
		for i := range peers {
			if peers[i].Zone == "" {
				peers[i].Zone = zones[peers[i].Node]
			}
		}
	}
	return peers
}

// attempt is a connection to one peer.
type attempt struct {
	peer    Peer
	finding check.Finding
}

func connectAll(ctx context.Context, sample []Peer, port int32) []attempt {
	attempts := make([]attempt, len(sample))
	guard.Each(len(sample), func(i int) { attempts[i] = attempt{sample[i], connect(ctx, sample[i], port)} })
	return attempts
}

func connect(ctx context.Context, peer Peer, port int32) check.Finding {
	address := net.JoinHostPort(peer.IP, strconv.Itoa(int(port)))
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
		return check.Pass("%s connects", address)
	}
	reason, phrase := cause.Of(err)
	where := "node " + peer.Node
	if peer.Zone != "" {
		where += ", zone " + peer.Zone
	}
	return check.Fail(reason, "%s (%s on %s) %s", address, peer.Name, where, phrase)
}

// judge fails when the share of failures reaches the threshold.
func (p neighbours) judge(attempts []attempt) check.Finding {
	zones := map[string]bool{}
	var failures []string
	for _, a := range attempts {
		zones[a.peer.Zone] = true
		if a.finding.Reason == check.ReasonInterrupted {
			return a.finding
		}
		if !a.finding.Passed() {
			failures = append(failures, a.finding.Message)
		}
	}
	summary := fmt.Sprintf("%d of %s in %s connect", len(attempts)-len(failures), check.Count(len(attempts), "peer"), check.Count(len(zones), "zone"))
	if len(failures) == 0 {
		return check.Pass("%s", summary)
	}
	summary += ": " + strings.Join(failures, "; ")
	if len(failures)*100 < int(ptr.Deref(p.FailPercent, defaultFailPercent))*len(attempts) {
		return check.Pass("%s", summary)
	}
	return check.Fail(check.ReasonPeersUnreachable, "%s", summary)
}
