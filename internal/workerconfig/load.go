package workerconfig

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
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
	document := strictyaml.Decode(data, name, &f)
	c := f.Worker.Config
	// Values that are wrong and values that are missing are told together.
	if err := document.Err(append(c.Validate(worker), c.explicitZeros(document.Holds)...)); err != nil {
		return Config{}, err
	}
	c.SetDefaults()
	return c, nil
}

// worker is the section's place in the file.
var worker = field.NewPath("worker")

// explicitZeros faults the zeros that the file itself sets where zero stands for the default.
func (c Config) explicitZeros(holds func(string) bool) field.ErrorList {
	faults := check.ExplicitZeros(c.Checks, worker.Child("checks"), holds)
	for key, value := range map[string]int32{"checkTimeoutSeconds": c.CheckTimeoutSeconds, "timeoutSeconds": c.TimeoutSeconds} {
		if p := worker.Child(key); value == 0 && holds(p.String()) {
			faults = append(faults, field.Invalid(p, value, "must be at least 1; leave it out for the default"))
		}
	}
	return faults
}
