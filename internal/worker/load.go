package worker

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
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
	Admission      any `json:"admission"`
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
	FixedUser           any `json:"fixedUser"`
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

// Load reads a configuration, with defaults filled in, from YAML or JSON. The error is a
// strictyaml.Faults with every fault, its path and its line; name stands for the file in it.
func Load(data []byte, name string) (Config, error) {
	var f file
	f.Worker.SetDefaults()
	document := strictyaml.Decode(data, name, &f)
	// Values that are wrong and values that are missing are reported together.
	if err := document.Err(limits.Validate(field.NewPath("worker"), &f.Worker.Config)); err != nil {
		return Config{}, err
	}
	return f.Worker.Config, nil
}
