package servicediscovery

import (
	"math"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// Settings reads a Service and compares it with DNS.
type Settings struct {
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

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var faults field.ErrorList
	faults = append(faults, check.Named(p.Child("namespace"), s.Namespace, validation.IsDNS1123Label)...)
	faults = append(faults, check.Named(p.Child("service"), s.Service, validation.IsDNS1035Label)...)
	if s.Namespace != "" && s.Service == "" {
		faults = append(faults, field.Required(p.Child("service"), "name the Service in namespace "+s.Namespace))
	}
	if s.MinReadyEndpoints != nil {
		faults = append(faults, check.InRange(p.Child("minReadyEndpoints"), *s.MinReadyEndpoints, 0, math.MaxInt32)...)
	}
	if s.ClusterDomain != "" {
		if err := resolver.ValidateName(s.ClusterDomain); err != nil {
			faults = append(faults, field.Invalid(p.Child("clusterDomain"), s.ClusterDomain, err.Error()))
		}
	}
	for i, name := range s.SRV {
		if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
			faults = append(faults, field.Invalid(p.Child("srv").Index(i), name, "must be the name of one of the Service's ports"))
		}
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
