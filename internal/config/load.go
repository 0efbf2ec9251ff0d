package config

import (
	"fmt"
	"os"
	"strings"

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
	doc, faults := strictyaml.Decode(data, name, c)
	relocate(faults)
	c.setEntryDefaults()
	unread := faults
	for _, fault := range doc.Locate(c.Validate()) {
		if !within(fault.Path, unread) {
			faults = faults.Join(strictyaml.Faults{fault})
		}
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if k := &c.Kubernetes; k.QPS > 0 && k.Burst == 0 {
		k.Burst = max(1, int32(2*k.QPS))
	}
	c.compile()
	return c, nil
}

// within says whether the value at path, or one around it, could not be read. Such a value
// is not judged as well: the file does not say what Validate sees.
func within(path string, unread strictyaml.Faults) bool {
	for _, fault := range unread {
		rest, ok := strings.CutPrefix(path, fault.Path)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}
