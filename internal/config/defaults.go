package config

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// Names that the other parts of an installation rely on.
const (
	// DefaultTaintKey and DefaultLabelKey are the marks on a node.
	DefaultTaintKey = "node-ready/unverified"
	DefaultLabelKey = "node-ready/verified"
	// DefaultLabelValue is the label's value.
	DefaultLabelValue = "true"
)

// SetDefaults sets every zero value that has a default. Worker.Namespace, LeaderElection.Namespace and Worker.Image.Tag
// stay empty, because only main knows them.
//
// Parse sets the defaults before it reads the file, so an explicit 0 in the file is kept.
func (c *Config) SetDefaults() {
	w := &c.Worker
	w.SetDefaults() // of the part that a worker reads
	or(&w.Image.Repository, "ghcr.io/kube-node-ready/kube-node-ready")
	or(&w.Image.PullPolicy, corev1.PullIfNotPresent)
	or(&w.ServiceAccountName, "kube-node-ready-worker")
	or(&w.PriorityClassName, "system-node-critical")
	or(&w.StartTimeoutSeconds, 300)
	if w.Tolerations == nil { // as node-critical agents do
		w.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}

	r := &c.Reconciliation
	or(&r.MaxRetries, 5)
	or(&r.RetryBackoff, BackoffExponential)
	or(&r.OnDeadline, OnDeadlineHold)
	or(&r.InitialBackoffSeconds, 1)
	or(&r.MaxBackoffSeconds, 30)
	or(&r.ExhaustedRetrySeconds, 600)
	or(&r.IntervalSeconds, 30)

	n := &c.NodeManagement
	if n.Taints == nil {
		n.Taints = []marks.Taint{{Key: DefaultTaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	or(&n.VerifiedLabel.Key, DefaultLabelKey)
	or(&n.VerifiedLabel.Value, DefaultLabelValue)
	or(&n.Remediation.Window, metav1.Duration{Duration: time.Hour})

	or(&c.Admission.Mode, AdmissionOff)
	hook := &c.Admission.Webhook
	or(&hook.Port, 9443)
	or(&hook.Name, "kube-node-ready-webhook")
	or(&hook.FailurePolicy, "Ignore")
	or(&hook.CertificateLifetime, metav1.Duration{Duration: 90 * 24 * time.Hour})
	or(&c.Admission.BackfillMaxAge, metav1.Duration{Duration: 10 * time.Minute})

	or(&c.LeaderElection.ID, "kube-node-ready-controller")
	or(&c.Metrics.Port, 8080)
	or(&c.Metrics.PerNode, PerNodeAll)
	or(&c.Health.Port, 8081)
	or(&c.Logging.Level, worker.DefaultLogLevel)
	or(&c.Logging.Format, worker.DefaultLogFormat)

	c.setLateDefaults()
}

// setLateDefaults fills what a file can leave empty after the defaults were set: the entries of its lists, and values
// that it sets to null. Every pointer that has a default is set from here on.
func (c *Config) setLateDefaults() {
	or(&c.Worker.FixedUser, new(true))
	or(&c.Worker.KeepFailedSeconds, new(int32(600)))
	or(&c.LeaderElection.Enabled, new(true))
	or(&c.Metrics.Enabled, new(true))
	or(&c.Rules.Enabled, new(true))
	if c.Rules.OtherControllerNamespaces == nil {
		c.Rules.OtherControllerNamespaces = []string{"nrr-system", "kube-system"}
	}
	or(&c.NodeManagement.Reverify.OnReboot, new(true))
	m := &c.NodeManagement.Remediation
	or(&m.MaxUnhealthy, new(intstr.FromString("20%")))
	or(&m.MaxInFlight, new(int32(1)))
	or(&m.MaxDeletionsPerHour, new(int32(10)))
	or(&m.NeverVerifiedOnly, new(true))
	or(&m.SparePodsOtherThanDaemonSets, new(true))
	or(&m.ControlProbe, new(true))
	or(&c.NodeManagement.Reverify.CooldownSeconds, new(int32(3600)))
	or(&m.Action, ActionDelete)
	or(&m.Condition.Type, "node-ready/RemediationRequired")
	or(&m.Condition.Status, corev1.ConditionTrue)
	c.NodeManagement.Prerequisites.SetDefaults()
	setSuspectDefaults(c.NodeManagement.Reverify.OnConditions)
	for i := range c.Profiles {
		if image := c.Profiles[i].Image; image != nil {
			image.setDefaults(c.Worker.Image)
		}
		if p := c.Profiles[i].Reverify; p != nil {
			setSuspectDefaults(p.OnConditions)
		}
		if p := c.Profiles[i].Prerequisites; p != nil {
			p.SetDefaults()
		}
	}
}

// setDefaults completes a profile's image by the worker's. A digest pins the worker's image and no other.
func (i *Image) setDefaults(worker Image) {
	if i.Repository == "" && i.Tag == "" {
		or(&i.Digest, worker.Digest)
	}
	or(&i.Repository, worker.Repository)
	or(&i.Tag, worker.Tag)
	or(&i.PullPolicy, worker.PullPolicy)
}

func setSuspectDefaults(conditions []SuspectCondition) {
	for i := range conditions {
		or(&conditions[i].Status, corev1.ConditionTrue)
	}
}

func or[T comparable](value *T, otherwise T) { *value = cmp.Or(*value, otherwise) }
