package worker

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

// maxEnv is how long the value of EnvVar may be. Linux takes at most 32 pages of 4 KiB for one
// string of a process's environment (MAX_ARG_STRLEN), which is the name, "=", the value and a
// zero byte.
const maxEnv = 32*4096 - len(EnvVar) - 2

// Env renders the configuration as the value of EnvVar.
func (c Config) Env() (string, error) {
	if c.TimeoutSeconds > 0 {
		c.CheckTimeoutSeconds = min(c.CheckTimeoutSeconds, c.TimeoutSeconds) // a profile's worker may have less time
	}
	data, err := json.Marshal(map[string]Config{"worker": c})
	if err != nil {
		return "", fmt.Errorf("encoding the worker's configuration: %w", err)
	}
	var b strings.Builder
	for _, r := range string(data) {
		if printable(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String(), nil
}

// printable reports whether YAML lets the character stand for itself between quotes (YAML 1.2.2,
// section 5.1), where it takes NEL and the separators of lines and paragraphs for line breaks.
// JSON leaves them all as they are. What is not printable has at most four hexadecimal digits.
func printable(r rune) bool {
	switch {
	case r < 0x20, r == 0x7F, r >= 0x80 && r < 0xA0, r == 0x2028, r == 0x2029, r == 0xFEFF, r == 0xFFFE, r == 0xFFFF:
		return false
	}
	return true
}

// validateHandover faults what cannot be handed to a worker as it is.
func (c Config) validateHandover(path *field.Path) field.ErrorList {
	env, err := c.Env()
	if err != nil {
		return field.ErrorList{field.Invalid(path, "(not shown)", err.Error())}
	}
	if len(env) > maxEnv {
		return field.ErrorList{field.Invalid(path, fmt.Sprintf("%d bytes", len(env)), fmt.Sprintf(
			"checks and domains together are too long to be handed to a worker; at most %d bytes of JSON fit an environment variable", maxEnv))}
	}
	var f file
	if err := strictyaml.Decode([]byte(env), EnvVar, &f).Err(nil); err != nil {
		return field.ErrorList{field.Invalid(path, "(not shown)", "a worker could not read it: "+err.Error())}
	}
	if again, err := f.Worker.Config.Env(); err != nil || again != env {
		return field.ErrorList{field.Invalid(path, "(not shown)", "a worker would read something else")}
	}
	return nil
}
