package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// expandPresets adds the content of the presets to the configuration. Presets of nodeManagement apply to every node,
// even if its profile replaces prerequisites or checks. Presets of a profile apply to the profile's nodes.
func (c *Config) expandPresets() {
	own, list, everywhere := c.NodeManagement.Prerequisites, c.Worker.Checks, definitions(c.NodeManagement.Presets)
	for i := range c.Profiles {
		c.Profiles[i].expandPresets(own, list, everywhere)
	}
	c.NodeManagement.Prerequisites = withPresets(own, everywhere, false)
	c.Worker.Checks = withChecks(list, everywhere)
}

// expandPresets is given what the file has for all nodes, and the presets of nodeManagement.
func (p *Profile) expandPresets(own Prerequisites, list []checks.Spec, everywhere []PresetDefinition) {
	here := definitions(p.Presets)
	if p.Prerequisites != nil {
		own = *p.Prerequisites
	}
	if p.Prerequisites != nil || len(here) > 0 {
		expanded := withPresets(withPresets(own, everywhere, false), here, true)
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
	return Expansion{Prerequisites: withPresets(Prerequisites{}, []PresetDefinition{d}, false), Checks: d.Checks}
}

// withPresets adds the prerequisites of presets. A profile's selector says which nodes have the component, so there
// what its DaemonSets provide is waited for before their pods belong on the node too.
func withPresets(p Prerequisites, presets []PresetDefinition, ofProfile bool) Prerequisites {
	for _, d := range presets {
		for _, set := range d.DaemonSets {
			if set.Provides != nil && ofProfile {
				p.CSINodes = p.CSINodes.With(set.Provides.CSINodes)
				p.Allocatable = p.Allocatable.With(set.Provides.Allocatable)
				p.ResourceSlices = p.ResourceSlices.With(set.Provides.ResourceSlices)
			}
			set.Preset, set.Hint = string(d.Name), d.Hint
			p.DaemonSets = p.DaemonSets.With(set)
		}
	}
	return p
}

// withChecks adds the checks of presets, to the built-in ones where there is no list. One of the same name is in place
// of a preset's.
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
			faults = append(faults, field.Invalid(path.Index(i), name, "is not a preset"+strictyaml.Suggest(string(name),
				known)))
		}
	}
	return faults
}
