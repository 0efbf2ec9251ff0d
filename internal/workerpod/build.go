// Package workerpod builds worker pods and reads their state.
package workerpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// Marks on a worker pod.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"
	// Name and Component are the values of those labels on a worker pod.
	Name      = "kube-node-ready"
	Component = "worker"
	// LabelNodeUID holds the UID of the node that the pod runs on; names are too long for a label.
	LabelNodeUID = "node-ready/node-uid"
	// LabelPurpose is PurposeVerify, PurposeProbe or PurposeCheck.
	LabelPurpose = "node-ready/purpose"
	// AnnotationNode holds the node's name, up to 253 characters.
	AnnotationNode = "node-ready/node"
	// AnnotationAttempt is the attempt's number; see marks.Record.Sequence.
	AnnotationAttempt = "node-ready/attempt"
	// AnnotationBootID is the node's boot when the pod was created: a result from before a
	// reboot says nothing about the node after it.
	AnnotationBootID = "node-ready/boot-id"
	// AnnotationGated is "true" if the node carried a gating taint when the pod was created: a pass from before the taint
	// came back does not remove it.
	AnnotationGated = "node-ready/gated"
	// AnnotationRequest is the ID of the request for a verification that the attempt answers. It is absent where nobody
	// asked.
	AnnotationRequest = "node-ready/request"
	// AnnotationProfile and AnnotationChecks tell which checks the pod runs: the profile's name, and a hash of what the
	// worker is told and of the rest of the pod.
	AnnotationProfile = "node-ready/profile"
	AnnotationChecks  = "node-ready/checks"
	// AnnotationStartTimeout, AnnotationInitTimeout and AnnotationTimeout are the seconds for the start, the init
	// containers and the run of the worker, according to the configuration at the pod's creation. A pod without init
	// containers lacks the second.
	AnnotationStartTimeout = "node-ready/start-timeout-seconds"
	AnnotationInitTimeout  = "node-ready/init-timeout-seconds"
	AnnotationTimeout      = "node-ready/timeout-seconds"
	// AnnotationRecorded marks an ended pod that is only kept for its logs.
	AnnotationRecorded = "node-ready/recorded"
	// AnnotationSubject is, on a probe, the failed attempt that asked for it.
	AnnotationSubject = "node-ready/subject"
	// LabelProbeGroup is, on a probe, whose failures it speaks for; see Group.
	LabelProbeGroup = "node-ready/probe-group"

	// PurposeVerify is a pod that verifies its node.
	PurposeVerify = "verify"
	// PurposeProbe is a pod that runs a failed node's checks on a verified one.
	PurposeProbe = "probe"
	// PurposeCheck is a pod that a person runs. It does not belong to the controller.
	PurposeCheck = "check"

	// Container is the name of the container whose exit code counts.
	Container = "worker"
	// Command is the worker's path in the image.
	Command = "/kube-node-ready-worker"
)

// grace is the pods' termination grace. The worker ends within a second of SIGTERM.
const grace int64 = 5

// deadlineSlack is added to the kubelet's own deadline. That deadline only matters if the controller is gone. Otherwise
// those of the controller and of the worker come first.
const deadlineSlack = 30

// Keep service meshes out of worker pods: a sidecar or a redirection accepts every connection in place of the network
// that is checked. Istio reads labels (pkg/kube/inject/inject.go; istio-cni for ambient mode), Linkerd an annotation
// (pkg/inject/report.go). worker.podLabels and worker.podAnnotations win.
var (
	meshLabels      = map[string]string{"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
	meshAnnotations = map[string]string{"linkerd.io/inject": "disabled"}
)

// Target is the node to which a pod is pinned.
type Target struct {
	Name, UID, BootID string
	// Gated: the node carries a gating taint, so no workload can be there that a pod of high priority would displace.
	Gated bool
	// Request is the ID of the request for a verification that an attempt answers; empty for none.
	Request string
}

// Builder makes worker pods. Its fields come from the configuration.
type Builder struct {
	Namespace string
	Image     string

	worker  config.Worker
	logging config.Logging
	gating  []marks.Taint
	configs map[string]workerConfig // by profile
}

// workerConfig is the configuration of a profile's workers, and a hash of it and of the rest of their pods.
type workerConfig struct{ env, hash string }

// NewBuilder prepares what all pods of a profile have in common. It fails for a configuration that cannot be passed to
// a worker.
func NewBuilder(cfg *config.Config, namespace, image string) (*Builder, error) {
	b := &Builder{Namespace: namespace, Image: image, worker: cfg.Worker, logging: cfg.Logging,
		gating: cfg.Vocabulary().Gating, configs: map[string]workerConfig{}}
	for _, e := range cfg.Variants() {
		env, err := worker.Config{
			Checks: e.Checks, DNSTestDomains: e.DNSTestDomains,
			CheckTimeoutSeconds: cfg.Worker.CheckTimeoutSeconds, TimeoutSeconds: e.TimeoutSeconds,
		}.Env()
		if err != nil {
			return nil, fmt.Errorf("worker configuration of profile %q: %w", e.Profile, err)
		}
		b.configs[e.Profile] = workerConfig{env: env}
		template, err := b.template(e)
		if err != nil {
			return nil, fmt.Errorf("worker pod of profile %q: %w", e.Profile, err)
		}
		b.configs[e.Profile] = workerConfig{env: env, hash: hash("checks", template)}
	}
	return b, nil
}

// template is the part of a profile's pods that does not depend on the node or the attempt, without the profile's name.
func (b *Builder) template(profile config.Effective) (string, error) {
	pod := b.pod(Target{Gated: true}, profile, profile.Scheduling)
	delete(pod.Annotations, AnnotationProfile)
	text, err := json.Marshal(pod)
	return string(text), err
}

// Checks identifies the checks and the pod of a profile's workers. For two profiles with the same value, a pass of one
// is a pass of the other.
func (b *Builder) Checks(profile string) string { return b.configs[profile].hash }

func activeDeadline(profile config.Effective) int64 {
	return int64(profile.AttemptSeconds()) + deadlineSlack
}

// VerifyName is the deterministic name of the pod for one attempt. For any valid node name it is a DNS label of at most
// 63 characters, so that it can also be the pod's hostname.
func VerifyName(t Target, number int32) string {
	return name("verify", t.Name, hash(t.UID, t.Name), strconv.Itoa(int(number)))
}

// ProbeName is the name of the probe on node t for a failed attempt.
func ProbeName(t Target, subject string) string {
	return name("probe", t.Name, hash(t.UID, t.Name, subject), "0")
}

// probeNamed reports whether a name could be that of a probe on the node, whosever failure it was made for.
func probeNamed(pod, node string) bool {
	like := ProbeName(Target{Name: node}, "")
	end := strings.LastIndex(like, "-")
	begin := end - len(hash())
	return len(pod) == len(like) && pod[:begin] == like[:begin] && pod[end:] == like[end:]
}

// Group names the nodes whose failures one probe explains: same pool, same profile. more tells the groups of one pool
// and profile apart. It is a label value.
func Group(pool, profile string, more ...string) string {
	return hash(append([]string{"group", pool, profile}, more...)...)
}

func name(prefix, node, hash, suffix string) string {
	const most = 63
	cut := strings.ReplaceAll(node, ".", "-")
	if room := most - len(prefix) - len(hash) - len(suffix) - 3; len(cut) > room {
		cut = cut[:room]
	}
	return prefix + "-" + strings.Trim(cut, "-") + "-" + hash + "-" + suffix
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:5])
}

// Verify builds the pod of one attempt.
func (b *Builder) Verify(t Target, profile config.Effective, number int32, via config.Scheduling) *corev1.Pod {
	pod := b.pod(t, profile, via)
	pod.Name = VerifyName(t, number)
	pod.Labels[LabelPurpose] = PurposeVerify
	pod.Annotations[AnnotationAttempt] = strconv.Itoa(int(number))
	if delete(pod.Annotations, AnnotationRequest); t.Request != "" {
		pod.Annotations[AnnotationRequest] = t.Request
	}
	return pod
}

// Probe builds the pod that runs the same checks on a verified node, for the failed attempt subject.
func (b *Builder) Probe(t Target, profile config.Effective, subject, group string) *corev1.Pod {
	pod := b.pod(t, profile, config.SchedulingScheduler)
	pod.Name = ProbeName(t, subject)
	pod.Labels[LabelPurpose] = PurposeProbe
	pod.Labels[LabelProbeGroup] = group
	pod.Annotations[AnnotationSubject] = subject
	return pod
}

// Check builds the pod that runs a node's checks for a person; id tells it from another one.
func (b *Builder) Check(t Target, profile config.Effective, id string, via config.Scheduling) *corev1.Pod {
	pod := b.pod(t, profile, via)
	pod.Name = name(PurposeCheck, t.Name, hash(t.UID, t.Name, id), "0")
	pod.Labels[LabelPurpose] = PurposeCheck
	return pod
}

func (b *Builder) pod(t Target, profile config.Effective, via config.Scheduling) *corev1.Pod {
	w, told := b.worker, b.configs[profile.Profile]
	image, policy := b.Image, w.Image.PullPolicy
	if own := profile.Image; own != nil {
		image, policy = own.Reference(version.Version), own.PullPolicy
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   b.Namespace,
			Labels:      maps.Clone(meshLabels),
			Annotations: maps.Clone(meshAnnotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: t.Name, UID: uid(t.UID), BlockOwnerDeletion: ptr.To(false),
				Controller: ptr.To(true), // kubectl drain stops at a pod that no controller manages
			}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            w.ServiceAccountName,
			ActiveDeadlineSeconds:         ptr.To(activeDeadline(profile)),
			TerminationGracePeriodSeconds: ptr.To(grace),
			EnableServiceLinks:            ptr.To(false),
			AutomountServiceAccountToken:  ptr.To(true), // the worker's API checks need it, whatever the service account says
			ImagePullSecrets:              profile.ImagePullSecrets,
			InitContainers:                profile.InitContainers,
			Volumes:                       profile.Volumes,
			ResourceClaims:                profile.ResourceClaims,
			Tolerations:                   b.tolerations(profile),
			NodeSelector:                  map[string]string{corev1.LabelOSStable: string(corev1.Linux)},
			Affinity:                      pinnedTo(t.Name),
			// What Pod Security "restricted" asks for (KEP-2579).
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true),
				RunAsUser:    ptr.To(int64(1000)), RunAsGroup: ptr.To(int64(1000)), FSGroup: ptr.To(int64(1000)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:            Container,
				Image:           image,
				ImagePullPolicy: policy,
				Command:         []string{Command},
				Args:            []string{"verify"},
				Env: slices.Concat([]corev1.EnvVar{
					{Name: "NODE_NAME", Value: t.Name}, // not by reference: each write of the pod would cost the API server more
					{Name: "POD_NAMESPACE", Value: b.Namespace},
					{Name: worker.EnvVar, Value: told.env},
				}, b.loggingEnv(), profile.Env),
				Resources:    profile.Resources,
				VolumeMounts: profile.VolumeMounts,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					ReadOnlyRootFilesystem:   ptr.To(true),
					RunAsNonRoot:             ptr.To(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	maps.Copy(pod.Labels, profile.PodLabels)
	maps.Copy(pod.Annotations, profile.PodAnnotations)
	pod.Labels[LabelName], pod.Labels[LabelComponent], pod.Labels[LabelNodeUID] = Name, Component, t.UID
	for k, v := range map[string]string{
		AnnotationNode: t.Name, AnnotationBootID: t.BootID, AnnotationGated: strconv.FormatBool(t.Gated),
		AnnotationProfile: profile.Profile, AnnotationChecks: told.hash,
		AnnotationStartTimeout: strconv.Itoa(int(profile.StartTimeoutSeconds)),
		AnnotationTimeout:      strconv.Itoa(int(profile.TimeoutSeconds)),
	} {
		pod.Annotations[k] = v
	}
	if limit := profile.InitSeconds(); limit > 0 {
		pod.Annotations[AnnotationInitTimeout] = strconv.Itoa(int(limit))
	}
	if class := profile.RuntimeClassName; class != "" {
		pod.Spec.RuntimeClassName = &class
	}
	if !ptr.Deref(w.FixedUser, true) {
		s := pod.Spec.SecurityContext
		s.RunAsUser, s.RunAsGroup, s.FSGroup = nil, nil, nil // the platform's to give
	}
	place(pod, t, w.PriorityClassName, via)
	return pod
}

// pinnedTo is the affinity to one node. It uses the Node's name, because the hostname label may differ.
func pinnedTo(node string) *corev1.Affinity {
	byName := corev1.NodeSelectorRequirement{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	terms := []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{byName}}}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

// place lets a worker displace other pods only on a node that cannot run workloads yet. If a critical pod is bound
// directly, the kubelet ends ordinary pods to admit it (k8s.io/kubernetes pkg/kubelet/preemption). kube-scheduler
// preempts pods for a critical pod, too.
func place(pod *corev1.Pod, t Target, class string, via config.Scheduling) {
	if !t.Gated {
		return // the scheduler's, at the priority of any pod without a class
	}
	pod.Spec.PriorityClassName = class
	if via == config.SchedulingDirect && !HasClaims(pod) {
		pod.Spec.NodeName, pod.Spec.Affinity = t.Name, nil // affinity is for who chooses a node
	}
}

// HasClaims reports whether the pod has claims of devices, which kube-scheduler alone allocates: bound directly it
// would never start.
func HasClaims(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 }

// MayPreempt reports whether kube-scheduler could preempt other pods for a pod, as the API server completed it. That is
// so if the cluster's default PriorityClass gave it more than the lowest priority that workloads commonly have. A
// preemption policy cannot be asked for instead: without a class of that policy the API server refuses it
// (k8s.io/kubernetes plugin/pkg/admission/priority).
func MayPreempt(pod *corev1.Pod) bool {
	preempts := pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != corev1.PreemptNever
	return preempts && pod.Spec.NodeName == "" && pod.Spec.Priority != nil && *pod.Spec.Priority > 0
}

// claimsPreempt is the reason why a pod with claims is not created if MayPreempt is true for it.
const claimsPreempt = "a pod with resourceClaims needs kube-scheduler, which could evict workloads for the " +
	"cluster's default PriorityClass; set preemptionPolicy Never in that class"

// resourcesPreempt is the same reason for a pod with an extended resource that its node does not list.
const resourcesPreempt = "kube-scheduler could evict workloads for the cluster's default PriorityClass; set " +
	"preemptionPolicy Never in that class, or wait for the device plugin. Without kube-scheduler, the pod would run " +
	"without the resources that the node does not list yet"

// Bind binds a pod to its node, instead of kube-scheduler. The kubelet then admits the pod, and evicts others only for
// critical pods. It does not bind a pod with claims, or with an extended resource that its node does not list (offered
// is false). refused is the reason.
func Bind(pod *corev1.Pod, offered bool) (refused string) {
	switch {
	case HasClaims(pod):
		return claimsPreempt
	case !offered:
		return resourcesPreempt
	}
	pod.Spec.NodeName = pod.Annotations[AnnotationNode]
	return ""
}

// loggingEnv is the worker's log level and format, unless they are what it defaults to.
func (b *Builder) loggingEnv() (env []corev1.EnvVar) {
	if b.logging.Level != worker.DefaultLogLevel {
		env = append(env, corev1.EnvVar{Name: "LOG_LEVEL", Value: b.logging.Level})
	}
	if b.logging.Format != worker.DefaultLogFormat {
		env = append(env, corev1.EnvVar{Name: "LOG_FORMAT", Value: b.logging.Format})
	}
	return env
}

// tolerations are the configured tolerations and, in addition, those for the taints that every node may have before it
// is verified. These are the gating taints and the taint of a node that Karpenter has not registered
// (UnregisteredTaintKey in sigs.k8s.io/karpenter pkg/apis/v1).
func (b *Builder) tolerations(profile config.Effective) []corev1.Toleration {
	if slices.ContainsFunc(profile.Tolerations, toleratesAll) {
		return profile.Tolerations
	}
	var out []corev1.Toleration
	for _, t := range b.gating {
		out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpExists, Effect: t.Effect})
	}
	out = append(out, corev1.Toleration{Key: "karpenter.sh/unregistered", Operator: corev1.TolerationOpExists})
	return append(out, profile.Tolerations...)
}

// toleratesAll reports whether the toleration matches every taint, so that no other toleration is needed.
func toleratesAll(t corev1.Toleration) bool {
	return t.Key == "" && t.Effect == "" && t.Operator == corev1.TolerationOpExists && t.TolerationSeconds == nil
}
