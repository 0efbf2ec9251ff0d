package config

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/validation/field"

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
	return read(data, name, &Config{}, (*Config).validate)
}

// ParseDaemonSet is Parse for DaemonSet mode: settings that need a controller are faults, rules are off by default, and
// nodes that never had the taint are verified too.
func ParseDaemonSet(data []byte, name string) (*Config, error) {
	c, err := read(data, name, &Config{Rules: Rules{Enabled: new(bool)}}, func(c *Config) field.ErrorList {
		return append(c.validate(), c.validateDaemonSet()...)
	})
	if err != nil {
		return nil, err
	}
	c.NodeManagement.VerifyUntainted = true
	return c, nil
}

// read reads a configuration over what is set already.
func read(data []byte, name string, c *Config, validate func(*Config) field.ErrorList) (*Config, error) {
	c.SetDefaults()
	doc := strictyaml.Decode(data, name, c)
	relocate(doc.Faults)
	c.setLateDefaults()
	if err := doc.Err(validate(c)); err != nil {
		return nil, err
	}
	if k := &c.Kubernetes; k.QPS > 0 && k.Burst == 0 {
		k.Burst = max(1, int32(2*k.QPS))
	}
	c.expandPresets()
	if err := doc.Err(c.validate()); err != nil { // too many checks, or too large ones
		return nil, err
	}
	c.compile()
	return c, nil
}
