// Package daemonsets is prerequisites.daemonSets.
package daemonsets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resourceslices"
)

// Settings are the DaemonSets that must have a Ready pod on the node: none, auto, a list of {namespace, name} or
// {selector}, or a mapping of the keys below. A DaemonSet counts if the DaemonSet controller places a pod of it on the
// node with the node's present taints, including the gating taints; auto means all of those. Default none.
type Settings struct {
	// Mode is none or auto, as without a mapping. Default none.
	Mode string `json:"mode,omitempty" enum:"none auto"`
	// Exclude lists DaemonSets that auto does not wait for.
	Exclude []Name `json:"exclude,omitempty"`
	// Named lists DaemonSets by name, each of which must exist, or by a selector, as in a list without a mapping.
	Named []Entry `json:"named,omitempty"`
}

// The modes: which DaemonSets count where none is named.
const (
	None = "none"
	Auto = "auto"
)

// Entry is met when the DaemonSet exists and its pod, on nodes that it comes to, is Ready; of a selector, when that
// holds for each DaemonSet that it matches.
type Entry struct {
	// Namespace of the DaemonSet. With a selector, empty for all namespaces.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Name of the DaemonSet.
	Name string `json:"name,omitempty" format:"dns-subdomain"`
	// AnyOf, instead of namespace and name, lists names that the DaemonSet may have, depending on how it was installed.
	// One of them must exist, and all that exist count.
	AnyOf []Name `json:"anyOf,omitempty"`
	// Selector, instead of a name, matches labels of DaemonSets: the owner of an agent registers it by a label, for
	// example node-ready/required: "true". It must not be empty. No DaemonSet needs to match.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Provides is what its pod sets up on a node. A node waits for that too, if the DaemonSet's node selector and affinity
	// match the node, whatever the gating taints.
	Provides *Provided `json:"provides,omitempty"`
	// Preset that the entry comes from, and what else it has to say where the DaemonSet does not exist; empty for the
	// file's own.
	Preset string `json:"-"`
	Hint   string `json:"-"`
}

// Provided is what a DaemonSet's pod sets up on its node.
type Provided struct {
	// CSINodes are CSI drivers that must be registered with the kubelet.
	CSINodes csinodes.Settings `json:"csiNodes,omitempty"`
	// Allocatable is the minimum of each resource that the node must offer in status.allocatable.
	Allocatable allocatable.Settings `json:"allocatable,omitempty"`
	// ResourceSlices are DRA drivers that must have published devices of the node.
	ResourceSlices resourceslices.Settings `json:"resourceSlices,omitempty"`
}

// Name names a DaemonSet.
type Name struct {
	// Namespace of the DaemonSet.
	Namespace string `json:"namespace" required:"" format:"dns-label"`
	// Name of the DaemonSet.
	Name string `json:"name" required:"" format:"dns-subdomain"`
}

// String is namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Shorthand has a word stand for the mode, and a list for the names.
func (*Settings) Shorthand(list bool) (key string) {
	if list {
		return "named"
	}
	return "mode"
}

// InDaemonSetMode says what to configure there instead.
func (Settings) InDaemonSetMode() string {
	return "use prerequisites.pods for the pods of the DaemonSets"
}

// Validate reports DaemonSets that are given twice, and exclusions from nothing.
func (s *Settings) Validate(p *field.Path) (faults field.ErrorList) {
	if len(s.Exclude) > 0 && s.Mode != Auto {
		const why = "works only with mode: auto"
		faults = append(faults, field.Forbidden(p.Child("exclude"), why))
	}
	list := p // where it stands without its key
	if s.Mode != "" || len(s.Exclude) > 0 {
		list = p.Child("named")
	}
	name := func(e Entry) string { return e.String() }
	faults = append(faults, kind.Duplicates(s.Named, name, list.Index)...)
	return append(faults, kind.Duplicates(s.Exclude, Name.String, p.Child("exclude").Index)...)
}

// Validate reports an entry that names nothing, or names it in two ways.
func (e *Entry) Validate(p *field.Path) (faults field.ErrorList) {
	if e.Selector != nil {
		return e.validateSelector(p)
	}
	if len(e.AnyOf) > 0 {
		faults = kind.Duplicates(e.AnyOf, Name.String, p.Child("anyOf").Index)
		if e.Namespace != "" || e.Name != "" {
			faults = append(faults, field.Forbidden(p.Child("anyOf"), "cannot be combined with namespace and name; put them "+
				"into the list"))
		}
	} else {
		faults = limits.Validate(p, &Name{Namespace: e.Namespace, Name: e.Name})
	}
	if o := e.Provides; o != nil && len(o.CSINodes)+len(o.Allocatable)+len(o.ResourceSlices) == 0 {
		const what = "set csiNodes, allocatable or resourceSlices, or remove this key"
		faults = append(faults, field.Required(p.Child("provides"), what))
	}
	return faults
}

func (e *Entry) validateSelector(p *field.Path) field.ErrorList {
	at := p.Child("selector")
	faults := metavalidation.ValidateLabelSelector(e.Selector, metavalidation.LabelSelectorValidationOptions{}, at)
	if len(e.Selector.MatchLabels)+len(e.Selector.MatchExpressions) == 0 {
		faults = append(faults, field.Required(at, "select DaemonSets by a label; mode: auto waits for all of them"))
	}
	if e.Name != "" || len(e.AnyOf) > 0 {
		faults = append(faults, field.Forbidden(at, "cannot be combined with name or anyOf; make it a separate entry"))
	}
	if e.Provides != nil {
		faults = append(faults, field.Forbidden(p.Child("provides"), "works only in an entry that names its DaemonSet"))
	}
	return faults
}

// Names are those that the DaemonSet may have; none with a selector.
func (e *Entry) Names() []Name {
	switch {
	case e.Selector != nil:
		return nil
	case len(e.AnyOf) > 0:
		return e.AnyOf
	}
	return []Name{{Namespace: e.Namespace, Name: e.Name}}
}

// String is the names, or the selector.
func (e *Entry) String() string {
	if e.Selector != nil {
		text := metav1.FormatLabelSelector(e.Selector)
		if e.Namespace != "" {
			text += " in namespace " + e.Namespace
		}
		return text
	}
	var names []string
	for _, n := range e.Names() {
		names = append(names, n.String())
	}
	return strings.Join(names, " or ")
}

// Remedy is what to do where no DaemonSet has one of the names.
func (e *Entry) Remedy() string {
	if e.Preset == "" {
		return "correct prerequisites.daemonSets, or install it"
	}
	provides := ""
	if e.Provides != nil {
		if flow, err := json.Marshal(e.Provides); err == nil {
			provides = fmt.Sprintf(", provides: %s", flow)
		}
	}
	text := fmt.Sprintf("preset %s expects this name; if yours has another name, add {namespace: NAMESPACE, name: "+
		"NAME%s} to prerequisites.daemonSets instead of the preset", e.Preset, provides)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// With adds an entry; one of the same names takes over what it provides.
func (s Settings) With(entry Entry) Settings {
	s.Named = slices.Clone(s.Named)
	i := slices.IndexFunc(s.Named, func(have Entry) bool { return have.String() == entry.String() })
	if i < 0 {
		s.Named = append(s.Named, entry)
		return s
	}
	have := &s.Named[i]
	have.Preset, have.Hint = entry.Preset, entry.Hint
	switch {
	case have.Provides == nil:
		have.Provides = entry.Provides
	case entry.Provides != nil:
		have.Provides = &Provided{CSINodes: have.Provides.CSINodes.With(entry.Provides.CSINodes),
			Allocatable:    have.Provides.Allocatable.With(entry.Provides.Allocatable),
			ResourceSlices: have.Provides.ResourceSlices.With(entry.Provides.ResourceSlices)}
	}
	return s
}

// Prerequisites are each DaemonSet that is named, what it provides, those of each selector, and with mode auto all
// others.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, e := range s.Named {
		if e.Selector != nil {
			matching := selected{in(e.Namespace, metav1.FormatLabelSelector(e.Selector), false), nil, "DaemonSets " + e.String()}
			all = append(all, kind.Prerequisite{Name: e.String(), Sources: matching.sources(), Unmet: matching.unmet})
			continue
		}
		n := newNamed(e)
		all = append(all, kind.Prerequisite{Name: e.String(), Sources: n.sources(), Unmet: n.unmet})
		if e.Provides != nil {
			for _, p := range kind.Of(*e.Provides) {
				all = append(all, n.provided(p))
			}
		}
	}
	if s.Mode == Auto {
		exclude := slices.Clone(s.Exclude)
		for _, e := range s.Named {
			exclude = append(exclude, e.Names()...)
		}
		rest := selected{in("", "", false), exclude, ""}
		all = append(all, kind.Prerequisite{Name: Auto, Sources: rest.sources(), Unmet: rest.unmet})
	}
	return all
}
