package check

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RecordTypes that a DNS check can ask for.
var RecordTypes = []string{RecordAddress, "A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"}

// Rcodes that a DNS check can expect.
var Rcodes = []string{"NOERROR", "NXDOMAIN", "REFUSED", "SERVFAIL"}

// labelForm is what servers accept in names: letters, digits, hyphens and the underscore of SRV names.
var labelForm = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?$`)

func (d *DNS) validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if d == nil {
		return nil
	}
	if _, literal := d.Literal(); d.Name != "" && !literal {
		if fault := DNSNameFault(d.Name); fault != "" {
			faults = append(faults, field.Invalid(p.Child("name"), d.Name, fault))
		}
	}
	faults = append(faults, oneOf(p.Child("recordType"), d.RecordType, RecordTypes)...)
	faults = append(faults, oneOf(p.Child("expectRcode"), d.ExpectRcode, Rcodes)...)
	switch d.Resolver {
	case "", ResolverPod, ResolverService, ResolverEndpoints:
	default:
		if _, err := ParseServer(d.Resolver); err != nil {
			faults = append(faults, field.Invalid(p.Child("resolver"), d.Resolver,
				"must be pod, service, endpoints, or an IP address with an optional port"))
		}
	}
	if d.Service != "" {
		if d.Resolver != ResolverService && d.Resolver != ResolverEndpoints {
			faults = append(faults, field.Invalid(p.Child("service"), d.Service, "is only used with resolver: service or endpoints"))
		}
		namespace, name, found := strings.Cut(d.Service, "/")
		if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
			faults = append(faults, field.Invalid(p.Child("service"), d.Service, "must be a Service's namespace/name"))
		}
	}
	faults = append(faults, inRange(p.Child("sample"), d.Sample, 0, 100)...)
	if d.Sample > 0 && d.Resolver != ResolverEndpoints {
		faults = append(faults, field.Invalid(p.Child("sample"), d.Sample, "is only used with resolver: endpoints"))
	}
	faults = append(faults, setOf(p.Child("protocols"), d.Protocols, []string{"udp", "tcp"})...)
	for i, cidr := range d.ExpectCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			faults = append(faults, field.Invalid(p.Child("expectCIDRs").Index(i), cidr, "must be a CIDR such as 10.96.0.0/12"))
		}
	}
	if len(d.ExpectCIDRs) > 0 && !slices.Contains([]string{"", RecordAddress, "A", "AAAA"}, d.RecordType) {
		faults = append(faults, field.Invalid(p.Child("expectCIDRs"), strings.Join(d.ExpectCIDRs, ","),
			"needs addresses to compare with; set recordType to address, A or AAAA"))
	}
	if d.MinAnswers != nil {
		faults = append(faults, inRange(p.Child("minAnswers"), *d.MinAnswers, 0, 1000)...)
		if *d.MinAnswers > 0 && d.ExpectRcode != "" && d.ExpectRcode != "NOERROR" {
			faults = append(faults, field.Invalid(p.Child("minAnswers"), *d.MinAnswers,
				"an answer with response code "+d.ExpectRcode+" has no records; remove it or expect NOERROR"))
		}
	}
	return faults
}

func (k *KubernetesAPI) validate(p *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	faults := oneOf(p.Child("path"), k.Path, []string{"/readyz", "/livez", "/version"})
	return append(faults, setOf(p.Child("via"), k.Via, []string{ViaAddress, ViaDNS})...)
}

func (t *TCP) validate(p *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	var faults field.ErrorList
	for i, a := range t.Addresses {
		if err := validateHostPort(a); err != nil {
			faults = append(faults, field.Invalid(p.Child("addresses").Index(i), a, err.Error()))
		}
	}
	if len(t.Addresses) == 0 && t.KubernetesService != nil && !*t.KubernetesService {
		faults = append(faults, field.Required(p.Child("addresses"), "with kubernetesService: false there is nothing to connect to"))
	}
	faults = append(faults, oneOf(p.Child("expect"), t.Expect, []string{ExpectOpen, ExpectClosed})...)
	return append(faults, setOf(p.Child("ipFamilies"), t.IPFamilies, []IPFamily{IPv4, IPv6})...)
}

func (s *ServiceDiscovery) validate(p *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var faults field.ErrorList
	faults = append(faults, k8sName(p.Child("namespace"), s.Namespace, validation.IsDNS1123Label)...)
	faults = append(faults, k8sName(p.Child("service"), s.Service, validation.IsDNS1035Label)...)
	if s.Namespace != "" && s.Service == "" {
		faults = append(faults, field.Required(p.Child("service"), "name the Service in namespace "+s.Namespace))
	}
	if s.MinReadyEndpoints != nil {
		faults = append(faults, inRange(p.Child("minReadyEndpoints"), *s.MinReadyEndpoints, 0, math.MaxInt32)...)
	}
	if s.ClusterDomain != "" {
		if fault := DNSNameFault(s.ClusterDomain); fault != "" {
			faults = append(faults, field.Invalid(p.Child("clusterDomain"), s.ClusterDomain, fault))
		}
	}
	for i, name := range s.SRV {
		if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
			faults = append(faults, field.Invalid(p.Child("srv").Index(i), name, "must be the name of one of the Service's ports"))
		}
	}
	return faults
}

// AddressOrNameFault is DNSNameFault for a host, which may be an IP address.
func AddressOrNameFault(host string) string {
	if _, literal := (&DNS{Name: host}).Literal(); literal {
		return ""
	}
	return DNSNameFault(host)
}

// DNSNameFault says what is wrong with a name to look up; it is empty for a good one. The
// lengths are those of RFC 1035, section 2.3.4.
func DNSNameFault(name string) string {
	trimmed := strings.TrimSuffix(name, ".")
	if trimmed == "" {
		return "must not be empty"
	}
	if len(trimmed) > 253 {
		return "must be at most 253 characters"
	}
	for _, label := range strings.Split(trimmed, ".") {
		switch {
		case label == "":
			return "must not have an empty label (two dots in a row, or a dot at the start)"
		case len(label) > 63:
			return "must not have a label of more than 63 characters"
		case !labelForm.MatchString(label):
			return fmt.Sprintf("label %q must be letters, digits, '-' and '_'", label)
		}
	}
	return ""
}

// ParseServer reads a DNS server's address: an IP address, or one with a port as in
// 10.0.0.10:53 or [fd00::10]:53. The port defaults to 53. A bracketed IPv4 address is
// accepted, for that is how some resolv.conf dialects attach a port.
func ParseServer(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return netip.AddrPortFrom(a.Unmap(), 53), nil
	}
	host, port, err := splitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an IP address", host)
	}
	return netip.AddrPortFrom(a.Unmap(), port), nil
}

func validateHostPort(s string) error {
	host, _, err := splitHostPort(s)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if fault := DNSNameFault(host); fault != "" {
		return fmt.Errorf("the host %s", fault)
	}
	return nil
}

// oneOf faults a value that is neither empty (the default) nor one of those listed.
func oneOf[T ~string](p *field.Path, value T, allowed []T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(p, value, allowed)}
}

// setOf faults values that are not listed or given twice.
func setOf[T ~string](p *field.Path, values, allowed []T) field.ErrorList {
	var faults field.ErrorList
	for i, v := range values {
		switch {
		case !slices.Contains(allowed, v):
			faults = append(faults, field.NotSupported(p.Index(i), v, allowed))
		case slices.Contains(values[:i], v):
			faults = append(faults, field.Duplicate(p.Index(i), v))
		}
	}
	return faults
}

func k8sName(p *field.Path, value string, validate func(string) []string) field.ErrorList {
	if value == "" {
		return nil
	}
	var faults field.ErrorList
	for _, msg := range validate(value) {
		faults = append(faults, field.Invalid(p, value, msg))
	}
	return faults
}
