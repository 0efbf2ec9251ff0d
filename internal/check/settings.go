package check

import (
	"net/netip"
	"slices"
)

// IPFamily is IPv4 or IPv6.
type IPFamily string

// The IP families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// The resolvers that a DNS check can ask.
const (
	// ResolverPod is every nameserver of resolv.conf, each asked on its own.
	ResolverPod = "pod"
	// ResolverService is the cluster IPs of the DNS Service.
	ResolverService = "service"
	// ResolverEndpoints is every endpoint of the DNS Service, each asked on its own.
	ResolverEndpoints = "endpoints"
)

// Defaults of the types' settings.
const (
	// DefaultDNSName is what is looked up, in the cluster's domain.
	DefaultDNSName = "kubernetes.default.svc"
	// RecordAddress asks for A and AAAA records; either will do.
	RecordAddress = "address"
	// DefaultClusterDomain is used where resolv.conf does not show the cluster's domain.
	DefaultClusterDomain = "cluster.local"
)

// DNSServices are the names that distributions give to the Service in front of the cluster's DNS
// servers: kubeadm and most others, kubespray, RKE2, OpenShift. The worker's Role names them too.
var DNSServices = []string{"kube-system/kube-dns", "kube-system/coredns", "kube-system/rke2-coredns-rke2-coredns", "openshift-dns/dns-default"}

// DNS asks DNS servers for a name.
type DNS struct {
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

// The ways to the API server.
const (
	// ViaAddress is KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	ViaAddress = "address"
	// ViaDNS is the Service's DNS name, kubernetes.default.svc.
	ViaDNS = "dns"
)

// KubernetesAPI calls the API server as the worker's service account.
type KubernetesAPI struct {
	// Path that must answer 200: /readyz (default), /livez or /version.
	Path string `json:"path,omitempty"`
	// Via is how the API server is reached, each way on its own: address
	// (KUBERNETES_SERVICE_HOST) and dns (kubernetes.default.svc). Default both.
	Via []string `json:"via,omitempty"`
	// ExpectUser is the user name that a SelfSubjectReview must return. Default: the
	// service account that the token names.
	ExpectUser string `json:"expectUser,omitempty"`
}

// What a TCP check expects of an address.
const (
	// ExpectOpen is an address that accepts connections.
	ExpectOpen = "open"
	// ExpectClosed is an address that refuses, resets or does not answer.
	ExpectClosed = "closed"
)

// TCP connects to addresses.
type TCP struct {
	// Addresses are host:port pairs. A host that is a name is resolved as a pod would resolve
	// it, and one of its addresses must connect (with expect: closed, none may).
	Addresses []string `json:"addresses,omitempty"`
	// KubernetesService adds KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to the
	// addresses. Default: true when there are no addresses.
	KubernetesService *bool `json:"kubernetesService,omitempty"`
	// Expect is open (default) or closed: the connection is refused, reset or not answered.
	Expect string `json:"expect,omitempty"`
	// IPFamilies to try, IPv4 and IPv6; a host must have an address in each that is listed, and
	// one of each must connect (with expect: closed, none may). Default: either will do.
	IPFamilies []IPFamily `json:"ipFamilies,omitempty"`
}

// ServiceDiscovery reads a Service and compares it with DNS.
type ServiceDiscovery struct {
	// Namespace of the Service. Default default.
	Namespace string `json:"namespace,omitempty"`
	// Service to look at. Default kubernetes.
	Service string `json:"service,omitempty"`
	// MinReadyEndpoints in the Service's EndpointSlices. Default 1.
	MinReadyEndpoints *int32 `json:"minReadyEndpoints,omitempty"`
	// ClusterDomain of the Service's DNS name. Default: what the search domains in
	// resolv.conf show, else cluster.local.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// SRV lists port names whose SRV record (_port._protocol.service...) must resolve.
	SRV []string `json:"srv,omitempty"`
}

// WithKubernetesService says whether the Kubernetes Service's address is among the addresses.
func (t TCP) WithKubernetesService() bool {
	if t.KubernetesService != nil {
		return *t.KubernetesService
	}
	return len(t.Addresses) == 0
}

// NeedsAPI says whether the servers to ask are found through the Kubernetes API.
func (d *DNS) NeedsAPI() bool {
	return d != nil && (d.Resolver == ResolverService || d.Resolver == ResolverEndpoints)
}

// Literal is the name if it is an IP address and addresses are what is asked for.
func (d *DNS) Literal() (netip.Addr, bool) {
	addr, err := netip.ParseAddr(d.Name)
	return addr, err == nil && addr.Zone() == "" && slices.Contains([]string{"", RecordAddress, "A", "AAAA"}, d.RecordType)
}
