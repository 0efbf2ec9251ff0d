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
	// Worker describes the pod that verifies a node, and its checks.
	Worker Worker `json:"worker"`
	// Reconciliation is how often and how persistently nodes are verified.
	Reconciliation Reconciliation `json:"reconciliation"`
	// NodeManagement is which nodes are verified, and how their marks change.
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
	// Profiles give groups of nodes their own checks, taints or worker pods. A node has the first profile whose selector
	// matches it, or else the defaults.
	Profiles []Profile `json:"profiles,omitempty"`
	// Admission taints nodes on creation, for clusters whose autoscaler cannot.
	Admission Admission `json:"admission"`
	// Rules serves NodeReadinessRule resources.
	Rules Rules `json:"rules"`

	// vocabulary is made by Parse; empty in a Config made by hand.
	vocabulary marks.Vocabulary
}

// Rules is the controller of NodeReadinessRule resources.
type Rules struct {
	// Enabled serves NodeReadinessRules if the API server has them. Of several installations in a cluster, enable it in
	// one. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// TakeOver serves rules although the node-readiness-controller of the Kubernetes SIG runs (its Lease is renewed). Two
	// controllers of one rule undo each other's changes, so stop the other one. Default false.
	TakeOver bool `json:"takeOver,omitempty"`
	// OtherControllerNamespaces are the namespaces in which the Lease of the node-readiness-controller counts. While the
	// controller observes that the Lease is renewed in one of them, at least once a minute, it serves no rules. List no
	// namespace in which a tenant may write Leases. An empty list serves rules whatever runs. Default
	// ["nrr-system","kube-system"].
	OtherControllerNamespaces []string `json:"otherControllerNamespaces,omitempty" format:"dns-label"`
	// StaleAfter is how long after its last heartbeat a node condition counts as missing. It applies only to conditions
	// whose heartbeat the controller has observed to change, and nothing else of them. It is measured from that
	// observation. Default 0s: never.
	StaleAfter metav1.Duration `json:"staleAfter,omitempty" minimum:"1s" or:"0s for never"`
	// MaxClosedPercent limits how many nodes a continuous rule taints again. Of the nodes that the rule has released
	// before, at most this percentage (rounded down, but at least one node) has the taint at a time. The others stay open
	// although their conditions fail. A node that the rule has not released yet is always gated, and does not count.
	// Default 0: no limit.
	MaxClosedPercent int32 `json:"maxClosedPercent,omitempty" minimum:"0" maximum:"100"`
}

// Worker describes the pod that verifies a node, and, inlined, what it checks.
type Worker struct {
	worker.Config

	// Image is the worker's container image.
	Image Image `json:"image"`
	// Namespace holds the worker pods. Default: the controller's own namespace (POD_NAMESPACE, else the service account's,
	// else the kubeconfig context's, else "default"). After a change, the controller no longer sees workers in the
	// previous namespace. For some minutes, a second worker may run beside one of them.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// ServiceAccountName is the worker pods' identity. Default kube-node-ready-worker.
	ServiceAccountName string `json:"serviceAccountName,omitempty" required:"" format:"dns-subdomain"`
	// PriorityClassName of the worker pods on nodes with a gating taint. On other nodes, workers have no priority class
	// and evict no workload. Default system-node-critical.
	PriorityClassName string `json:"priorityClassName,omitempty" required:"" format:"dns-subdomain"`
	// FixedUser makes the worker pods run as user and group 1000. With false, they name no user. OpenShift then assigns
	// one from the namespace's range; other platforms use the image's user, 65532. Default true.
	FixedUser *bool `json:"fixedUser,omitempty"`
	// Scheduling is how a pod reaches a node with a gating taint. Default direct. A pod with resourceClaims always goes
	// through kube-scheduler, which alone allocates claims; an explicit direct is then an error. A pod that requests an
	// extended resource also does, if status.allocatable of its node does not list the resource.
	Scheduling Scheduling `json:"scheduling,omitempty" enum:"direct scheduler"`
	// StartTimeoutSeconds limits the time from a pod's creation to its container's start, without its init containers.
	// After it, the attempt is inconclusive. Default 300.
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// InitTimeoutSeconds limits the time from the start of the first init container to the end of the last one. After it,
	// the attempt is inconclusive. Default 0: the same as startTimeoutSeconds.
	InitTimeoutSeconds int32 `json:"initTimeoutSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// KeepFailedSeconds is how long the last worker pod of a node that did not pass is kept for its logs. Default 600; 0
	// keeps none.
	KeepFailedSeconds *int32 `json:"keepFailedSeconds,omitempty" minimum:"0" maximum:"31536000"`

	PodTemplate
}

// PodTemplate is the settings of the worker pods that a profile can replace as they are.
type PodTemplate struct {
	// Tolerations of the worker pods. By default, no startup taint of a CNI, CSI driver or cloud keeps a worker off.
	// Default [{"operator":"Exists"}]. A list of yours replaces it, and should include node.kubernetes.io/not-ready.
	// Workers always tolerate the gating taints and karpenter.sh/unregistered. Because nothing else evicts such a pod, the
	// controller deletes a worker whose node is lost, and starts none on a node that is terminating or draining.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// InitContainers run before the checks. None may have the name worker.
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
	// Volumes of the worker pods.
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// VolumeMounts of the worker container; each names one of the volumes.
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// Env is added to the worker container's environment. Only the controller sets NODE_NAME, POD_NAMESPACE, LOG_LEVEL,
	// LOG_FORMAT and KUBE_NODE_READY_CONFIG.
	Env []corev1.EnvVar `json:"env,omitempty"`
	// Resources of the worker container. Default: no requests and no limits.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// ResourceClaims of the worker pods, for devices of DRA drivers. resources.claims of the worker or of an init
	// container refers to them. Pods with claims go through kube-scheduler, which allocates them.
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty"`
	// RuntimeClassName of the worker pods, for example nvidia. Default: the container runtime's own handler.
	RuntimeClassName string `json:"runtimeClassName,omitempty" format:"dns-subdomain"`
	// ImagePullSecrets are Secrets in the worker's namespace.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// PodAnnotations are added to the worker pods. Keys that begin with node-ready/ belong to the controller. Unless you
	// set it here, linkerd.io/inject is disabled.
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// PodLabels are added to the worker pods. app.kubernetes.io/name, app.kubernetes.io/component and keys that begin with
	// node-ready/ belong to the controller. Unless you set them here, sidecar.istio.io/inject is "false" and
	// istio.io/dataplane-mode is none, because a mesh would accept connections instead of the network that is checked.
	PodLabels map[string]string `json:"podLabels,omitempty"`
}

// Image names a container image. Digest takes precedence over Tag.
type Image struct {
	// Repository is the registry and the path, without a tag. Default ghcr.io/kube-node-ready/kube-node-ready, which
	// contains the controller too. ghcr.io/kube-node-ready/kube-node-ready-worker contains only the worker, and is pulled
	// in a third of the time.
	Repository string `json:"repository,omitempty" required:"registry and path, or no key for the default" format:"image-repository"`
	// Tag of the image. Default: the controller's own version.
	Tag string `json:"tag,omitempty" format:"image-tag"`
	// Digest pins the image, and takes precedence over the tag.
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
	// MaxRetries is the number of failed attempts after which a node's retries are exhausted. Inconclusive attempts do not
	// count. Default 5.
	MaxRetries int32 `json:"maxRetries,omitempty" minimum:"1" maximum:"1000"`
	// RetryBackoff is exponential (initial, 2x, 4x, ...) or linear (initial, 2*initial, 3*initial, ...). Default
	// exponential.
	RetryBackoff Backoff `json:"retryBackoff,omitempty" required:"" enum:"exponential linear"`
	// InitialBackoffSeconds is the wait after the first failure. Default 1.
	InitialBackoffSeconds int32 `json:"initialBackoffSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// MaxBackoffSeconds limits the wait. Default 30. After five failures that a control probe shared, each further one
	// doubles it, up to exhaustedRetrySeconds. A control probe that passes, or a pass of the node, resets it.
	MaxBackoffSeconds int32 `json:"maxBackoffSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// ExhaustedRetrySeconds is how often a node whose retries are exhausted is tried again, so that it recovers from an
	// outage by itself. A node that is being deleted is not tried. Default 600; -1 means never. With
	// nodeManagement.deleteFailedNodes, it is tried at least every ten minutes, because a deletion needs a recent failure.
	ExhaustedRetrySeconds int32 `json:"exhaustedRetrySeconds,omitempty" minimum:"1" maximum:"31536000" or:"-1 for never"`
	// IntervalSeconds is how often every node is reconciled without an event, in case an event was missed. A verified node
	// has its turn every tenth time, and only if something is left to do for it. The guards of held nodes are evaluated as
	// often. Default 30.
	IntervalSeconds int32 `json:"intervalSeconds,omitempty" minimum:"1" maximum:"31536000"`
	// MaxConcurrentVerifications limits how many worker pods, including control probes, occupy a node at once. A pod
	// occupies its node until its container has ended or the pod is gone. A pod on a lost node does not count. A pod that
	// has been terminating for longer than its grace period and a minute does not count either. Default 0: no limit.
	MaxConcurrentVerifications int32 `json:"maxConcurrentVerifications,omitempty" minimum:"0"`
	// VerificationDeadlineSeconds is how long a node may take to pass before it counts as failed (DeadlineExceeded),
	// whatever the cause. It starts with the node's creation or, for a node that has passed, when the node must be
	// verified again. A controller that has just become the leader grants one full attempt (worker.startTimeoutSeconds,
	// initTimeoutSeconds and timeoutSeconds). Attempts continue, and a pass still releases the node. What
	// follows is onDeadline. Default 0: none. A dry run has no deadline.
	VerificationDeadlineSeconds int32 `json:"verificationDeadlineSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// OnDeadline is what follows for a node past its deadline: hold, remediate or release. With remediate, the node counts
	// as one whose retries are exhausted, whatever keeps it, and goes through the control probe and all guards. That needs
	// nodeManagement.deleteFailedNodes. It does nothing for a node without checks, or where no verified node can run the
	// probe. With release, the gating taints are removed once, without the verified label, unless the retries are
	// exhausted. The node counts as failed until it passes, and is tainted again if it exhausts its retries. With either,
	// an attempt that runs, or that can start, comes first. Default hold: nothing follows.
	OnDeadline OnDeadline `json:"onDeadline,omitempty" required:"" enum:"hold remediate release"`
}

// OnDeadline is what follows for a node past its deadline.
type OnDeadline string

// The OnDeadline settings.
const (
	OnDeadlineHold      OnDeadline = "hold"
	OnDeadlineRemediate OnDeadline = "remediate"
	OnDeadlineRelease   OnDeadline = "release"
)

// Backoff is how the wait between attempts grows.
type Backoff string

// The Backoff settings.
const (
	BackoffExponential Backoff = "exponential"
	BackoffLinear      Backoff = "linear"
)

// NodeManagement is which nodes are verified, and how their marks change.
type NodeManagement struct {
	// Taints gate a node. All of them are removed when the node is verified. A node that runs ordinary pods never gets a
	// NoExecute taint: it gets the taint with effect NoSchedule, which also gates and is also removed. Default
	// node-ready/unverified=true:NoSchedule.
	Taints []marks.Taint `json:"taints,omitempty" required:"name at least one, or remove the key for the default one"`
	// VerifiedLabel marks a verified node. Default node-ready/verified=true.
	VerifiedLabel marks.Label `json:"verifiedLabel"`
	// CompletedAnnotation is the key of an annotation for the time at which a node is released, in Unix seconds, for
	// example startup.k8s.io/completedAt. The patch that releases the node sets it. Default: none.
	CompletedAnnotation string `json:"completedAnnotation,omitempty" format:"annotation-key"`
	// MinimumHoldSeconds is the shortest time that a gating taint stays, from the node's creation. No worker starts
	// before, and no node without checks is released before. It must be less than every verificationDeadlineSeconds.
	// Default 0.
	MinimumHoldSeconds int32 `json:"minimumHoldSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// NodeSelector limits which nodes the controller manages. Default: all nodes.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// selector is NodeSelector compiled by Parse; nil in a Config made by hand.
	selector labels.Selector
	// IncludeControlPlane also verifies control-plane nodes: those with a label node-role.kubernetes.io/control-plane,
	// node-role.kubernetes.io/master, node-role.kubernetes.io/controlplane, node-role.kubernetes.io/etcd or
	// node.kubernetes.io/microk8s-controlplane. Default false: such a node is verified and released if it has a gating
	// taint, but it is never tainted or deleted.
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`
	// VerifyUntainted also verifies nodes that never had the taint. Default false.
	VerifyUntainted bool `json:"verifyUntainted,omitempty"`
	// LeavingTaints are the keys of further taints, of any value and effect, that other programs add to a node before they
	// remove it. While a node has one, no worker starts on it. No action is taken on it, and it counts in no limit of
	// remediation. The guide on autoscalers lists the taints that are known without this key. Default: none.
	LeavingTaints []string `json:"leavingTaints,omitempty" format:"qualified-name"`
	// Prerequisites must all hold before the first worker starts.
	Prerequisites Prerequisites `json:"prerequisites"`
	// Presets add the prerequisites and checks of components that often start late: cilium, calico, aws-vpc-cni,
	// istio-ambient, linkerd, ebs-csi, efs-csi, secrets-store-csi, gpu-nvidia, gpu-nvidia-dra, aws-neuron, aws-efa. They
	// apply to every node, whatever its profile. docs/reference/presets.md describes each of them.
	Presets []Preset `json:"presets,omitempty"`
	// Reverify is when a verified node is verified again.
	Reverify Reverify `json:"reverify"`
	// DeleteFailedNodes takes remediation.action on a node once its retries are exhausted and no guard holds. The default
	// action deletes the node's NodeClaim, or the Node if it has no NodeClaim. Default false.
	DeleteFailedNodes bool `json:"deleteFailedNodes,omitempty"`
	// Remediation is the action on failed nodes, and what guards it.
	Remediation Remediation `json:"remediation"`
}

// Prerequisites delay the first worker until the agents that it depends on are ready.
type Prerequisites = prerequisite.Table

// Reverify is when a verified node is verified again.
type Reverify struct {
	// OnReboot verifies a node again when its boot ID changes. Default true.
	OnReboot *bool `json:"onReboot,omitempty"`
	// Interval verifies a node again when its last verdict is older. It is shorter by up to a tenth, which differs from
	// node to node. Default 0: off.
	Interval metav1.Duration `json:"interval,omitempty" minimum:"0s"`
	// Taint adds the gating taints before a node is verified again, and before it waits for any prerequisite. Default
	// false. Without it, a node is closed at its second failure in a row that a control probe shows to be its own. With
	// it, cluster DNS must tolerate the taints: an outage that all nodes share would otherwise keep it off all of them.
	Taint bool `json:"taint,omitempty"`
	// OnConditions verifies a verified node again when one of its conditions, which a detector of node problems sets, has
	// had a status for a time. A pass clears the suspicion. After a failure, the gating taints are added only if a control
	// probe passed on another node, whatever the values of remediation.controlProbe and deleteFailedNodes. Default: none.
	OnConditions []SuspectCondition `json:"onConditions,omitempty"`
	// CooldownSeconds is how long a condition counts less after a pass that cleared it. Until then, no condition of that
	// type closes the gate. The same transition (lastTransitionTime) does not verify the node again, and other transitions
	// do so at most once a minute. Default 3600.
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty" minimum:"0" maximum:"31536000"`
}

// SuspectCondition is a node condition that makes a verified node suspect.
type SuspectCondition struct {
	// Type of the condition. It cannot be node-ready/Verified, which is the controller's own.
	Type corev1.NodeConditionType `json:"type" required:"" format:"qualified-name"`
	// Status that makes the node suspect: True, False or Unknown. Default True.
	Status corev1.ConditionStatus `json:"status,omitempty" required:"" enum:"True False Unknown"`
	// ForSeconds is how long the condition must have had the status, on the controller's clock. Default 0.
	ForSeconds int32 `json:"forSeconds,omitempty" minimum:"0" maximum:"31536000"`
	// Taint adds the gating taints before the node is verified again, on as many nodes at once as remediation.maxUnhealthy
	// and maxUnhealthyPerZone allow. The other nodes are verified without a taint. Default false.
	Taint bool `json:"taint,omitempty"`
}

// Remediation guards deletions and other actions. A guard that holds shows as an event, a metric and the condition
// RemediationHeld.
type Remediation struct {
	// MaxUnhealthy is how many nodes of a NodePool, or of the cluster without NodePools, may be unhealthy or recently
	// deleted: a number, or a percentage, which is rounded up. Default 20%.
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty" minimum:"0" format:"percentage"`
	// MaxUnhealthyPerZone is the same limit for the nodes of one zone (label topology.kubernetes.io/zone), whatever their
	// NodePool, because an outage of a zone is not the fault of its nodes. It does not apply to nodes without that label.
	// Default: no limit.
	MaxUnhealthyPerZone *intstr.IntOrString `json:"maxUnhealthyPerZone,omitempty" minimum:"0" format:"percentage"`
	// MaxInFlight is how many nodes of a NodePool, or of the cluster without NodePools, may be deleted or repaired at
	// once. The next action waits until an earlier node is gone or passes. Default 1.
	MaxInFlight *int32 `json:"maxInFlight,omitempty" minimum:"1"`
	// Window is how long an action counts towards MaxUnhealthy and MaxUnhealthyPerZone. Default 1h.
	Window metav1.Duration `json:"window,omitempty"`
	// MaxDeletionsPerHour is on how many nodes of the whole cluster an action, a deletion or a condition, may begin within
	// an hour. The count survives restarts. Default 10.
	MaxDeletionsPerHour *int32 `json:"maxDeletionsPerHour,omitempty" minimum:"0"`
	// NeverVerifiedOnly quarantines (taints) a node that was verified before, instead of deleting it. Default true.
	NeverVerifiedOnly *bool `json:"neverVerifiedOnly,omitempty"`
	// SparePodsOtherThanDaemonSets spares a node that runs ordinary pods. Default true.
	SparePodsOtherThanDaemonSets *bool `json:"sparePodsOtherThanDaemonSets,omitempty"`
	// ControlProbe runs the same checks on a verified node of the same profile before a failure counts against a node.
	// Default true.
	ControlProbe *bool `json:"controlProbe,omitempty"`
	// DryRun only reports which action would be taken on failed nodes. Default false.
	DryRun bool `json:"dryRun,omitempty"`
	// Action is what is done about a failed node if deleteFailedNodes is on and no guard holds: delete or condition. With
	// delete, its NodeClaim is deleted, or the Node if it has no NodeClaim. With condition, the Node has a condition on
	// which a repairer acts: a Cluster API MachineHealthCheck, a medik8s NodeHealthCheck, a Karpenter repair policy.
	// Default delete.
	Action RemediationAction `json:"action,omitempty" required:"" enum:"delete condition"`
	// Condition is what action condition keeps on a Node. It is there exactly while the node has exhausted its retries and
	// no guard holds. Its reason is always NodeReadyVerificationFailed. The controller removes any condition with that
	// reason that a node should not have, whatever its type.
	Condition RemediationCondition `json:"condition"`
}

// RemediationAction is what is done about a failed node.
type RemediationAction string

// The actions.
const (
	ActionDelete    RemediationAction = "delete"
	ActionCondition RemediationAction = "condition"
)

// RemediationCondition is the condition that asks a repairer to act on a node.
type RemediationCondition struct {
	// Type of the condition. A condition of the type that another program set is not changed, and the node is held.
	// Default node-ready/RemediationRequired.
	Type corev1.NodeConditionType `json:"type,omitempty" required:"" format:"qualified-name"`
	// Status of the condition: True, False or Unknown. Default True.
	Status corev1.ConditionStatus `json:"status,omitempty" required:"" enum:"True False Unknown"`
}

// LeaderElection is the Lease that lets one replica act.
type LeaderElection struct {
	// Enabled elects a leader. Without it, only a single replica may run. Default true.
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
	// PerNode is for which nodes there are series of their own. Default all.
	PerNode PerNode `json:"perNode,omitempty" required:"" enum:"all unverified none"`
	// Secure serves /metrics over HTTPS, only to clients whose bearer token may get the non-resource URL /metrics. The API
	// server checks both (TokenReview, SubjectAccessReview). Default false.
	Secure bool `json:"secure,omitempty"`
	// CertificateDir holds tls.crt and tls.key of /metrics, which are read again when they change. It needs secure.
	// Default none: each process creates a self-signed certificate, which nobody can verify.
	CertificateDir string `json:"certificateDir,omitempty" format:"absolute-path"`
}

// PerNode is for which nodes there are series of their own.
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
	// PprofBindAddress is the host:port for profiles of the process, below /debug/pprof. Anybody who can connect can read
	// from the process and slow it, so use 127.0.0.1:6060 with kubectl port-forward. Default: none.
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
	// QPS limits the client's requests per second. Default 0: no limit, because API Priority and Fairness limits them in
	// the API server, and a burst of nodes must not queue twice.
	QPS float32 `json:"qps,omitempty" minimum:"0" maximum:"1000000"`
	// Burst is how many requests may exceed QPS at once. Default: twice qps.
	Burst int32 `json:"burst,omitempty" minimum:"0"`
}

// Profile overrides the checks, the worker pod and the gating taints of the nodes that it selects.
type Profile struct {
	// Name of the profile, unique.
	Name string `json:"name" required:"" format:"dns-label"`
	// NodeSelector selects the profile's nodes by their labels; it must not be empty.
	NodeSelector metav1.LabelSelector `json:"nodeSelector" required:"select its nodes; what all share goes to worker"`
	// selector is NodeSelector compiled by Parse; nil in a Config made by hand.
	selector labels.Selector
	// Checks replaces worker.checks; absent keeps them, and an empty list means none.
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
	// Presets add to nodeManagement.presets, and to the prerequisites and checks of the profile. Every node of the profile
	// waits for what a preset's DaemonSets provide, even before their pods can run on the node.
	Presets []Preset `json:"presets,omitempty"`
	// Image replaces worker.image. Absent keys keep the values of worker.image, except for digest, which pins only that
	// image. The image must contain /kube-node-ready-worker. For a tool in another image, use an init container.
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

// ProfileReverify is the part of nodeManagement.reverify that a profile can replace.
type ProfileReverify struct {
	// OnConditions replaces nodeManagement.reverify.onConditions; an empty list is none.
	OnConditions []SuspectCondition `json:"onConditions"`
}
