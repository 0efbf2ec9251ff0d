// Package prerequisite is the table of the kinds of prerequisites, as nodeManagement.prerequisites has them. A kind is
// a folder below this one, which holds its settings, their rules, what it reads and when it is met, and a line in
// Table.
package prerequisite

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/conditions"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/nodeready"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resourceslices"
)

// Table has a line for each kind of prerequisite: what must hold before a node's first worker starts. The name of the
// kind is the key of its settings. Validation, the documentation, the chart's schema, the rights to read what a kind
// reads, and what DaemonSet mode refuses follow from it.
type Table struct {
	NodeReady      nodeready.Settings      `json:"nodeReady,omitempty"`
	Conditions     conditions.Settings     `json:"conditions,omitempty"`
	Pods           pods.Settings           `json:"pods,omitempty"`
	DaemonSets     daemonsets.Settings     `json:"daemonSets,omitzero"`
	CSINodes       csinodes.Settings       `json:"csiNodes,omitempty"`
	Allocatable    allocatable.Settings    `json:"allocatable,omitempty"`
	ResourceSlices resourceslices.Settings `json:"resourceSlices,omitempty"`
	Resources      resources.Settings      `json:"resources,omitempty"`
}

// All lists the prerequisites, in the order of the table and of the file.
func (t Table) All() []kind.Prerequisite { return kind.Of(t) }

// SetDefaults fills the defaults of entries.
func (t Table) SetDefaults() {
	kind.Each(t, func(_ string, s kind.Settings) {
		if d, ok := s.(interface{ SetDefaults() }); ok {
			d.SetDefaults()
		}
	})
}

// ValidateDaemonSet reports what DaemonSet mode cannot wait for.
func (t Table) ValidateDaemonSet(p *field.Path) (faults field.ErrorList) {
	kind.Each(t, func(key string, s kind.Settings) {
		if wide, ok := s.(interface{ InDaemonSetMode() string }); ok && len(s.Prerequisites()) > 0 {
			const why = "DaemonSet mode reads only the node's own objects, so %s has no effect: %s, or use deploymentMode " +
				"controller"
			faults = append(faults, field.Invalid(p.Child(key), "(not shown)", fmt.Sprintf(why, key, wide.InDaemonSetMode())))
		}
	})
	return faults
}
