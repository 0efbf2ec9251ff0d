package tcp

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// IPFamily is IPv4 or IPv6.
type IPFamily string

// The IP families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// What is expected of an address.
const (
	// ExpectOpen is an address that accepts connections.
	ExpectOpen = "open"
	// ExpectClosed is an address that refuses, resets or does not answer.
	ExpectClosed = "closed"
)

// Settings connects to addresses.
type Settings struct {
	// Addresses are host:port pairs. A host that is a name is resolved as a pod would resolve
	// it, and one of its addresses must connect (with expect: closed, none may).
	Addresses []string `json:"addresses,omitempty"`
	// KubernetesService adds KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to the
	// addresses. Default: true when there are no addresses.
	KubernetesService *bool `json:"kubernetesService,omitempty"`
	// Expect is open (default) or closed: the connection is refused, reset or not answered.
	Expect string `json:"expect,omitempty" enum:"open closed"`
	// IPFamilies to try, IPv4 and IPv6; a host must have an address in each that is listed, and
	// one of each must connect (with expect: closed, none may). Default: either will do.
	IPFamilies []IPFamily `json:"ipFamilies,omitempty" enum:"IPv4 IPv6"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	for i, a := range s.Addresses {
		if err := resolver.ValidateHostPort(a); err != nil {
			faults = append(faults, field.Invalid(p.Child("addresses").Index(i), a, err.Error()))
		}
	}
	if len(s.Addresses) == 0 && s.KubernetesService != nil && !*s.KubernetesService {
		faults = append(faults, field.Required(p.Child("addresses"), "with kubernetesService: false there is nothing to connect to"))
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

// withKubernetesService reports whether the Kubernetes Service's address is among the addresses.
func (s *Settings) withKubernetesService() bool {
	return ptr.Deref(s.KubernetesService, len(s.Addresses) == 0)
}
