// Package catalogue knows how to perform each type of check.
package catalogue

import (
	"net"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/clock"
	"github.com/kube-node-ready/kube-node-ready/internal/check/command"
	"github.com/kube-node-ready/kube-node-ready/internal/check/discovery"
	"github.com/kube-node-ready/kube-node-ready/internal/check/disk"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/check/file"
	"github.com/kube-node-ready/kube-node-ready/internal/check/http"
	"github.com/kube-node-ready/kube-node-ready/internal/check/kubeapi"
	"github.com/kube-node-ready/kube-node-ready/internal/check/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/check/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/check/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/check/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/check/tcp"
)

// Surroundings are what the checks find around them.
type Surroundings struct {
	// Resolver is the pod's own.
	Resolver *resolver.Resolver
	// API is nil when no Kubernetes client could be set up.
	API *kubeapi.Client
	// Node and Namespace are the worker's own.
	Node, Namespace string
	// ServiceHost and ServicePort are KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	ServiceHost, ServicePort string
}

// entry is what the catalogue knows of one type.
type entry struct {
	// probe makes the type's probe.
	probe func(check.Spec, Surroundings) check.Probe
	// needsAPI says whether a check needs the Kubernetes client.
	needsAPI func(check.Spec) bool
}

func always(check.Spec) bool { return true }
func never(check.Spec) bool  { return false }

var entries = map[check.Type]entry{
	check.TypeDNS: {
		probe:    func(s check.Spec, x Surroundings) check.Probe { return dns.New(s.DNS, x.Resolver, x.API, x.Node) },
		needsAPI: func(s check.Spec) bool { return s.DNS.NeedsAPI() },
	},
	check.TypeKubernetesAPI: {
		probe:    func(s check.Spec, x Surroundings) check.Probe { return kubernetesapi.New(s.KubernetesAPI, x.API) },
		needsAPI: always,
	},
	check.TypeTCP: {
		probe: func(s check.Spec, x Surroundings) check.Probe {
			return tcp.New(s.TCP, x.Resolver, x.address())
		},
		needsAPI: never,
	},
	check.TypeHTTP: {
		probe:    func(s check.Spec, x Surroundings) check.Probe { return http.New(s.HTTP, x.Resolver) },
		needsAPI: never,
	},
	check.TypeServiceDiscovery: {
		probe: func(s check.Spec, x Surroundings) check.Probe {
			return discovery.New(s.ServiceDiscovery, x.Resolver, x.API)
		},
		needsAPI: always,
	},
	check.TypePeers: {
		probe: func(s check.Spec, x Surroundings) check.Probe {
			return peers.New(s.Peers, x.API, x.Node, x.Namespace)
		},
		needsAPI: always,
	},
	check.TypeMTU: {
		probe:    func(s check.Spec, x Surroundings) check.Probe { return mtu.New(s.MTU, x.Resolver, x.address()) },
		needsAPI: never,
	},
	check.TypeClock: {
		probe:    func(s check.Spec, x Surroundings) check.Probe { return clock.New(s.Clock, x.API) },
		needsAPI: always,
	},
	check.TypeFile: {
		probe:    func(s check.Spec, _ Surroundings) check.Probe { return file.New(s.File) },
		needsAPI: never,
	},
	check.TypeDisk: {
		probe:    func(s check.Spec, _ Surroundings) check.Probe { return disk.New(s.Disk) },
		needsAPI: never,
	},
	check.TypeExec: {
		probe:    func(s check.Spec, _ Surroundings) check.Probe { return command.New(s.Exec) },
		needsAPI: never,
	},
}

// address is the Kubernetes Service's, empty outside a pod.
func (x Surroundings) address() string {
	if x.ServiceHost == "" || x.ServicePort == "" {
		return ""
	}
	return net.JoinHostPort(x.ServiceHost, x.ServicePort)
}

// Probe makes the probe of a validated check. A check that NeedsAPI must not be performed
// without Surroundings.API.
func Probe(s check.Spec, x Surroundings) check.Probe { return entries[s.Type].probe(s, x) }

// NeedsAPI says whether the check calls the Kubernetes API.
func NeedsAPI(s check.Spec) bool { return entries[s.Type].needsAPI(s) }
