package config

import (
	"slices"

	"sigs.k8s.io/yaml"
)

// Print is the configuration as YAML, with its defaults filled in and what they stand for in place of the presets. It
// is a file that Parse reads as the same configuration.
func (c *Config) Print() ([]byte, error) {
	out := *c
	out.NodeManagement.Presets, out.Profiles = nil, slices.Clone(c.Profiles)
	for i := range out.Profiles {
		out.Profiles[i].Presets = nil
	}
	return yaml.Marshal(out)
}
