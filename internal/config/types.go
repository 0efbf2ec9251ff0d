// Package config is the controller's configuration file: its types, defaults and faults.
package config

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// DefaultPath is where the chart mounts the configuration.
const DefaultPath = "/etc/kube-node-ready/config.yaml"

// Config is the whole file.
type Config struct {
	// Worker describes the pod that verifies a node, and what it checks there.
	Worker Worker `json:"worker"`
	// Reconciliation is how often and how persistently nodes are verified.
	Reconciliation Reconciliation `json:"reconciliation"`
	// NodeManagement is which nodes are verified, and what is done to them.
	NodeManagement NodeManagement `json:"nodeManagement"`
	// LeaderElection is the Lease that lets one replica act.
	LeaderElection LeaderElection `json:"leaderElection"`
	// Metrics is the Prometheus endpoint.
	Metrics Metrics `json:"metrics"`
	// Health is the endpoint of the liveness and readiness probes.
	Health Health `json:"health"`
	// Logging is how the controller and its workers log.
	Logging Logging `json:"logging"`
	// Kubernetes is the client of the API server.
	Kubernetes Kubernetes `json:"kubernetes"`
	// Profiles give groups of nodes their own checks, taints or worker pods. The first profile whose
	// selector matches a node is the node's; a node that none matches has the defaults.
	Profiles []Profile `json:"profiles,omitempty"`
	// Admission taints nodes at their creation, for clusters whose autoscaler cannot.
	Admission Admission `json:"admission"`
	// Rules serves NodeReadinessRule resources.
	Rules Rules `json:"rules"`

	// vocabulary is made by Parse; empty in a Config made by hand.
	vocabulary marks.Vocabulary
}

// Rules is the controller of NodeReadinessRule resources.
type Rules struct {
	// Enabled serves NodeReadinessRules where the API server has them. Of several installations in a cluster one does: it
	// holds the Lease node-ready-rules in the namespace default. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// TakeOver serves them although the node-readiness-controller of the Kubernetes SIG is at work (somebody holds its
	// Lease). Two controllers of one rule undo each other's work: stop the other one. Default false.
	TakeOver bool `json:"takeOver,omitempty"`
	// StaleAfter is when a node condition whose heartbeat was seen to be renewed, and is not any more, counts as missing.
	// Elapsed time is measured from when the controller saw a renewal. Default 0s: never.
	StaleAfter metav1.Duration `json:"staleAfter,omitempty" minimum:"1s" or:"0s for never"`
	// MaxClosedPercent bounds how many nodes a continuous rule closes again: of the nodes that it has released before, at
	// most so many per cent carry its taint at a time, rounded down, and at least one. The others stay open although their
	// conditions fail. A node that the rule has not released yet is always gated and counts in neither number. Default 0:
	// no limit.
	MaxClosedPercent int32 `json:"maxClosedPercent,omitempty" minimum:"0" maximum:"100"`
}

// Worker describes the pod that verifies a node, and, inlined, what it checks.
type Worker struct {
	worker.Config

	// Image is the worker's container image.
	Image Image `json:"image"`
	// Namespace holds the worker pods. Default: the controller's own namespace
	// (POD_NAMESPACE, else the service account's, else the kubeconfig context's, else "default"). After a change, nodes
	// that were there before wait until no worker can run in the namespace before: startTimeoutSeconds,
	// initTimeoutSeconds, timeoutSeconds and two minutes.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// ServiceAccountName is the worker pods' identity. Default kube-node-ready-worker.
	ServiceAccountName string `json:"serviceAccountName,omitempty" required:"" format:"dns-subdomain"`
	// PriorityClassName of the worker pods on nodes that carry a gating taint. Elsewhere workers have no priority class
	// and displace no workload. Default system-node-critical.
	PriorityClassName string `json:"priorityClassName,omitempty" required:"" format:"dns-subdomain"`
	// FixedUser makes the worker pods run as user and group 1000. With false they name no user, and the platform gives
	// them one, as OpenShift does from the namespace's range; elsewhere the image's own counts, 65532. Default true.
	FixedUser *bool `json:"fixedUser,omitempty"`
	// Scheduling is how a pod reaches a node that carries a gating taint. Default direct; a pod with resourceClaims goes
	// through the scheduler, which alone allocates them, and direct that is written out is then refused. So does a pod
	// that asks for an extended resource which its node does not list in status.allocatable.
	Scheduling Scheduling `json:"scheduling,omitempty" enum:"direct scheduler"`
	// StartTimeoutSeconds bounds the time from a pod's creation to its container's start, without the time of its init
	// containers; past it the attempt is inconclusive. Default 300.
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// InitTimeoutSeconds bounds the time from the start of the first init container to the end of the last one; past it
	// the attempt is inconclusive. Default 0: as startTimeoutSeconds.
	InitTimeoutSeconds int32 `json:"initTimeoutSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// KeepFailedSeconds is how long the last ended pod of a node that did not pass stays for its logs. Default 600; 0
	// keeps none.
	KeepFailedSeconds *int32 `json:"keepFailedSeconds,omitempty" minimum:"0" maximum:"31536000"`

	// Tolerations of the worker pods: as they are by default no start-up taint of a CNI, CSI driver or cloud keeps a
	// worker off. Default [{"operator":"Exists"}]. A list given replaces it; name node.kubernetes.io/not-ready there too.
	// The gating taints and karpenter.sh/unregistered are tolerated whatever it holds. What tolerates everything is not
	// evicted by others: the controller deletes a worker whose node is lost, and starts none on a node that is leaving.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// InitContainers run before the checks. None may be named worker.
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
	// Volumes of the worker pods.
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// VolumeMounts of the worker container; each names one of the volumes.
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// Env is added to the worker container's environment. NODE_NAME, POD_NAMESPACE, LOG_LEVEL,
	// LOG_FORMAT and KUBE_NODE_READY_CONFIG are the controller's to set.
	Env []corev1.EnvVar `json:"env,omitempty"`
	// Resources of the worker container. Default: none requested, none limited.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// ResourceClaims of the worker pods: devices of DRA drivers, which resources.claims of the worker or of an init
	// container name. Pods that have some go through kube-scheduler, which allocates them.
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty"`
	// RuntimeClassName of the worker pods, as nvidia. Default: the container runtime's own handler.
	RuntimeClassName string `json:"runtimeClassName,omitempty" format:"dns-subdomain"`
	// ImagePullSecrets are Secrets in the worker's namespace.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// PodAnnotations are added to the worker pods. Keys that begin with node-ready/ are the controller's. Unless they
	// say otherwise, linkerd.io/inject is disabled.
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// PodLabels are added to the worker pods. app.kubernetes.io/name, app.kubernetes.io/component and keys that begin
	// with node-ready/ are the controller's. Unless they say otherwise, sidecar.istio.io/inject is "false" and
	// istio.io/dataplane-mode is none: a mesh would accept connections in place of the network that is checked.
	PodLabels map[string]string `json:"podLabels,omitempty"`
}

// Image names a container image; Digest wins over Tag.
type Image struct {
	// Repository is the registry and the path, without a tag. Default ghcr.io/kube-node-ready/kube-node-ready, which
	// holds the controller too; ghcr.io/kube-node-ready/kube-node-ready-worker does not, and is pulled in a third of the
	// time.
	Repository string `json:"repository,omitempty" required:"registry and path, or no key for the default" format:"image-repository"`
	// Tag of the image. Default: the controller's own version.
	Tag string `json:"tag,omitempty" format:"image-tag"`
	// Digest pins the image; it wins over the tag.
	Digest string `json:"digest,omitempty" format:"image-digest"`
	// PullPolicy of the image. Default IfNotPresent.
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty" required:"" enum:"Always IfNotPresent Never"`
}

// Scheduling is how a worker pod is bound to its node.
type Scheduling string

const (
	// SchedulingDirect sets spec.nodeName at creation, so that a burst of nodes does not
	// queue behind kube-scheduler's client limit of 50 bindings a second.
	SchedulingDirect Scheduling = "direct"
	// SchedulingScheduler leaves the binding to kube-scheduler.
	SchedulingScheduler Scheduling = "scheduler"
)

// Reconciliation is how often and how persistently nodes are verified.
type Reconciliation struct {
	// MaxRetries is the failure budget: after so many failed attempts a node's retries are
	// exhausted. Inconclusive attempts do not count. Default 5.
	MaxRetries int32 `json:"maxRetries,omitempty" minimum:"1" maximum:"1000"`
	// RetryBackoff is exponential (initial, 2x, 4x, ...) or linear (initial, 2*initial, 3*initial, ...). Default
	// exponential.
	RetryBackoff Backoff `json:"retryBackoff,omitempty" required:"" enum:"exponential linear"`
	// InitialBackoffSeconds is the wait after the first failure. Default 1.
	InitialBackoffSeconds int32 `json:"initialBackoffSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// MaxBackoffSeconds caps the wait. Default 30. After five failures that a control probe shared, it doubles with each
	// further one, up to exhaustedRetrySeconds; a control probe that passes, or a pass, ends that.
	MaxBackoffSeconds int32 `json:"maxBackoffSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// ExhaustedRetrySeconds is how often a node whose retries are exhausted is tried again, so that
	// it recovers from an outage without a hand. A deleted node never is. Default 600; -1 never. With
	// nodeManagement.deleteFailedNodes it is tried at least every ten minutes: only a fresh failure may delete.
	ExhaustedRetrySeconds int32 `json:"exhaustedRetrySeconds,omitempty" minimum:"1" maximum:"31536000" or:"-1 for never"`
	// IntervalSeconds is the safety-net resync of every node; a verified one has its turn in every tenth. Default 30.
	IntervalSeconds int32 `json:"intervalSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// MaxConcurrentVerifications bounds the worker pods that occupy a node at once, control probes included: until their
	// container has ended or they are gone. A pod on a lost node, or one that has been terminating for longer than its
	// grace period and a minute, does not count. Default 0: no limit.
	MaxConcurrentVerifications int32 `json:"maxConcurrentVerifications,omitempty" minimum:"0"`
	// VerificationDeadlineSeconds is how long a node may take to pass before it counts as failed (DeadlineExceeded),
	// whatever kept it: from its creation, and once it has passed from when it must be verified again. A controller that
	// has just taken over grants it one full attempt (worker.startTimeoutSeconds, initTimeoutSeconds and timeoutSeconds).
	// Attempts go on, and a pass releases it. With nodeManagement.deleteFailedNodes it is deleted only for what lies on
	// the node: a worker that its kubelet rejects or does not start although the images are there, or prerequisites that
	// hold on a verified node, each beside a control probe that was made after the deadline and passed, and through all
	// guards. Default 0:
	// none. A dry run has none.
	VerificationDeadlineSeconds int32 `json:"verificationDeadlineSeconds,omitempty" minimum:"0" maximum:"31536000"`
}

// Backoff is the law by which the wait between attempts grows.
type Backoff string

// The backoff laws.
const (
	BackoffExponential Backoff = "exponential"
	BackoffLinear      Backoff = "linear"
)

// NodeManagement is which nodes are verified, and what is done to them.
type NodeManagement struct {
	// Taints gate a node; all of them are removed when it is verified. One of effect NoExecute is never put on a node
	// that runs ordinary pods: it goes on with effect NoSchedule, which gates and is removed as well. Default
	// node-ready/unverified=true:NoSchedule.
	Taints []marks.Taint `json:"taints,omitempty" required:"name at least one, or remove the key for the default one"`
	// VerifiedLabel marks a verified node. Default node-ready/verified=true.
	VerifiedLabel marks.Label `json:"verifiedLabel"`
	// CompletedAnnotation is an annotation that the patch which releases a node sets to the time of that, in Unix
	// seconds, as startup.k8s.io/completedAt. Default: none is written.
	CompletedAnnotation string `json:"completedAnnotation,omitempty" format:"annotation-key"`
	// MinimumHoldSeconds is how long a gating taint stays at least, counted from the node's creation: the first worker
	// starts, and a node without checks is released, no sooner. It is less than any verificationDeadlineSeconds. Default
	// 0.
	MinimumHoldSeconds int32 `json:"minimumHoldSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// NodeSelector narrows the nodes that are looked at. Default: all.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// selector is NodeSelector compiled by Parse; nil in a Config made by hand.
	selector labels.Selector
	// IncludeControlPlane also verifies nodes labelled node-role.kubernetes.io/control-plane. Default false: such a node
	// is verified and released if it carries a gating taint, and never tainted or deleted.
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`
	// VerifyUntainted also verifies nodes that never had the taint. Default false.
	VerifyUntainted bool `json:"verifyUntainted,omitempty"`
	// Prerequisites must all hold before the first worker starts.
	Prerequisites Prerequisites `json:"prerequisites"`
	// Presets add the prerequisites and checks of components that are known to come up late: cilium, calico, aws-vpc-cni,
	// istio-ambient, linkerd, ebs-csi, efs-csi, secrets-store-csi, gpu-nvidia, gpu-nvidia-dra, aws-neuron, aws-efa. They
	// hold for every node, whatever its profile; docs/reference/presets.md says what each stands for.
	Presets []Preset `json:"presets,omitempty"`
	// Reverify is when a verified node is verified again.
	Reverify Reverify `json:"reverify"`
	// DeleteFailedNodes deletes the NodeClaim (or the Node, where there is none) once
	// retries are exhausted and no guard holds it. Default false.
	DeleteFailedNodes bool `json:"deleteFailedNodes,omitempty"`
	// Remediation guards deletion.
	Remediation Remediation `json:"remediation"`
}

// Prerequisites hold the first worker back until the agents that it depends on are there.
type Prerequisites = prerequisite.Table

// Reverify is when a verified node is verified again.
type Reverify struct {
	// OnReboot re-verifies when the node's boot ID changes. Default true.
	OnReboot *bool `json:"onReboot,omitempty"`
	// Interval re-verifies when the last verdict is older, less up to a tenth that differs from node to node. Default 0:
	// off.
	Interval metav1.Duration `json:"interval,omitempty" minimum:"0s"`
	// Taint puts the gating taints back before re-verifying, and before any prerequisite is waited for. Default false. A
	// failed re-verification puts them back whatever this says.
	Taint bool `json:"taint,omitempty"`
	// OnConditions re-verifies a verified node when a condition of it, which a detector of node problems sets, has had a
	// status for a while. A pass clears the suspicion. After a failure the gating taints go back only when a control probe
	// passed on another node, whatever remediation.controlProbe and deleteFailedNodes say. Default: none.
	OnConditions []SuspectCondition `json:"onConditions,omitempty"`
	// CooldownSeconds is how long after a pass the same transition of a condition (its lastTransitionTime) does not
	// re-verify the node again. Another transition does so at once. Default 3600.
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty" minimum:"0" maximum:"31536000"`
}

// SuspectCondition is a node condition under which a verified node is suspected to be broken.
type SuspectCondition struct {
	// Type of the condition. It cannot be node-ready/Verified, which is the controller's own.
	Type corev1.NodeConditionType `json:"type" required:"" format:"qualified-name"`
	// Status that makes the node suspect: True, False or Unknown. Default True.
	Status corev1.ConditionStatus `json:"status,omitempty" required:"" enum:"True False Unknown"`
	// ForSeconds is how long the condition must have had the status, on the controller's clock. Default 0.
	ForSeconds int32 `json:"forSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// Taint puts the gating taints back before the node is verified again, on so many nodes at once as
	// remediation.maxUnhealthy and maxUnhealthyPerZone allow; the others are verified while they stay open. Default false.
	Taint bool `json:"taint,omitempty"`
}

// Remediation guards deletion; each guard that holds is an event, a metric and the condition RemediationHeld.
type Remediation struct {
	// MaxUnhealthy is how many nodes of a NodePool (else of the cluster) may be unhealthy or
	// recently deleted, as a number or a percentage rounded up. Default 20%.
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty" minimum:"0" format:"percentage"`
	// MaxUnhealthyPerZone is the same over the nodes of one zone (label topology.kubernetes.io/zone), whatever their
	// pools: a zone's outage is not its nodes' fault. It does not hold a node without that label. Default: no such limit.
	MaxUnhealthyPerZone *intstr.IntOrString `json:"maxUnhealthyPerZone,omitempty" minimum:"0" format:"percentage"`
	// MaxInFlight is how many nodes of a NodePool (else of the cluster) may be on their way out at once: the next deletion
	// waits until the node of an earlier one is gone. Default 1.
	MaxInFlight *int32 `json:"maxInFlight,omitempty" minimum:"1"`
	// Window is how long a deletion counts towards MaxUnhealthy and MaxUnhealthyPerZone. Default 1h.
	Window metav1.Duration `json:"window,omitempty"`
	// MaxDeletionsPerHour is how many actions of any kind, deletions and others, may begin within an hour over the whole
	// cluster, kept across restarts. Default 10.
	MaxDeletionsPerHour *int32 `json:"maxDeletionsPerHour,omitempty" minimum:"0"`
	// NeverVerifiedOnly quarantines (taints) a node that once was verified, in place of deleting it. Default true.
	NeverVerifiedOnly *bool `json:"neverVerifiedOnly,omitempty"`
	// SparePodsOtherThanDaemonSets spares a node that runs ordinary pods. Default true.
	SparePodsOtherThanDaemonSets *bool `json:"sparePodsOtherThanDaemonSets,omitempty"`
	// ControlProbe runs the same checks on a verified node of the same profile before a failure is held against this
	// one. Default true.
	ControlProbe *bool `json:"controlProbe,omitempty"`
	// DryRun says what would be done about failed nodes, and does nothing. Default false.
	DryRun bool `json:"dryRun,omitempty"`
	// Actions are what is done about a node once deleteFailedNodes is on and no guard holds, in this order: after each the
	// node is verified again, and only if its retries are exhausted again comes the next. Default
	// [{"delete":{},"waitSeconds":600}].
	Actions []Action `json:"actions,omitempty"`
}

// Action is one entry of remediation.actions: it has exactly one of delete, condition and object.
type Action struct {
	// Delete deletes the node's NodeClaim, else the Node. It can only be the last entry.
	Delete *DeleteAction `json:"delete,omitempty"`
	// Condition sets a condition on the Node, on which a repairer acts: a Cluster API MachineHealthCheck, a medik8s
	// NodeHealthCheck, a Karpenter repair policy. It is removed when the node passes, when a guard begins to hold before
	// the node's owner is being deleted, and before the next entry is tried.
	Condition *ConditionAction `json:"condition,omitempty"`
	// Object creates an object, as a remediation resource of medik8s or a Job that reboots the node.
	Object *ObjectAction `json:"object,omitempty"`
	// WaitSeconds is how long after the action the node is verified again; after a reboot it is at once. Default 600.
	WaitSeconds *int32 `json:"waitSeconds,omitempty" minimum:"1" maximum:"31536000"`
}

// DeleteAction has no settings.
type DeleteAction struct{}

// ConditionAction is the condition to set.
type ConditionAction struct {
	// Type of the condition. One that another program writes is not touched. Default node-ready/RemediationRequired.
	Type corev1.NodeConditionType `json:"type,omitempty" required:"" format:"qualified-name"`
	// Status of the condition: True, False or Unknown. Default True.
	Status corev1.ConditionStatus `json:"status,omitempty" required:"" enum:"True False Unknown"`
	// Reason of the condition. Default VerificationFailed.
	Reason string `json:"reason,omitempty" required:"" format:"condition-reason"`
}

// ObjectAction is the object to create.
type ObjectAction struct {
	// Template is the object: apiVersion, kind and whatever else it has. In its strings {{node}}, {{nodeUID}},
	// {{providerID}}, {{reason}}, {{check}} and {{attempt}} are replaced. It has no metadata.name: the controller derives
	// one from the node's UID and the attempt, so that it is created once.
	Template map[string]any `json:"template" required:"with apiVersion and kind"`
	// DeleteOnRecovery deletes the object when the node passes. Default true.
	DeleteOnRecovery *bool `json:"deleteOnRecovery,omitempty"`
}

// LeaderElection is the Lease that lets one replica act.
type LeaderElection struct {
	// Enabled elects a leader. Only a single replica may run without. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// ID is the Lease's name. Default kube-node-ready-controller.
	ID string `json:"id,omitempty" required:"" format:"dns-subdomain"`
	// Namespace of the Lease. Default: the controller's own namespace.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	// Enabled serves /metrics. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// Port of /metrics. Default 8080.
	Port int32 `json:"port,omitempty" minimum:"1" maximum:"65535"`
	// PerNode is which nodes have series of their own. Default all.
	PerNode PerNode `json:"perNode,omitempty" required:"" enum:"all unverified none"`
	// Secure serves /metrics by HTTPS, to those whose bearer token may get the non-resource URL /metrics: the API server
	// is asked for both (TokenReview, SubjectAccessReview). Default false.
	Secure bool `json:"secure,omitempty"`
	// CertificateDir holds tls.crt and tls.key of /metrics, which are read again when they change. It takes secure.
	// Default none: each process makes a certificate that it signs itself, which nobody can verify.
	CertificateDir string `json:"certificateDir,omitempty" format:"absolute-path"`
}

// PerNode is which nodes have series of their own.
type PerNode string

// The PerNode settings.
const (
	PerNodeAll        PerNode = "all"
	PerNodeUnverified PerNode = "unverified"
	PerNodeNone       PerNode = "none"
)

// Health serves /healthz and /readyz.
type Health struct {
	// Port of /healthz and /readyz. Default 8081.
	Port int32 `json:"port,omitempty" minimum:"1" maximum:"65535"`
	// PprofBindAddress is where profiles of the process are served, as host:port, below /debug/pprof: anybody who reaches
	// it can read and slow the process, so 127.0.0.1:6060, behind kubectl port-forward, is a good one. Default: none.
	PprofBindAddress string `json:"pprofBindAddress,omitempty"`
}

// Logging is the zap logger's.
type Logging struct {
	// Level from which messages are logged. Default info.
	Level string `json:"level,omitempty" required:"" enum:"debug info warn error"`
	// Format of the log. Default json.
	Format string `json:"format,omitempty" required:"" enum:"json console"`
}

// Kubernetes is the API client's.
type Kubernetes struct {
	// KubeconfigPath; empty means KUBECONFIG, else in-cluster, else ~/.kube/config.
	KubeconfigPath string `json:"kubeconfigPath,omitempty"`
	// QPS limits requests a second on the client's side. Default 0: none, the API server's
	// Priority and Fairness is what limits, and a burst of nodes does not queue twice.
	QPS float32 `json:"qps,omitempty" minimum:"0" maximum:"1000000"`
	// Burst is how many requests may exceed QPS at once. Default: twice qps.
	Burst int32 `json:"burst,omitempty" minimum:"0"`
}

// Profile overrides, for the nodes it selects, what is checked, in which pod, and which taints gate them.
type Profile struct {
	// Name of the profile, unique.
	Name string `json:"name" required:"" format:"dns-label"`
	// NodeSelector selects the profile's nodes by their labels; it must not be empty.
	NodeSelector metav1.LabelSelector `json:"nodeSelector" required:"select its nodes; what all share goes to worker"`
	// selector is NodeSelector compiled by Parse; nil in a Config made by hand.
	selector labels.Selector
	// Checks replaces worker.checks; absent keeps them, and an empty list is none, as there.
	Checks []checks.Spec `json:"checks,omitzero"`
	// DNSTestDomains replaces worker.dnsTestDomains; empty keeps them.
	DNSTestDomains []string `json:"dnsTestDomains,omitempty"`
	// TimeoutSeconds replaces worker.timeoutSeconds; 0 keeps it.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty" minimum:"0" maximum:"3600"`
	// VerificationDeadlineSeconds replaces reconciliation.verificationDeadlineSeconds, 0 for none; absent keeps it.
	VerificationDeadlineSeconds *int32 `json:"verificationDeadlineSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// Taints replaces nodeManagement.taints; empty keeps them.
	Taints []marks.Taint `json:"taints,omitempty"`
	// Prerequisites replaces nodeManagement.prerequisites; absent keeps them.
	Prerequisites *Prerequisites `json:"prerequisites,omitempty"`
	// Presets add to nodeManagement.presets, and to whatever prerequisites and checks the profile has. What a preset's
	// DaemonSets provide is waited for on every node of the profile, before their pods belong there too.
	Presets []Preset `json:"presets,omitempty"`
	// Image replaces worker.image. A key that is left out is that of worker.image, but for a digest, which pins that image
	// alone. It must hold /kube-node-ready-worker: for a tool that is an image of its own, use an init container.
	Image *Image `json:"image,omitempty"`
	// StartTimeoutSeconds replaces worker.startTimeoutSeconds; 0 keeps it.
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// InitTimeoutSeconds replaces worker.initTimeoutSeconds; 0 keeps it.
	InitTimeoutSeconds int32 `json:"initTimeoutSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// Tolerations replaces worker.tolerations; empty keeps them.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// InitContainers replaces worker.initContainers; absent keeps them, and an empty list is none.
	InitContainers []corev1.Container `json:"initContainers,omitzero"`
	// Volumes replaces worker.volumes; absent keeps them, and an empty list is none.
	Volumes []corev1.Volume `json:"volumes,omitzero"`
	// VolumeMounts replaces worker.volumeMounts; absent keeps them, and an empty list is none.
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitzero"`
	// Env replaces worker.env; absent keeps it, and an empty list is none.
	Env []corev1.EnvVar `json:"env,omitzero"`
	// Resources replaces worker.resources; absent keeps them.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// ResourceClaims replaces worker.resourceClaims; absent keeps them, and an empty list is none.
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitzero"`
	// RuntimeClassName replaces worker.runtimeClassName; empty keeps it.
	RuntimeClassName string `json:"runtimeClassName,omitempty" format:"dns-subdomain"`
	// ImagePullSecrets replaces worker.imagePullSecrets; absent keeps them, and an empty list is none.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitzero"`
	// PodAnnotations replaces worker.podAnnotations; absent keeps them, and {} is none.
	PodAnnotations map[string]string `json:"podAnnotations,omitzero"`
	// PodLabels replaces worker.podLabels; absent keeps them, and {} is none.
	PodLabels map[string]string `json:"podLabels,omitzero"`
	// Reverify replaces parts of nodeManagement.reverify; absent keeps them.
	Reverify *ProfileReverify `json:"reverify,omitempty"`
}

// ProfileReverify is the part of nodeManagement.reverify that a profile has of its own.
type ProfileReverify struct {
	// OnConditions replaces nodeManagement.reverify.onConditions; an empty list is none.
	OnConditions []SuspectCondition `json:"onConditions"`
}
