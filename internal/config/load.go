package config

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
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

// Parse reads a configuration and fills in the defaults. It reports every fault at once, in
// a strictyaml.Faults: unknown and duplicate keys, wrong types, and values that are not
// allowed. name stands for the file in its messages.
func Parse(data []byte, name string) (*Config, error) {
	c := &Config{}
	c.SetDefaults()
	doc := strictyaml.Decode(data, name, c)
	relocate(doc.Faults)
	c.setLateDefaults()
	if err := doc.Err(append(c.Validate(), c.explicitZeros(doc.Holds)...)); err != nil {
		return nil, err
	}
	if k := &c.Kubernetes; k.QPS > 0 && k.Burst == 0 {
		k.Burst = max(1, int32(2*k.QPS))
	}
	c.compile()
	return c, nil
}

// explicitZeros faults the zeros in checks that the file itself sets where zero stands for the
// default. Elsewhere the defaults are set before the file is read, and a zero shows.
func (c *Config) explicitZeros(holds func(path string) bool) field.ErrorList {
	faults := check.ExplicitZeros(c.Worker.Checks, field.NewPath("worker", "checks"), holds)
	for i, p := range c.Profiles {
		faults = append(faults, check.ExplicitZeros(p.Checks, field.NewPath("profiles").Index(i).Child("checks"), holds)...)
	}
	return faults
}
