package config

import (
	"slices"

	"sigs.k8s.io/yaml"
)

// Print is the configuration as YAML, with all defaults and with expanded presets. Parse reads it as the same
// configuration.
func (c *Config) Print() ([]byte, error) {
	out := *c
	out.NodeManagement.Presets, out.Profiles = nil, slices.Clone(c.Profiles)
	for i := range out.Profiles {
		out.Profiles[i].Presets = nil
	}
	return yaml.Marshal(out)
}
