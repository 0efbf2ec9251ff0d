// Package servicediscovery is the check type serviceDiscovery: a Service exists, has ready endpoints, and DNS agrees
// with the API about it.
package servicediscovery

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// Settings reads a Service and compares it with DNS.
type Settings struct {
	// Namespace of the Service. Default default.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Service to check. Default kubernetes.
	Service string `json:"service,omitempty" format:"dns-1035-label"`
	// MinReadyEndpoints in the Service's EndpointSlices. Default 1, or 0 for a Service of type ExternalName, which has
	// none.
	MinReadyEndpoints *int32 `json:"minReadyEndpoints,omitempty" minimum:"0"`
	// ClusterDomain of the Service's DNS name. Default: the cluster domain that the search domains in resolv.conf show, or
	// else cluster.local.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// SRV lists port names whose SRV record (_port._protocol.service...) must resolve.
	SRV []string `json:"srv,omitempty" format:"port-name"`
}

// Validate checks the rules that tags cannot express.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Namespace != "" && s.Service == "" {
		errs = append(errs, field.Required(p.Child("service"), "name the Service in namespace "+s.Namespace))
	}
	if s.ClusterDomain != "" {
		if err := resolver.ValidateName(s.ClusterDomain); err != nil {
			errs = append(errs, field.Invalid(p.Child("clusterDomain"), s.ClusterDomain, err.Error()))
		}
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }

// serviceCheck is a check with its settings.
type serviceCheck struct {
	Settings
	resolver *resolver.Resolver
	api      *apiserver.Client
}

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	p := serviceCheck{Settings: ptr.Deref(s, Settings{}), resolver: pod.Resolver, api: pod.API}
	p.Namespace, p.Service = cmp.Or(p.Namespace, "default"), cmp.Or(p.Service, "kubernetes")
	p.ClusterDomain = cmp.Or(strings.TrimSuffix(p.ClusterDomain, "."), pod.Resolver.Config.ClusterDomain())
	return p.run
}

func (p serviceCheck) run(ctx context.Context) check.Finding {
	service, endpoints, failure := p.read(ctx)
	if failure != nil {
		return *failure
	}
	least := int32(1)
	if service.ExternalName() {
		least = 0
	}
	if least = ptr.Deref(p.MinReadyEndpoints, least); endpoints.ready < int(least) {
		return check.Fail(check.ReasonNoReadyEndpoints, "Service %s has %s of %d, expected at least %d",
			p.full(), check.Count(endpoints.ready, "ready endpoint"), endpoints.all, least)
	}
	lost, failure := p.compare(ctx, service, endpoints)
	if failure != nil {
		return *failure
	}
	for _, port := range p.SRV {
		if f := p.lookUpSRV(ctx, service, port); f != nil {
			return *f
		}
	}
	ready := check.Count(endpoints.ready, "ready endpoint")
	f := check.Pass("Service %s has %s, and DNS agrees with it", p.full(), ready)
	if service.ExternalName() {
		f = check.Pass("Service %s is an alias of %s, and DNS resolves it", p.full(), service.Spec.ExternalName)
	}
	for _, n := range lost {
		f.Outcome, f.Reason = check.Warned, n.Reason
		f.Message += "; " + n.String()
	}
	return f
}

func (p serviceCheck) full() string { return p.Namespace + "/" + p.Service }

func (p serviceCheck) name() string {
	return p.Service + "." + p.Namespace + ".svc." + p.ClusterDomain + "."
}

// read reads the Service and its slices concurrently.
func (p serviceCheck) read(ctx context.Context) (apiserver.Service, endpoints, *check.Finding) {
	var (
		service        apiserver.Service
		list           []apiserver.EndpointSlice
		err, slicesErr error
	)
	recovery.Each(2, func(i int) {
		if i == 0 {
			service, err = p.api.Service(ctx, p.Namespace, p.Service)
		} else {
			list, slicesErr = p.api.EndpointSlices(ctx, p.Namespace, p.Service)
		}
	})
	switch {
	case err != nil:
		return service, endpoints{}, p.api.Failure("Service", p.full(), err)
	case slicesErr != nil:
		return service, endpoints{}, p.api.Failure("EndpointSlices of Service", p.full(), slicesErr)
	}
	return service, endpointsOf(list), nil
}

// compare compares the Service with the DNS answers for its name, in the Service's families only, since DNS64 may
// synthesise others. It notes a family without an answer if another has one.
func (p serviceCheck) compare(
	ctx context.Context, service apiserver.Service, e endpoints,
) ([]resolver.Note, *check.Finding) {
	want := service.Addrs()
	own := want
	if service.Headless() {
		own = e.addresses
	}
	answer, f := p.lookUp(ctx, p.name(), typesOf(own)...)
	if f != nil || service.ExternalName() {
		return answer.Notes, f
	}
	answered := answer.Addrs()
	if service.Headless() {
		return answer.Notes, p.compareEndpoints(answered, e)
	}
	for _, lost := range answer.Notes {
		want = slices.DeleteFunc(want, func(a netip.Addr) bool { return typeOf(a) == lost.Qtype })
	}
	slices.SortFunc(want, netip.Addr.Compare)
	slices.SortFunc(answered, netip.Addr.Compare)
	if !slices.Equal(slices.Compact(want), slices.Compact(answered)) {
		f := check.Fail(check.ReasonServiceDNSMismatch, "DNS answers %s for %s, but the Service's cluster IPs are %s",
			list(answered), p.name(), strings.Join(service.IPs(), ", "))
		for _, n := range answer.Notes {
			f.Message += "; " + n.String()
		}
		return nil, &f
	}
	return answer.Notes, nil
}

// typesOf are the record types of the addresses' families; without addresses, of both.
func typesOf(addrs []netip.Addr) []uint16 {
	var types []uint16
	for _, t := range []uint16{mdns.TypeA, mdns.TypeAAAA} {
		if len(addrs) == 0 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return typeOf(a) == t }) {
			types = append(types, t)
		}
	}
	return types
}

func typeOf(a netip.Addr) uint16 {
	if a.Is4() {
		return mdns.TypeA
	}
	return mdns.TypeAAAA
}

// compareEndpoints compares the endpoints of a headless Service with DNS. DNS may answer only some of many, those of a
// moment ago, and those that are not ready if the Service publishes them. One that they have in common is enough.
func (p serviceCheck) compareEndpoints(answered []netip.Addr, e endpoints) *check.Finding {
	if slices.ContainsFunc(answered, func(a netip.Addr) bool { return slices.Contains(e.addresses, a) }) {
		return nil
	}
	return check.Failure(check.ReasonServiceDNSMismatch, "DNS answers %s for %s, but the Service's endpoints are %s",
		list(answered), p.name(), list(e.addresses))
}

// lookUp queries DNS, without /etc/hosts.
func (p serviceCheck) lookUp(ctx context.Context, name string, types ...uint16) (resolver.Answer, *check.Finding) {
	var answer resolver.Answer
	f := retry.Finding(ctx, 0, func(ctx context.Context) check.Finding {
		var err error
		if answer, err = p.resolver.Query(ctx, name, types...); err != nil {
			reason, phrase := neterror.Of(err)
			return check.Fail(reason, "Service %s: %s", p.full(), phrase)
		}
		return check.Pass("")
	})
	if !f.Passed() {
		return answer, &f
	}
	return answer, nil
}

// lookUpSRV resolves the SRV record of a port and compares the port number.
func (p serviceCheck) lookUpSRV(ctx context.Context, service apiserver.Service, port string) *check.Finding {
	i := slices.IndexFunc(service.Spec.Ports, func(s apiserver.ServicePort) bool { return s.Name == port })
	if i < 0 {
		return check.Failure(check.ReasonServiceNotFound, "Service %s has no port named %s", p.full(), port)
	}
	protocol := strings.ToLower(service.Spec.Ports[i].Protocol)
	name := fmt.Sprintf("_%s._%s.%s", port, protocol, p.name())
	answer, f := p.lookUp(ctx, name, mdns.TypeSRV)
	if f != nil {
		return f
	}
	var ports []string
	for _, rr := range answer.Records {
		srv, ok := rr.(*mdns.SRV)
		if ok && (service.Headless() || srv.Port == service.Spec.Ports[i].Port) {
			return nil
		}
		if ok {
			ports = append(ports, fmt.Sprint(srv.Port))
		}
	}
	return check.Failure(check.ReasonServiceDNSMismatch, "DNS answers port %s for %s, but the Service's is %d",
		strings.Join(ports, ", "), name, service.Spec.Ports[i].Port)
}

func list(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "none"
	}
	const most = 8
	var s []string
	for _, a := range addrs[:min(len(addrs), most)] {
		s = append(s, a.String())
	}
	if len(addrs) > most {
		s = append(s, fmt.Sprintf("and %d more", len(addrs)-most))
	}
	return strings.Join(s, ", ")
}

// endpoints of a Service, over all its slices.
type endpoints struct {
	// addresses of all endpoints, in every family.
	addresses []netip.Addr
	// all and ready count an endpoint once, although each family has a slice with it.
	all, ready int
}

// endpointsOf counts each pod once. The addresses of other endpoints cannot be matched across families, so it counts
// the family with more of them.
func endpointsOf(slices []apiserver.EndpointSlice) endpoints {
	var e endpoints
	known := map[string]map[string]bool{} // ready, by family (empty for pods) and by identity
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			if len(endpoint.Addresses) == 0 {
				continue
			}
			// Consumers of EndpointSlices use an endpoint's first address.
			addr, ok := apiserver.ParseAddr(endpoint.Addresses[0])
			if !ok {
				continue
			}
			e.addresses = append(e.addresses, addr)
			family, id := slice.AddressType, addr.String()
			if ref := endpoint.TargetRef; ref != nil {
				family, id = "", ref.Kind+"/"+ref.Namespace+"/"+ref.Name
			}
			if known[family] == nil {
				known[family] = map[string]bool{}
			}
			known[family][id] = known[family][id] || endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
		}
	}
	var all, ready int
	for family, ids := range known {
		n := 0
		for _, isReady := range ids {
			if isReady {
				n++
			}
		}
		if family == "" {
			e.all, e.ready = e.all+len(ids), e.ready+n
			continue
		}
		all, ready = max(all, len(ids)), max(ready, n)
	}
	e.all, e.ready = e.all+all, e.ready+ready
	return e
}
