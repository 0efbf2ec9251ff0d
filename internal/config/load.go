package config

import (
	"fmt"
	"os"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

// Load reads the file at path. The error is a strictyaml.Faults when the file can be read
// but is not right.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(data, path)
}

// Parse reads a configuration and fills in the defaults and what presets stand for. It reports every fault at once, in
// a strictyaml.Faults: unknown and duplicate keys, wrong types, and values that are not
// allowed. name stands for the file in its messages.
func Parse(data []byte, name string) (*Config, error) {
	c := &Config{}
	c.SetDefaults()
	doc := strictyaml.Decode(data, name, c)
	relocate(doc.Faults)
	c.setLateDefaults()
	if err := doc.Err(c.Validate()); err != nil {
		return nil, err
	}
	if k := &c.Kubernetes; k.QPS > 0 && k.Burst == 0 {
		k.Burst = max(1, int32(2*k.QPS))
	}
	c.expandPresets()
	if err := doc.Err(c.Validate()); err != nil { // too many checks, or too large ones
		return nil, err
	}
	c.compile()
	return c, nil
}
