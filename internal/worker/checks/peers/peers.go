// Package peers is the check type peers: pods on other nodes, in every zone, can be reached.
package peers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/probe"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// neighbours is a check with its settings.
type neighbours struct {
	Settings
	node string
	api  *apiserver.Client
	// ipv6 is the cluster's first family, in which a pod of two is connected to.
	ipv6 bool
}

// New prepares the check. The pods of the worker's own node are no peers.
func (s *Settings) New(pod environment.Pod) check.Func {
	p := neighbours{Settings: ptr.Deref(s, Settings{}), node: pod.Node, api: pod.API,
		ipv6: strings.Contains(pod.ServiceHost, ":")}
	p.Namespace = cmp.Or(p.Namespace, pod.Namespace, "default")
	return p.run
}

func (p neighbours) run(ctx context.Context) check.Finding {
	if p.node == "" {
		return check.Fail(check.ReasonConfiguration, "NODE_NAME is not set, so that peers cannot be told from this node's own pods")
	}
	found, failure := p.lookUp(ctx)
	if failure != nil {
		return *failure
	}
	switch {
	case len(found.peers) < int(p.MinPeers):
		return check.Fail(check.ReasonTooFewPeers, "found %s on other nodes (%s), expected at least %d",
			check.Count(len(found.peers), "ready pod"), found.of, p.MinPeers)
	case len(found.peers) > 0:
		return p.judge(p.connectAll(ctx, Sample(found.peers, p.node, p.sample())))
	case found.all == 0:
		return check.Warn(check.ReasonTooFewPeers, "found no running pod (%s), so there was none to connect to", found.of)
	case found.elsewhere:
		return check.Warn(check.ReasonTooFewPeers,
			"none of the %s (%s) is ready on another node, so there was none to connect to",
			check.Count(found.all, "pod"), found.of)
	}
	return check.Pass("no ready pod is on another node (%s), so there was none to connect to", found.of)
}

func (p neighbours) sample() int { return int(ptr.Deref(p.Sample, defaultSample)) }

// attempt is a connection to one peer.
type attempt struct {
	peer    Peer
	finding check.Finding
}

// stragglers is how long peers that do not connect are tried once so many do that the check passes.
const stragglers = time.Second

// connectAll connects to every peer of the sample, and tries those again that do not connect, until enough do.
func (p neighbours) connectAll(ctx context.Context, sample []Peer) []attempt {
	enough, cancel := context.WithCancel(ctx)
	defer cancel()
	attempts := make([]attempt, len(sample))
	var failing atomic.Int32
	failing.Store(int32(len(sample)))
	recovery.Each(len(sample), func(i int) {
		began := time.Now()
		f := retry.Finding(enough, retry.Lost, func(ctx context.Context) check.Finding {
			return connect(ctx, sample[i], p.Port)
		})
		if f.Reason == check.ReasonInterrupted && ctx.Err() == nil {
			took := time.Since(began).Round(time.Millisecond)
			f = check.Fail(check.ReasonTimeout, "%s did not answer within %s", describe(sample[i], p.Port), took)
		}
		attempts[i] = attempt{sample[i], f}
		if f.Passed() && !p.tooMany(int(failing.Add(-1)), len(sample)) {
			time.AfterFunc(stragglers, cancel)
		}
	})
	return attempts
}

// tooMany reports whether so many failures of a sample reach the share at which the check fails.
func (p neighbours) tooMany(failures, sample int) bool {
	return failures*100 >= int(ptr.Deref(p.FailPercent, defaultFailPercent))*sample
}

func connect(ctx context.Context, peer Peer, port int32) check.Finding {
	address := net.JoinHostPort(peer.IP, strconv.Itoa(int(port)))
	if _, err := probe.Connect(ctx, address); err != nil {
		reason, phrase := neterror.Of(err)
		return check.Fail(reason, "%s %s", describe(peer, port), phrase)
	}
	return check.Pass("%s connects", address)
}

func describe(peer Peer, port int32) string {
	where := "node " + peer.Node
	if peer.Zone != "" {
		where += ", zone " + peer.Zone
	}
	return fmt.Sprintf("%s (%s on %s)", net.JoinHostPort(peer.IP, strconv.Itoa(int(port))), peer.Name, where)
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
	if !p.tooMany(len(failures), len(attempts)) {
		return check.Warn(check.ReasonPeersUnreachable, "%s", summary)
	}
	return check.Fail(check.ReasonPeersUnreachable, "%s", summary)
}
