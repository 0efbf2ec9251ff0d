package dns

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// The resolvers. Each server of one is queried separately.
const (
	// ResolverPod is every nameserver of resolv.conf.
	ResolverPod = "pod"
	// ResolverService is the cluster IPs of the DNS Service.
	ResolverService = "service"
	// ResolverEndpoints is every endpoint of the DNS Service.
	ResolverEndpoints = "endpoints"
)

// DefaultName is the name to look up, in the cluster's domain.
const DefaultName = "kubernetes.default.svc"

// recordAddress queries A and AAAA records, of which one is enough.
const recordAddress = "address"

// noError is the default response code.
const noError = "NOERROR"

// addressTypes are the record types whose answers are addresses.
var addressTypes = []string{"", recordAddress, "A", "AAAA"}

// Services are the DNS Services of kubeadm and most others, kubespray, RKE2 and OpenShift. The worker's Role has them
// too.
var Services = []string{"kube-system/kube-dns", "kube-system/coredns", "kube-system/rke2-coredns-rke2-coredns",
	"openshift-dns/dns-default"}

// Settings queries DNS servers for a name.
type Settings struct {
	// Name to look up, with the search domains and ndots of resolv.conf, as for any program in a pod. A trailing dot makes
	// the name absolute. An IP address passes without a query. Default: kubernetes.default.svc in the cluster domain that
	// resolv.conf shows, or else in cluster.local, as an absolute name.
	Name string `json:"name,omitempty"`
	// RecordType of the query. address means A and AAAA, of which one is enough. Default address.
	RecordType string `json:"recordType,omitempty" enum:"address A AAAA CNAME MX NS PTR SOA SRV TXT"`
	// Resolver is the servers to query, each separately. pod means the nameservers of resolv.conf, service the cluster IPs
	// of the DNS Service, and endpoints its endpoints. An IP address, with a port if it is not 53, means that server.
	// Default pod.
	Resolver string `json:"resolver,omitempty"`
	// Service is the namespace/name of the DNS Service for the resolvers service and endpoints. Default: one of
	// kube-system/kube-dns, kube-system/coredns, kube-system/rke2-coredns-rke2-coredns and openshift-dns/dns-default,
	// namely the one whose cluster IP is in resolv.conf, or else the first that exists.
	Service string `json:"service,omitempty"`
	// Sample is how many endpoints are queried, at most, with resolver endpoints. Different nodes query different
	// endpoints. Default 0: all of them.
	Sample int32 `json:"sample,omitempty" minimum:"0" maximum:"100"`
	// Protocols are udp, tcp or both; each must work. Default udp. A query whose answer is truncated over UDP is always
	// repeated over TCP. If resolv.conf has the option use-vc, the protocol is tcp, except for an IP address with
	// protocols of its own.
	Protocols []string `json:"protocols,omitempty" enum:"udp tcp"`
	// ExpectRcode is the response code that passes. Default NOERROR.
	ExpectRcode string `json:"expectRcode,omitempty" enum:"NOERROR NXDOMAIN REFUSED SERVFAIL"`
	// ExpectCIDRs, if set, must contain every address in the answer that is of an IP family in the list, and at least one
	// must be.
	ExpectCIDRs []string `json:"expectCIDRs,omitempty"`
	// MinAnswers is how many records an answer must have. Default 1 with NOERROR, otherwise 0.
	MinAnswers *int32 `json:"minAnswers,omitempty" minimum:"0" maximum:"1000"`
}

// Validate checks the rules that tags cannot express.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, literal := s.literal(); s.Name != "" && !literal {
		if err := resolver.ValidateName(s.Name); err != nil {
			errs = append(errs, field.Invalid(p.Child("name"), s.Name, err.Error()))
		}
	}
	switch s.Resolver {
	case "", ResolverPod, ResolverService, ResolverEndpoints:
	default:
		if _, err := resolver.ParseServer(s.Resolver); err != nil {
			errs = append(errs, field.Invalid(p.Child("resolver"), s.Resolver,
				"must be pod, service, endpoints, or an IP address with an optional port"))
		}
	}
	if s.Service != "" {
		if s.Resolver != ResolverService && s.Resolver != ResolverEndpoints {
			errs = append(errs, field.Invalid(p.Child("service"), s.Service,
				"is only used with resolver: service or endpoints"))
		}
		namespace, name, found := strings.Cut(s.Service, "/")
		if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
			errs = append(errs, field.Invalid(p.Child("service"), s.Service, "must be a Service's namespace/name"))
		}
	}
	if s.Sample > 0 && s.Resolver != ResolverEndpoints {
		errs = append(errs, field.Invalid(p.Child("sample"), s.Sample, "is only used with resolver: endpoints"))
	}
	for i, cidr := range s.ExpectCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			errs = append(errs, field.Invalid(p.Child("expectCIDRs").Index(i), cidr, "must be a CIDR such as 10.96.0.0/12"))
		}
	}
	if len(s.ExpectCIDRs) > 0 && !slices.Contains(addressTypes, s.RecordType) {
		errs = append(errs, field.Invalid(p.Child("expectCIDRs"), strings.Join(s.ExpectCIDRs, ","),
			"needs addresses to compare with; set recordType to address, A or AAAA"))
	}
	if n := ptr.Deref(s.MinAnswers, 0); n > 0 && s.ExpectRcode != "" && s.ExpectRcode != noError {
		errs = append(errs, field.Invalid(p.Child("minAnswers"), n,
			"an answer with response code "+s.ExpectRcode+" has no records; remove it or expect NOERROR"))
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is needed to find the servers.
func (s *Settings) NeedsAPI() bool {
	return s != nil && (s.Resolver == ResolverService || s.Resolver == ResolverEndpoints)
}

// usesPod reports whether the servers are those of resolv.conf.
func (s *Settings) usesPod() bool { return s.Resolver == "" || s.Resolver == ResolverPod }

// literal returns the name if it is an IP address and the record type is one of addresses.
func (s *Settings) literal() (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s.Name)
	return addr, err == nil && addr.Zone() == "" && slices.Contains(addressTypes, s.RecordType)
}

// ValidateName validates a name to look up, which may be an IP address.
func ValidateName(name string) error {
	if _, literal := (&Settings{Name: name}).literal(); literal {
		return nil
	}
	return resolver.ValidateName(name)
}
