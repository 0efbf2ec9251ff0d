// Package allocatable is prerequisites.allocatable.
package allocatable

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Kind is the key of the settings. The name of such a prerequisite is the resource.
const Kind = "allocatable"

// hints are by the resources that a node may never offer although all is well with it.
var hints = map[corev1.ResourceName]string{
	// NVIDIA's DRA driver publishes GPUs as devices in ResourceSlices, in place of its device plugin.
	"nvidia.com/gpu": "in the GPU operator's DRA mode this resource stays 0; use the preset gpu-nvidia-dra",
}

// Settings is the minimum of each resource that the node must offer in status.allocatable, for example nvidia.com/gpu:
// 1.
type Settings map[corev1.ResourceName]resource.Quantity

// Validate reports names and quantities that a node cannot offer.
func (s Settings) Validate(p *field.Path) (faults field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		at := p.Key(string(name))
		for _, message := range validation.IsQualifiedName(string(name)) {
			faults = append(faults, field.Invalid(at, name, message))
		}
		if quantity := s[name]; quantity.Sign() <= 0 {
			faults = append(faults, field.Invalid(at, quantity.String(), "must be greater than 0"))
		}
	}
	return faults
}

// Prerequisites are the resources, by name. Nothing is read: a node's reconciler watches the node.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		least := s[name]
		unmet := func(n *corev1.Node, _ kind.Cluster) kind.Unmet {
			have, ok := n.Status.Allocatable[name]
			if ok && have.Cmp(least) >= 0 {
				return kind.Unmet{}
			}
			offers := "none"
			if ok {
				offers = have.String()
			}
			u := kind.Missing(fmt.Sprintf("%s %s allocatable", least.String(), name), "the node offers "+offers)
			if have.IsZero() {
				u.Hint = hints[name]
			}
			return u
		}
		all = append(all, kind.Prerequisite{Kind: Kind, Name: string(name), Unmet: unmet})
	}
	return all
}

// With adds resources; of two quantities of one the larger counts.
func (s Settings) With(more Settings) Settings {
	all := maps.Clone(s)
	for name, least := range more {
		if have, ok := all[name]; ok && have.Cmp(least) >= 0 {
			continue
		}
		if all == nil {
			all = Settings{}
		}
		all[name] = least
	}
	return all
}
