package peers

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	defaultSample      = 5
	defaultFailPercent = 50
)

// Settings connects to pods on other nodes, chosen across nodes and zones.
type Settings struct {
	// Namespace of the pods. Default: the worker's own.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Service in that namespace that selects the pods. Its EndpointSlices are read, which are small and hold each pod's
	// node and zone.
	Service string `json:"service,omitempty" format:"dns-1035-label"`
	// Selector of the pods, a label selector such as app=web,tier!=cache. Beside service it is for clusters without
	// that Service. Pods are read ten at a time, until there are enough, so of many the first by name are chosen from.
	Selector string `json:"selector,omitempty"`
	// Port that the pods listen on, with TCP.
	Port int32 `json:"port" required:"the TCP port that the pods listen on" minimum:"1" maximum:"65535"`
	// Sample is how many pods are connected to, at most. Default 5.
	Sample *int32 `json:"sample,omitempty" minimum:"1" maximum:"100"`
	// FailPercent is the share of the sample that must fail for the check to fail. Default 50.
	FailPercent *int32 `json:"failPercent,omitempty" minimum:"1" maximum:"100"`
	// MinPeers is how many ready pods on other nodes there must be; with fewer the check is inconclusive. Default 0:
	// the first node of a cluster has no peers, and passes; a selector that matches nothing is a warning.
	MinPeers int32 `json:"minPeers,omitempty" minimum:"0" maximum:"10000"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s.Selector == "" && s.Service == "" {
		return field.ErrorList{field.Required(p.Child("service"),
			"the Service of the pods, or as selector a label selector such as app=web")}
	}
	if _, err := labels.Parse(s.Selector); err != nil {
		return field.ErrorList{field.Invalid(p.Child("selector"), s.Selector, "is not a label selector: "+err.Error())}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
