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

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

const (
	defaultSample      = 5
	defaultFailPercent = 50
)

// Settings connects to pods on other nodes, chosen across nodes and zones.
type Settings struct {
	// Namespace of the pods. Default: the worker's own.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Service in that namespace that selects the pods. The check reads its EndpointSlices, which are small and contain
	// each pod's node and zone.
	Service string `json:"service,omitempty" format:"dns-1035-label"`
	// Selector is a label selector of the pods, such as app=web,tier!=cache. With service too, it is for clusters without
	// that Service. The check reads ten pods at a time, until there are enough, so it chooses from the first pods by name.
	Selector string `json:"selector,omitempty"`
	// Port that the pods listen on, with TCP.
	Port int32 `json:"port" required:"the TCP port that the pods listen on" minimum:"1" maximum:"65535"`
	// Sample is how many pods are connected to, at most. Default 5.
	Sample *int32 `json:"sample,omitempty" minimum:"1" maximum:"100"`
	// FailPercent is the share of the sample that must fail for the check to fail. Default 50.
	FailPercent *int32 `json:"failPercent,omitempty" minimum:"1" maximum:"100"`
	// MinPeers is how many ready pods there must be on other nodes. With fewer, the check is inconclusive. Default 0: the
	// first node of a cluster has no peers, and passes. A selector that matches nothing is a warning.
	MinPeers int32 `json:"minPeers,omitempty" minimum:"0" maximum:"10000"`
}

// Validate checks the rules that tags cannot express.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s.Selector == "" && s.Service == "" {
		return field.ErrorList{field.Required(p.Child("service"),
			"the Service of the pods, or as selector a label selector such as app=web")}
	}
	if _, err := labels.Parse(s.Selector); err != nil {
		return field.ErrorList{field.Invalid(p.Child("selector"), s.Selector, "is not a label selector: "+err.Error())}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }

// peersCheck is a check with its settings.
type peersCheck struct {
	Settings
	node string
	api  *apiserver.Client
	// ipv6 reports whether IPv6 is the cluster's first family, which is used for pods with both.
	ipv6 bool
}

// New prepares the check. The pods of the worker's own node are no peers.
func (s *Settings) New(pod environment.Pod) check.Func {
	p := peersCheck{Settings: ptr.Deref(s, Settings{}), node: pod.Node, api: pod.API,
		ipv6: strings.Contains(pod.ServiceHost, ":")}
	p.Namespace = cmp.Or(p.Namespace, pod.Namespace, "default")
	return p.run
}

func (p peersCheck) run(ctx context.Context) check.Finding {
	if p.node == "" {
		return check.Fail(check.ReasonConfiguration,
			"NODE_NAME is not set, so the check cannot tell peers from the pods of this node")
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
		sample := Sample(found.peers, p.node, p.sample())
		return p.evaluate(sample, p.connectAll(ctx, sample))
	case found.all == 0:
		return check.Warn(check.ReasonTooFewPeers, "found no running pod (%s), so there was none to connect to", found.of)
	case found.elsewhere:
		return check.Warn(check.ReasonTooFewPeers,
			"none of the %s (%s) is ready on another node, so there was none to connect to",
			check.Count(found.all, "pod"), found.of)
	}
	return check.Pass("no ready pod is on another node (%s), so there was none to connect to", found.of)
}

func (p peersCheck) sample() int { return int(ptr.Deref(p.Sample, defaultSample)) }

// extraTime is how long peers are still tried after enough others have connected for the check to pass.
const extraTime = time.Second

// connectAll connects to every peer of the sample, and returns a finding for each. It retries those that do not connect
// until enough do.
func (p peersCheck) connectAll(ctx context.Context, sample []Peer) []check.Finding {
	enough, cancel := context.WithCancel(ctx)
	defer cancel()
	findings := make([]check.Finding, len(sample))
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
		findings[i] = f
		if f.Passed() && !p.tooMany(int(failing.Add(-1)), len(sample)) {
			time.AfterFunc(extraTime, cancel)
		}
	})
	return findings
}

// tooMany reports whether the failures of a sample reach the share at which the check fails.
func (p peersCheck) tooMany(failures, sample int) bool {
	return failures*100 >= int(ptr.Deref(p.FailPercent, defaultFailPercent))*sample
}

func connect(ctx context.Context, peer Peer, port int32) check.Finding {
	address := net.JoinHostPort(peer.IP, strconv.Itoa(int(port)))
	if _, err := tcp.Connect(ctx, address); err != nil {
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

// evaluate fails if the share of failures reaches the threshold.
func (p peersCheck) evaluate(sample []Peer, findings []check.Finding) check.Finding {
	zones := map[string]bool{}
	var failures []string
	for i, f := range findings {
		zones[sample[i].Zone] = true
		if f.Reason == check.ReasonInterrupted {
			return f
		}
		if !f.Passed() {
			failures = append(failures, f.Message)
		}
	}
	summary := fmt.Sprintf("%d of %s in %s connect", len(sample)-len(failures),
		check.Count(len(sample), "peer"), check.Count(len(zones), "zone"))
	if len(failures) == 0 {
		return check.Pass("%s", summary)
	}
	summary += ": " + strings.Join(failures, "; ")
	if !p.tooMany(len(failures), len(sample)) {
		return check.Warn(check.ReasonPeersUnreachable, "%s", summary)
	}
	return check.Fail(check.ReasonPeersUnreachable, "%s", summary)
}
