package dns

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/fault"
	"github.com/kube-node-ready/kube-node-ready/internal/check/kubeapi"
	"github.com/kube-node-ready/kube-node-ready/internal/check/resolver"
)

// target is one DNS server.
type target struct {
	ip netip.Addr
	// ports by protocol; a Service may serve UDP and TCP on different ones, or only one.
	ports map[string]uint16
	// name says what the server is, where that is known: a pod's name, a Service's.
	name string
}

func (t target) serves(protocol string) bool { return t.ports[protocol] != 0 }

func (t target) addr(protocol string) netip.AddrPort {
	return netip.AddrPortFrom(t.ip, t.ports[protocol])
}

func (t target) describe(protocol string) string {
	if t.name == "" {
		return t.addr(protocol).String()
	}
	return fmt.Sprintf("%s (%s)", t.addr(protocol), t.name)
}

func fixed(server netip.AddrPort) target {
	return target{ip: server.Addr(), ports: map[string]uint16{resolver.UDP: server.Port(), resolver.TCP: server.Port()}}
}

// targetsOf finds the servers that the settings' resolver stands for.
func targetsOf(ctx context.Context, d check.DNS, config resolver.Config, api *kubeapi.Client) ([]target, *check.Finding) {
	switch d.Resolver {
	case "", check.ResolverPod:
		var targets []target
		for _, server := range config.Servers {
			targets = append(targets, fixed(server))
		}
		if len(targets) == 0 {
			f := check.Fail(check.ReasonNoServers, "resolv.conf names no server")
			return nil, &f
		}
		return targets, nil
	case check.ResolverService:
		return serviceTargets(ctx, d, api)
	case check.ResolverEndpoints:
		return endpointTargets(ctx, d, api)
	}
	server, err := check.ParseServer(d.Resolver)
	if err != nil {
		f := check.Fail(check.ReasonNoServers, "%v", err)
		return nil, &f
	}
	return []target{fixed(server)}, nil
}

// serviceTargets are the DNS Service's cluster IPs.
func serviceTargets(ctx context.Context, d check.DNS, api *kubeapi.Client) ([]target, *check.Finding) {
	namespace, name := kubeapi.SplitName(d.Service)
	service, err := api.Service(ctx, namespace, name)
	if err != nil {
		return nil, apiFailure("Service", d.Service, err)
	}
	ports := map[string]uint16{}
	for _, p := range service.Spec.Ports {
		if protocol := strings.ToLower(p.Protocol); isDNSPort(p.Name, protocol) || p.Port == 53 {
			ports[protocol] = p.Port
		}
	}
	var targets []target
	for _, s := range service.IPs() {
		if ip, err := netip.ParseAddr(s); err == nil {
			targets = append(targets, target{ip: ip, ports: ports, name: "Service " + d.Service})
		}
	}
	if len(targets) == 0 {
		f := check.Fail(check.ReasonNoServers, "Service %s has no cluster IP", d.Service)
		return nil, &f
	}
	return targets, nil
}

// endpointTargets are the ready endpoints of the DNS Service.
func endpointTargets(ctx context.Context, d check.DNS, api *kubeapi.Client) ([]target, *check.Finding) {
	namespace, name := kubeapi.SplitName(d.Service)
	slices, err := api.EndpointSlices(ctx, namespace, name)
	if err != nil {
		return nil, apiFailure("EndpointSlices of Service", d.Service, err)
	}
	var targets []target
	seen := map[netip.Addr]bool{}
	for _, slice := range slices {
		ports := map[string]uint16{}
		for _, p := range slice.Ports {
			if protocol := strings.ToLower(p.Protocol); isDNSPort(p.Name, protocol) || p.Port == 53 {
				ports[protocol] = p.Port
			}
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0]) // the others are the same endpoint's: EndpointSlice consumers use the first
			if err != nil || seen[ip] {
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
		f := check.Fail(check.ReasonNoReadyEndpoints, "Service %s has no ready endpoint", d.Service)
		return nil, &f
	}
	return targets, nil
}

// isDNSPort goes by the port names that the DNS add-ons of Kubernetes use.
func isDNSPort(name, protocol string) bool {
	return name == "dns" && protocol == resolver.UDP || name == "dns-tcp" && protocol == resolver.TCP
}

func apiFailure(what, name string, err error) *check.Finding {
	f := check.Fail(check.ReasonServiceNotFound, "Service %s does not exist", name)
	if !kubeapi.IsNotFound(err) {
		reason, phrase := fault.Classify(err)
		f = check.Fail(reason, "reading %s %s: the API server %s", what, name, phrase)
	}
	return &f
}
