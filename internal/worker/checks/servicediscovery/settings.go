package servicediscovery

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// Settings reads a Service and compares it with DNS.
type Settings struct {
	// Namespace of the Service. Default default.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Service to look at. Default kubernetes.
	Service string `json:"service,omitempty" format:"dns-1035-label"`
	// MinReadyEndpoints in the Service's EndpointSlices. Default 1.
	MinReadyEndpoints *int32 `json:"minReadyEndpoints,omitempty" minimum:"0"`
	// ClusterDomain of the Service's DNS name. Default: what the search domains in
	// resolv.conf show, else cluster.local.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// SRV lists port names whose SRV record (_port._protocol.service...) must resolve.
	SRV []string `json:"srv,omitempty" format:"port-name"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if s.Namespace != "" && s.Service == "" {
		faults = append(faults, field.Required(p.Child("service"), "name the Service in namespace "+s.Namespace))
	}
	if s.ClusterDomain != "" {
		if err := resolver.ValidateName(s.ClusterDomain); err != nil {
			faults = append(faults, field.Invalid(p.Child("clusterDomain"), s.ClusterDomain, err.Error()))
		}
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
