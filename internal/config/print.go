package config

import "sigs.k8s.io/yaml"

// Print is the configuration as YAML, with its defaults filled in. It is a file that Parse reads as the same configuration.
func (c *Config) Print() ([]byte, error) { return yaml.Marshal(c) }
