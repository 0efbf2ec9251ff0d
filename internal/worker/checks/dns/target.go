package dns

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// target is one DNS server.
type target struct {
	ip netip.Addr
	// ports by protocol; a Service may serve UDP and TCP on different ones, or only one.
	ports map[string]uint16
	// name of the server's pod or Service, if known.
	name string
}

func fixed(server netip.AddrPort) target {
	return target{ip: server.Addr(), ports: map[string]uint16{resolver.UDP: server.Port(), resolver.TCP: server.Port()}}
}

// source is where servers are from.
type source struct {
	text string
	// unused describes a resolv.conf without an address of the DNS Service; empty if it has one.
	unused string
	// warns is true if that is a warning in a check that passes.
	warns bool
}

// addTo adds the source to the check's finding.
func (s source) addTo(f check.Finding) check.Finding {
	if s.unused != "" && (s.warns || !f.Passed()) {
		f.Message += "; " + s.unused
		if f.Outcome == check.Passed {
			f.Outcome, f.Reason = check.Warned, check.ReasonDNSServiceUnused
		}
	}
	if s.text != "" {
		f.Message += "; asked: " + s.text
	}
	return f
}

// targetsOf returns the servers of the settings' resolver, and where they are from.
func targetsOf(
	ctx context.Context, d Settings, config resolver.Config, api *apiserver.Client, node string,
) (targets []target, from source, failure *check.Finding) {
	switch d.Resolver {
	case "", ResolverPod:
		for _, server := range config.Servers {
			targets = append(targets, fixed(server))
		}
		if len(targets) == 0 {
			return nil, source{}, check.Failure(check.ReasonNoServers, "%s", config.NoServers())
		}
		return targets, source{}, nil
	case ResolverService, ResolverEndpoints:
		return clusterTargets(ctx, d, config, api, node)
	}
	server, err := resolver.ParseServer(d.Resolver)
	if err != nil {
		return nil, source{}, check.Failure(check.ReasonNoServers, "%v", err)
	}
	return []target{fixed(server)}, source{}, nil
}

// clusterTargets are the DNS Service's cluster IPs, or its ready endpoints.
func clusterTargets(
	ctx context.Context, d Settings, config resolver.Config, api *apiserver.Client, node string,
) (targets []target, from source, failure *check.Finding) {
	name, how := d.Service, ""
	var service apiserver.Service
	var err error
	switch {
	case name == "":
		inUse := func(s apiserver.Service) bool { return isInUse(s, config) }
		if name, service, err = api.FindService(ctx, Services, inUse); err != nil {
			return nil, source{}, notFound(api, name, err)
		}
		how = ", the first known name that exists"
		if inUse(service) {
			how = ", which has the address in resolv.conf"
		}
	case d.Resolver == ResolverService:
		namespace, n := apiserver.SplitName(name)
		if service, err = api.Service(ctx, namespace, n); err != nil {
			return nil, source{}, api.Failure("Service", name, err)
		}
	}
	from.unused = unused(name, service, config)
	from.warns = d.Service == "" && !slices.ContainsFunc(config.Servers, isOfNode)
	if d.Resolver == ResolverService {
		targets, failure = serviceTargets(name, service)
		from.text = "Service " + name + how
	} else {
		targets, failure = endpointTargets(ctx, name, service.Spec.Ports, api)
		from.text = check.Count(len(targets), "endpoint")
		if n := int(d.Sample); 0 < n && n < len(targets) {
			targets, from.text = sample(targets, node, n), fmt.Sprintf("%d of %s", n, from.text)
		}
		from.text += " of Service " + name + how
	}
	if failure != nil && from.unused != "" {
		failure.Message += "; " + from.unused
	}
	return targets, from, failure
}

// unused describes a resolv.conf without an address of the DNS Service. It is empty if the file has one, or if either
// of them has no address.
func unused(name string, service apiserver.Service, config resolver.Config) string {
	if len(config.Servers) == 0 || len(service.Addrs()) == 0 || isInUse(service, config) {
		return ""
	}
	var servers []string
	for _, s := range config.Servers {
		servers = append(servers, s.Addr().String())
	}
	return fmt.Sprintf("resolv.conf names %s, and no address of Service %s (%s)",
		strings.Join(servers, " and "), name, strings.Join(service.IPs(), ", "))
}

// isOfNode reports whether a server may be a cache or a stub resolver of the node, which have link-local or loopback
// addresses. A cache such as NodeLocal DNSCache has a unique local one in IPv6.
func isOfNode(server netip.AddrPort) bool {
	addr := server.Addr()
	return addr.IsLinkLocalUnicast() || addr.IsLoopback() || addr.Is6() && addr.IsPrivate()
}

// sample chooses n targets. The choice depends on the node and is the same at each attempt.
func sample(targets []target, node string, n int) []target {
	rank := func(t target) [sha256.Size]byte { return sha256.Sum256([]byte(node + " " + t.ip.String())) }
	slices.SortFunc(targets, func(a, b target) int {
		x, y := rank(a), rank(b)
		return bytes.Compare(x[:], y[:])
	})
	return targets[:n]
}

// isInUse reports whether resolv.conf has an address of the Service.
func isInUse(s apiserver.Service, config resolver.Config) bool {
	own := s.Addrs()
	return slices.ContainsFunc(config.Servers, func(a netip.AddrPort) bool { return slices.Contains(own, a.Addr()) })
}

// serviceTargets are the DNS Service's cluster IPs.
func serviceTargets(name string, service apiserver.Service) ([]target, *check.Finding) {
	var targets []target
	for _, ip := range service.Addrs() {
		targets = append(targets, target{ip: ip, ports: dnsPorts(service.Spec.Ports, nil), name: "Service " + name})
	}
	if len(targets) == 0 {
		return nil, check.Failure(check.ReasonNoServers, "Service %s has no cluster IP", name)
	}
	return targets, nil
}

// endpointTargets are the ready endpoints of the DNS Service, whose ports may be unknown.
func endpointTargets(
	ctx context.Context, service string, ports []apiserver.ServicePort, api *apiserver.Client,
) ([]target, *check.Finding) {
	namespace, name := apiserver.SplitName(service)
	slices, err := api.EndpointSlices(ctx, namespace, name)
	if err != nil {
		return nil, api.Failure("EndpointSlices of Service", service, err)
	}
	var targets []target
	seen := map[netip.Addr]bool{}
	for _, slice := range slices {
		ports := dnsPorts(slice.Ports, ports)
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			ip, ok := apiserver.ParseAddr(e.Addresses[0]) // consumers of EndpointSlices use the first
			if !ok || seen[ip] {
				continue
			}
			seen[ip] = true
			t := target{ip: ip, ports: ports}
			if e.TargetRef != nil {
				t.name = e.TargetRef.Name
			}
			targets = append(targets, t)
		}
	}
	if len(targets) == 0 {
		return nil, check.Failure(check.ReasonNoReadyEndpoints, "Service %s has no ready endpoint", service)
	}
	return targets, nil
}

// dnsPorts returns the DNS ports by protocol: those with number 53, with the names that the DNS add-ons of Kubernetes
// use, or with the name of a port 53 of the Service, which may be absent. Without such a name, a single UDP port is for
// DNS, and so is the TCP port of the same number.
func dnsPorts(all, service []apiserver.ServicePort) map[string]uint16 {
	ports := map[string]uint16{}
	var udp []uint16
	for _, p := range all {
		protocol := strings.ToLower(p.Protocol)
		named := p.Name == "dns" && protocol == resolver.UDP || p.Name == "dns-tcp" && protocol == resolver.TCP
		ofService := slices.ContainsFunc(service, func(s apiserver.ServicePort) bool {
			return s.Port == 53 && s.Name == p.Name && s.Protocol == p.Protocol
		})
		if named || ofService || p.Port == 53 {
			ports[protocol] = p.Port
		}
		if protocol == resolver.UDP {
			udp = append(udp, p.Port)
		}
	}
	if ports[resolver.UDP] == 0 && len(udp) == 1 {
		ports[resolver.UDP] = udp[0]
	}
	if ports[resolver.TCP] == 0 && slices.ContainsFunc(all, func(p apiserver.ServicePort) bool {
		return strings.EqualFold(p.Protocol, resolver.TCP) && p.Port == ports[resolver.UDP]
	}) {
		ports[resolver.TCP] = ports[resolver.UDP]
	}
	return ports
}

// notFound is the finding if there is no DNS Service with a known name.
func notFound(api *apiserver.Client, name string, err error) *check.Finding {
	f := api.Failure("Service", name, err)
	if f.Reason == check.ReasonServiceNotFound {
		f.Reason = check.ReasonNoDNSService
		f.Message = "there is none of the known Services " + strings.Join(Services, ", ") +
			"; set dns.service to the DNS Service of this cluster"
	}
	return f
}
