package workerconfig

import (
	"encoding/json"
	"fmt"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// file is a configuration file as a worker reads it: its own keys strictly, and, so that the
// controller's file can be given as it is, the controller's keys unread.
type file struct {
	Worker workerSection `json:"worker"`

	Reconciliation any `json:"reconciliation"`
	NodeManagement any `json:"nodeManagement"`
	LeaderElection any `json:"leaderElection"`
	Metrics        any `json:"metrics"`
	Health         any `json:"health"`
	Logging        any `json:"logging"`
	Kubernetes     any `json:"kubernetes"`
	Webhook        any `json:"webhook"`
	Rules          any `json:"rules"`
	Profiles       any `json:"profiles"`
}

// workerSection adds to the worker's keys those that describe its pod, which are the controller's.
type workerSection struct {
	Config

	Image               any `json:"image"`
	Namespace           any `json:"namespace"`
	ServiceAccountName  any `json:"serviceAccountName"`
	PriorityClassName   any `json:"priorityClassName"`
	Scheduling          any `json:"scheduling"`
	StartTimeoutSeconds any `json:"startTimeoutSeconds"`
	KeepFailedSeconds   any `json:"keepFailedSeconds"`
	Tolerations         any `json:"tolerations"`
	InitContainers      any `json:"initContainers"`
	Volumes             any `json:"volumes"`
	VolumeMounts        any `json:"volumeMounts"`
	Env                 any `json:"env"`
	Resources           any `json:"resources"`
	ImagePullSecrets    any `json:"imagePullSecrets"`
	PodAnnotations      any `json:"podAnnotations"`
	PodLabels           any `json:"podLabels"`
}

// Load reads a configuration, with defaults filled in, from YAML or JSON. The error lists
// every fault with its path and line; name stands for the file in it.
func Load(data []byte, name string) (Config, error) {
	var f file
	document, faults := strictyaml.Decode(data, name, &f)
	c := f.Worker.Config
	// Values that are wrong and values that are missing are told together.
	faults = faults.Join(document.Locate(c.Validate(field.NewPath("worker"))))
	if err := faults.Err(); err != nil {
		return Config{}, err
	}
	c.SetDefaults()
	return c, nil
}

// Env renders the configuration as the value of EnvVar.
func (c Config) Env() (string, error) {
	data, err := json.Marshal(map[string]Config{"worker": c})
	if err != nil {
		return "", fmt.Errorf("encoding the worker's configuration: %w", err)
	}
	return string(data), nil
}
