package config

import (
	"fmt"
	"os"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

// Load reads the file at path. The error is a strictyaml.Faults if the file can be read but is invalid.
func Load(path string) (*Config, error) { return load(path, Parse) }

// LoadDaemonSet is Load for DaemonSet mode.
func LoadDaemonSet(path string) (*Config, error) { return load(path, ParseDaemonSet) }

func load(path string, parse func([]byte, string) (*Config, error)) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return parse(data, path)
}

// Parse reads a configuration, sets the defaults and expands the presets. It reports all faults at once, in a
// strictyaml.Faults: unknown and duplicate keys, wrong types, and values that are not allowed. name is the file's name
// in the messages.
func Parse(data []byte, name string) (*Config, error) {
	return read(data, name, false)
}

// ParseDaemonSet is Parse for DaemonSet mode: settings that need a controller are faults, rules are off by default, and
// nodes that never had the taint are verified too.
func ParseDaemonSet(data []byte, name string) (*Config, error) {
	return read(data, name, true)
}

func read(data []byte, name string, daemonSet bool) (*Config, error) {
	c := &Config{}
	if daemonSet {
		c.Rules.Enabled = new(bool)
	}
	c.SetDefaults()
	doc := strictyaml.Decode(data, name, c)
	relocate(doc.Faults)
	c.setLateDefaults()
	faults := limits.Validate(nil, c)
	if daemonSet {
		c.NodeManagement.VerifyUntainted = true
		faults = append(faults, c.validateDaemonSet()...)
	}
	if err := doc.Err(faults); err != nil {
		return nil, err
	}
	if k := &c.Kubernetes; k.QPS > 0 && k.Burst == 0 {
		k.Burst = max(1, int32(2*k.QPS))
	}
	c.expandPresets()
	if err := doc.Err(limits.Validate(nil, c)); err != nil { // too many checks, or too large ones
		return nil, err
	}
	c.compile()
	return c, nil
}
