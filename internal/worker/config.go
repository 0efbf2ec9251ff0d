// Package worker is one verification of a node: from a pod's configuration and environment to a report.
//
// The configuration is part of the "worker" section of the controller's file. The controller passes it to each worker
// pod in an environment variable, so a worker never waits for a volume.
package worker

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// EnvVar holds a worker's configuration, in the format of a file for --config.
const EnvVar = "KUBE_NODE_READY_CONFIG"

// DefaultLogLevel and DefaultLogFormat are those of both programs where nothing sets them.
const (
	DefaultLogLevel  = "info"
	DefaultLogFormat = "json"
)

// Config is the part of the "worker" section that a worker process reads.
type Config struct {
	// Checks replaces the built-in list: DNS, API, network, service discovery and, as warnings, three of the DNS endpoints
	// and the clock. An explicit empty list means no checks: a node is released without a worker once its prerequisites
	// hold. There must then be at least one prerequisite.
	Checks []checks.Spec `json:"checks,omitzero"`
	// DNSTestDomains adds a DNS check of each name to the list. An IP address passes without a query.
	DNSTestDomains []string `json:"dnsTestDomains,omitempty"`
	// CheckTimeoutSeconds limits one attempt of a check that sets no timeout of its own. It must be at most
	// timeoutSeconds. Default 10.
	CheckTimeoutSeconds int32 `json:"checkTimeoutSeconds,omitempty" minimum:"1" maximum:"3600"`
	// TimeoutSeconds limits a worker, from the start of its container to its exit. Default 120.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"3600"`
}

// file is a configuration file as a worker reads it: its own keys strictly. It ignores the values of the controller's
// keys, so that it can read the controller's file.
type file struct {
	Worker workerSection `json:"worker"`

	Reconciliation any `json:"reconciliation"`
	NodeManagement any `json:"nodeManagement"`
	LeaderElection any `json:"leaderElection"`
	Metrics        any `json:"metrics"`
	Health         any `json:"health"`
	Logging        any `json:"logging"`
	Kubernetes     any `json:"kubernetes"`
	Admission      any `json:"admission"`
	Rules          any `json:"rules"`
	Profiles       any `json:"profiles"`
}

// workerSection adds the keys that describe the worker's pod, which are for the controller.
type workerSection struct {
	Config

	Image               any `json:"image"`
	Namespace           any `json:"namespace"`
	ServiceAccountName  any `json:"serviceAccountName"`
	PriorityClassName   any `json:"priorityClassName"`
	Scheduling          any `json:"scheduling"`
	StartTimeoutSeconds any `json:"startTimeoutSeconds"`
	InitTimeoutSeconds  any `json:"initTimeoutSeconds"`
	KeepFailedSeconds   any `json:"keepFailedSeconds"`
	FixedUser           any `json:"fixedUser"`
	Tolerations         any `json:"tolerations"`
	InitContainers      any `json:"initContainers"`
	Volumes             any `json:"volumes"`
	VolumeMounts        any `json:"volumeMounts"`
	Env                 any `json:"env"`
	Resources           any `json:"resources"`
	ResourceClaims      any `json:"resourceClaims"`
	RuntimeClassName    any `json:"runtimeClassName"`
	ImagePullSecrets    any `json:"imagePullSecrets"`
	PodAnnotations      any `json:"podAnnotations"`
	PodLabels           any `json:"podLabels"`
}

// Load reads a configuration from YAML or JSON and sets the defaults. The error is a strictyaml.Faults, which has the
// path and line of every error; name is the file's name in it.
func Load(data []byte, name string) (Config, error) {
	var f file
	f.Worker.SetDefaults()
	document := strictyaml.Decode(data, name, &f)
	if err := document.Err(limits.Validate(field.NewPath("worker"), &f.Worker.Config)); err != nil {
		return Config{}, err
	}
	return f.Worker.Config, nil
}

// maxEnv limits the value of EnvVar. Linux takes at most 32 pages of 4 KiB (MAX_ARG_STRLEN) for one string of a
// process's environment: the name, "=", the value and a zero byte.
const maxEnv = 32*4096 - len(EnvVar) - 2

// Env renders the configuration as the value of EnvVar. It has no "$": the kubelet replaces "$$", and names in "$(...)"
// (k8s.io/kubernetes third_party/forked/golang/expansion).
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
		if r != '$' && printable(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String(), nil
}

// printable reports whether a character needs no escape in a quoted YAML string (YAML 1.2.2, section 5.1). YAML takes
// NEL and the line and paragraph separators for line breaks; JSON leaves them unescaped.
func printable(r rune) bool {
	control := r < 0x20 || r >= 0x7F && r < 0xA0
	return !control && r != 0x2028 && r != 0x2029 && r != 0xFEFF && r != 0xFFFE && r != 0xFFFF
}

// validateEnv reports a configuration that a worker would not read as it is.
func (c Config) validateEnv(path *field.Path) field.ErrorList {
	env, err := c.Env()
	if err != nil {
		return field.ErrorList{field.Invalid(path, "(not shown)", err.Error())}
	}
	if len(env) > maxEnv {
		return field.ErrorList{field.Invalid(path, fmt.Sprintf("%d bytes", len(env)), fmt.Sprintf("checks and domains "+
			"together are too long for the worker's environment variable, which holds at most %d bytes of JSON", maxEnv))}
	}
	var f file
	if err := strictyaml.Decode([]byte(env), EnvVar, &f).Err(nil); err != nil {
		return field.ErrorList{field.Invalid(path, "(not shown)", "a worker could not read it: "+err.Error())}
	}
	if decoded, err := f.Worker.Config.Env(); err != nil || decoded != env {
		return field.ErrorList{field.Invalid(path, "(not shown)", "a worker would read another value")}
	}
	return nil
}
