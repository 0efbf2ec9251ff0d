package dns

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// The resolvers that can be asked.
const (
	// ResolverPod is every nameserver of resolv.conf, each asked on its own.
	ResolverPod = "pod"
	// ResolverService is the cluster IPs of the DNS Service.
	ResolverService = "service"
	// ResolverEndpoints is every endpoint of the DNS Service, each asked on its own.
	ResolverEndpoints = "endpoints"
)

// DefaultName is what is looked up, in the cluster's domain.
const DefaultName = "kubernetes.default.svc"

// recordAddress asks for A and AAAA records; either will do.
const recordAddress = "address"

// Services are the names that distributions give to the Service in front of the cluster's DNS
// servers: kubeadm and most others, kubespray, RKE2, OpenShift. The worker's Role names them too.
var Services = []string{"kube-system/kube-dns", "kube-system/coredns", "kube-system/rke2-coredns-rke2-coredns", "openshift-dns/dns-default"}

var (
	recordTypes = []string{recordAddress, "A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"}
	rcodes      = []string{"NOERROR", "NXDOMAIN", "REFUSED", "SERVFAIL"}
)

// Settings asks DNS servers for a name.
type Settings struct {
	// Name to look up, through the search domains and ndots of resolv.conf as any program in a
	// pod would; a trailing dot makes it absolute. An IP address is its own answer, and nobody
	// is asked. Default: kubernetes.default.svc in the domain of the cluster that resolv.conf
	// shows, else in cluster.local, absolute.
	Name string `json:"name,omitempty"`
	// RecordType is address (default: A and AAAA, either will do), A, AAAA, CNAME, MX, NS,
	// PTR, SOA, SRV or TXT.
	RecordType string `json:"recordType,omitempty"`
	// Resolver is who is asked: pod (default, each nameserver of resolv.conf on its own),
	// service (the DNS Service's cluster IPs), endpoints (each endpoint of the DNS Service on
	// its own), or an IP address, with a port if it is not 53.
	Resolver string `json:"resolver,omitempty"`
	// Service is the namespace/name of the DNS Service for the resolvers service and
	// endpoints. Default: of kube-system/kube-dns, kube-system/coredns,
	// kube-system/rke2-coredns-rke2-coredns and openshift-dns/dns-default the one whose cluster
	// IP is in resolv.conf, else the first that exists.
	Service string `json:"service,omitempty"`
	// Sample is how many endpoints are asked, at most, with resolver endpoints; which ones differs
	// from node to node. Default 0: all of them.
	Sample int32 `json:"sample,omitempty"`
	// Protocols are udp, tcp or both; each must work. Default udp. An answer truncated over
	// UDP is always asked again over TCP.
	Protocols []string `json:"protocols,omitempty"`
	// ExpectRcode is the response code that passes: NOERROR (default), NXDOMAIN, REFUSED or SERVFAIL.
	ExpectRcode string `json:"expectRcode,omitempty"`
	// ExpectCIDRs, when given, must hold every address in the answer.
	ExpectCIDRs []string `json:"expectCIDRs,omitempty"`
	// MinAnswers is how many records an answer must have. Default 1 with NOERROR, otherwise 0.
	MinAnswers *int32 `json:"minAnswers,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if s == nil {
		return nil
	}
	if _, literal := s.literal(); s.Name != "" && !literal {
		if err := resolver.ValidateName(s.Name); err != nil {
			faults = append(faults, field.Invalid(p.Child("name"), s.Name, err.Error()))
		}
	}
	faults = append(faults, check.OneOf(p.Child("recordType"), s.RecordType, recordTypes)...)
	faults = append(faults, check.OneOf(p.Child("expectRcode"), s.ExpectRcode, rcodes)...)
	switch s.Resolver {
	case "", ResolverPod, ResolverService, ResolverEndpoints:
	default:
		if _, err := resolver.ParseServer(s.Resolver); err != nil {
			faults = append(faults, field.Invalid(p.Child("resolver"), s.Resolver,
				"must be pod, service, endpoints, or an IP address with an optional port"))
		}
	}
	if s.Service != "" {
		if s.Resolver != ResolverService && s.Resolver != ResolverEndpoints {
			faults = append(faults, field.Invalid(p.Child("service"), s.Service, "is only used with resolver: service or endpoints"))
		}
		namespace, name, found := strings.Cut(s.Service, "/")
		if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
			faults = append(faults, field.Invalid(p.Child("service"), s.Service, "must be a Service's namespace/name"))
		}
	}
	faults = append(faults, check.InRange(p.Child("sample"), s.Sample, 0, 100)...)
	if s.Sample > 0 && s.Resolver != ResolverEndpoints {
		faults = append(faults, field.Invalid(p.Child("sample"), s.Sample, "is only used with resolver: endpoints"))
	}
	faults = append(faults, check.SetOf(p.Child("protocols"), s.Protocols, []string{"udp", "tcp"})...)
	for i, cidr := range s.ExpectCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			faults = append(faults, field.Invalid(p.Child("expectCIDRs").Index(i), cidr, "must be a CIDR such as 10.96.0.0/12"))
		}
	}
	if len(s.ExpectCIDRs) > 0 && !slices.Contains([]string{"", recordAddress, "A", "AAAA"}, s.RecordType) {
		faults = append(faults, field.Invalid(p.Child("expectCIDRs"), strings.Join(s.ExpectCIDRs, ","),
			"needs addresses to compare with; set recordType to address, A or AAAA"))
	}
	if s.MinAnswers != nil {
		faults = append(faults, check.InRange(p.Child("minAnswers"), *s.MinAnswers, 0, 1000)...)
		if *s.MinAnswers > 0 && s.ExpectRcode != "" && s.ExpectRcode != "NOERROR" {
			faults = append(faults, field.Invalid(p.Child("minAnswers"), *s.MinAnswers,
				"an answer with response code "+s.ExpectRcode+" has no records; remove it or expect NOERROR"))
		}
	}
	return faults
}

// NeedsAPI reports whether the servers to ask are found through the Kubernetes API.
func (s *Settings) NeedsAPI() bool {
	return s != nil && (s.Resolver == ResolverService || s.Resolver == ResolverEndpoints)
}

// literal is the name if it is an IP address and addresses are what is asked for.
func (s *Settings) literal() (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s.Name)
	return addr, err == nil && addr.Zone() == "" && slices.Contains([]string{"", recordAddress, "A", "AAAA"}, s.RecordType)
}

// ValidateName reports what is wrong with a name to look up, which may be an IP address.
func ValidateName(name string) error {
	if _, literal := (&Settings{Name: name}).literal(); literal {
		return nil
	}
	return resolver.ValidateName(name)
}
