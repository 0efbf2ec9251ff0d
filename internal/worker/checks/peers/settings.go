package peers

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

const (
	defaultSample      = 5
	defaultFailPercent = 50
)

// Settings connects to pods on other nodes, chosen across nodes and zones.
type Settings struct {
	// Namespace of the pods. Default: the worker's own.
	Namespace string `json:"namespace,omitempty"`
	// Selector of the pods, a label selector such as app=web,tier!=cache.
	Selector string `json:"selector,omitempty"`
	// Port that the pods listen on, with TCP.
	Port int32 `json:"port,omitempty"`
	// Sample is how many pods are connected to, at most. Default 5.
	Sample *int32 `json:"sample,omitempty"`
	// FailPercent is the share of the sample that must fail for the check to fail. Default 50.
	FailPercent *int32 `json:"failPercent,omitempty"`
	// MinPeers is how many ready pods on other nodes there must be. Default 0: the first
	// node of a cluster has no peers, and passes; a selector that matches nothing is a warning.
	MinPeers int32 `json:"minPeers,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(p, "peers needs a selector and a port")}
	}
	faults := check.Named(p.Child("namespace"), s.Namespace, validation.IsDNS1123Label)
	if s.Selector == "" {
		faults = append(faults, field.Required(p.Child("selector"), "a label selector such as app=web"))
	} else if _, err := labels.Parse(s.Selector); err != nil {
		faults = append(faults, field.Invalid(p.Child("selector"), s.Selector, "is not a label selector: "+err.Error()))
	}
	if s.Port == 0 {
		faults = append(faults, field.Required(p.Child("port"), "the TCP port that the pods listen on"))
	} else {
		faults = append(faults, check.InRange(p.Child("port"), s.Port, 1, 65535)...)
	}
	faults = append(faults, check.Optional(p.Child("sample"), s.Sample, 1, 100)...)
	faults = append(faults, check.Optional(p.Child("failPercent"), s.FailPercent, 1, 100)...)
	return append(faults, check.InRange(p.Child("minPeers"), s.MinPeers, 0, 10_000)...)
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
