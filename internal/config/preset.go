package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// expandPresets adds what the presets stand for to what the file has: those of nodeManagement for every node, also where a
// profile replaces prerequisites or checks, and those of a profile for its nodes.
func (c *Config) expandPresets() {
	own, list, everywhere := c.NodeManagement.Prerequisites, c.Worker.Checks, definitions(c.NodeManagement.Presets)
	for i := range c.Profiles {
		c.Profiles[i].expandPresets(own, list, everywhere)
	}
	c.NodeManagement.Prerequisites = own.with(everywhere, false)
	c.Worker.Checks = withChecks(list, everywhere)
}

// expandPresets is given what the file has for all nodes, and the presets of nodeManagement.
func (p *Profile) expandPresets(own Prerequisites, list []checks.Spec, everywhere []PresetDefinition) {
	here := definitions(p.Presets)
	if p.Prerequisites != nil {
		own = *p.Prerequisites
	}
	if p.Prerequisites != nil || len(here) > 0 {
		expanded := own.with(everywhere, false).with(here, true)
		p.Prerequisites = &expanded
	}
	replaced := p.Checks != nil
	if replaced {
		list = p.Checks
	}
	if replaced || slices.ContainsFunc(here, func(d PresetDefinition) bool { return len(d.Checks) > 0 }) {
		p.Checks = withChecks(list, slices.Concat(everywhere, here))
	}
}

// Remedy is what to do where no DaemonSet has one of the names.
func (d *DaemonSetPrerequisite) Remedy() string {
	from := definitions([]Preset{d.preset})
	if len(from) == 0 {
		return "correct prerequisites.daemonSets, or install it"
	}
	provides := ""
	if d.Provides != nil {
		if flow, err := json.Marshal(d.Provides); err == nil {
			provides = fmt.Sprintf(", provides: %s", flow)
		}
	}
	text := fmt.Sprintf("preset %s looks for this name; if yours has another, write {namespace: NAMESPACE, name: NAME%s} into prerequisites.daemonSets in place of the preset",
		d.preset, provides)
	if hint := from[0].Hint; hint != "" {
		text += "; " + hint
	}
	return text
}

// definitions looks presets up; what is none, Validate reports.
func definitions(names []Preset) []PresetDefinition {
	var found []PresetDefinition
	for _, d := range Presets() {
		if slices.Contains(names, d.Name) {
			found = append(found, d)
		}
	}
	return found
}

// Expansion is what a preset adds to all nodes.
type Expansion struct {
	Prerequisites Prerequisites `json:"prerequisites"`
	Checks        []checks.Spec `json:"checks,omitempty"`
}

// Expansion is what the preset adds where nodeManagement has it.
func (d PresetDefinition) Expansion() Expansion {
	return Expansion{Prerequisites: Prerequisites{}.with([]PresetDefinition{d}, false), Checks: d.Checks}
}

// with adds the prerequisites of presets. A profile's selector says which nodes have the component, so there what its
// DaemonSets provide is waited for before their pods belong on the node too.
func (p Prerequisites) with(presets []PresetDefinition, ofProfile bool) Prerequisites {
	if len(presets) == 0 {
		return p
	}
	p.DaemonSets.Named, p.CSINodes, p.Allocatable = slices.Clone(p.DaemonSets.Named), slices.Clone(p.CSINodes), maps.Clone(p.Allocatable)
	for _, d := range presets {
		for _, set := range d.DaemonSets {
			if set.Provides != nil && ofProfile {
				p.CSINodes = withDrivers(p.CSINodes, set.Provides.CSINodes)
				p.Allocatable = withResources(p.Allocatable, set.Provides.Allocatable)
			}
			set.preset = d.Name
			p.DaemonSets.Named = withDaemonSet(p.DaemonSets.Named, set)
		}
	}
	return p
}

func withDaemonSet(list []DaemonSetPrerequisite, set DaemonSetPrerequisite) []DaemonSetPrerequisite {
	i := slices.IndexFunc(list, func(have DaemonSetPrerequisite) bool { return have.String() == set.String() })
	if i < 0 {
		return append(list, set)
	}
	have := &list[i]
	have.preset = set.preset
	switch {
	case have.Provides == nil:
		have.Provides = set.Provides
	case set.Provides != nil:
		have.Provides = &Provided{CSINodes: withDrivers(slices.Clone(have.Provides.CSINodes), set.Provides.CSINodes),
			Allocatable: withResources(maps.Clone(have.Provides.Allocatable), set.Provides.Allocatable)}
	}
	return list
}

func withDrivers(list, more []CSINodePrerequisite) []CSINodePrerequisite {
	for _, m := range more {
		i := slices.IndexFunc(list, func(have CSINodePrerequisite) bool { return have.Driver == m.Driver })
		if i < 0 {
			list = append(list, m)
		} else {
			list[i].Allocatable = list[i].Allocatable || m.Allocatable
		}
	}
	return list
}

func withResources(list, more corev1.ResourceList) corev1.ResourceList {
	for name, least := range more {
		if have, ok := list[name]; ok && have.Cmp(least) >= 0 {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = least
	}
	return list
}

// withChecks adds the checks of presets, to the built-in ones where there is no list. One of the same name is in place of a
// preset's.
func withChecks(list []checks.Spec, presets []PresetDefinition) []checks.Spec {
	list = slices.Clone(list)
	for _, d := range presets {
		for _, s := range d.Checks {
			if list == nil {
				list = worker.BuiltIns()
			}
			if !slices.ContainsFunc(list, func(have checks.Spec) bool { return have.Name == s.Name }) {
				list = append(list, s)
			}
		}
	}
	return list
}

func validatePresets(path *field.Path, names []Preset) field.ErrorList {
	var faults field.ErrorList
	var known []string
	for _, d := range Presets() {
		known = append(known, string(d.Name))
	}
	for i, name := range names {
		switch {
		case slices.Contains(names[:i], name):
			faults = append(faults, field.Duplicate(path.Index(i), name))
		case !slices.Contains(known, string(name)):
			faults = append(faults, field.Invalid(path.Index(i), name, "is no preset"+strictyaml.Suggest(string(name), known)))
		}
	}
	return faults
}
