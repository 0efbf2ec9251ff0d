package workerpod

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

func uid(s string) types.UID { return types.UID(s) }

// State is where a worker pod stands.
type State string

// The states of a worker pod.
const (
	Pending  State = "pending"  // its container has not started
	Running  State = "running"  // its container runs
	Finished State = "finished" // it has an outcome and cannot get another
)

// Reasons of an inconclusive or failed attempt. They are a closed list: they become condition
// messages, metric labels and the record's lastReason.
const (
	ReasonChecksFailed     = "ChecksFailed"     // exit 1
	ReasonTimeout          = "Timeout"          // ran past timeoutSeconds
	ReasonConfigRefused    = "ConfigRefused"    // exit 2
	ReasonClientSetup      = "ClientSetup"      // exit 3
	ReasonInternalError    = "InternalError"    // exit 10
	ReasonUnknownExit      = "UnknownExitCode"  // any other code
	ReasonImagePull        = "ImagePull"        // the image is not there
	ReasonContainerConfig  = "ContainerConfig"  // the kubelet cannot make the container
	ReasonInitFailed       = "InitContainer"    // an init container failed
	ReasonUnschedulable    = "Unschedulable"    // kube-scheduler found no way onto the node
	ReasonKubeletRejected  = "KubeletRejected"  // the kubelet's admission refused the pod
	ReasonOOMKilled        = "OOMKilled"        // the kernel killed the worker
	ReasonEvicted          = "Evicted"          // node pressure or preemption
	ReasonNodeLost         = "NodeLost"         // the kubelet stopped reporting
	ReasonPodDeleted       = "PodDeleted"       // somebody deleted the pod
	ReasonStartTimeout     = "StartTimeout"     // not started within startTimeoutSeconds
	ReasonNodeRebooted     = "NodeRebooted"     // the result is from before a reboot
	ReasonPodRefused       = "PodRefused"       // the API server refused the pod
	ReasonNameTaken        = "NameTaken"        // a pod that is not ours has the name
	ReasonUnknownPodStatus = "UnknownPodStatus" // ended with nothing to read
)

// Observation is what decisions need to know of a worker pod.
type Observation struct {
	Name, UID, BootID string
	Node              string // that it runs on
	Purpose           string
	Attempt           int32  // of a verify pod
	Subject, Group    string // of a probe
	Created           time.Time
	Started, Ended    time.Time // of the worker container; zero when it did not
	State             State
	Terminating       bool
	Recorded          bool // its outcome is in the record, it stays for its logs
	// Outcome, Check, Reason and Message are set when State is Finished.
	Outcome              node.Outcome
	Check                string
	Reason               string
	Message              string
	Report               *result.Report // nil when missing or refused
	UnschedulableSince   time.Time      // zero unless kube-scheduler finds no way onto the node
	UnschedulableMessage string
}

// Duration is how long the container ran; 0 when it did not. The kubelet's times have whole seconds, so the worker's own
// measure is taken where it agrees with them.
func (o Observation) Duration() time.Duration {
	if o.Started.IsZero() || o.Ended.Before(o.Started) {
		return 0
	}
	ran := o.Ended.Sub(o.Started)
	if o.Report != nil {
		if own := time.Duration(o.Report.DurationMs) * time.Millisecond; own >= ran-time.Second && own <= ran+time.Second {
			return own
		}
	}
	return ran
}

// Succeeded tells whether the pod ended and its worker passed.
func (o Observation) Succeeded() bool { return o.State == Finished && o.Outcome == node.OutcomePassed }

// Alive tells whether the pod still takes its place on the node.
func (o Observation) Alive() bool { return o.State != Finished }

// Ours tells whether the controller made this pod for this node. Labels prove nothing, anyone
// who may create pods can set them: the name must be the one that we derive from the node's UID,
// the owner must be that very Node, and the pod must be pinned to it.
func Ours(pod *corev1.Pod, namespace string, t Target) bool {
	if pod.Namespace != namespace || pod.Labels[LabelComponent] != Component || pod.Annotations[AnnotationNode] != t.Name ||
		pod.Spec.NodeName != "" && pod.Spec.NodeName != t.Name {
		return false
	}
	owned := false
	for _, o := range pod.OwnerReferences {
		owned = owned || o.Kind == "Node" && o.UID == uid(t.UID)
	}
	if !owned {
		return false
	}
	switch pod.Labels[LabelPurpose] {
	case PurposeVerify:
		attempt, err := strconv.ParseInt(pod.Annotations[AnnotationAttempt], 10, 32)
		return err == nil && attempt > 0 && pod.Name == VerifyName(t, int32(attempt))
	case PurposeProbe:
		return pod.Name == ProbeName(t, pod.Annotations[AnnotationSubject])
	}
	return false
}

// Observe reads a pod that is Ours.
func Observe(pod *corev1.Pod) Observation {
	attempt, _ := strconv.ParseInt(pod.Annotations[AnnotationAttempt], 10, 32) // Ours has checked it; 0 for a probe
	o := Observation{
		Name: pod.Name, UID: string(pod.UID), Node: pod.Annotations[AnnotationNode], BootID: pod.Annotations[AnnotationBootID],
		Purpose: pod.Labels[LabelPurpose], Attempt: int32(attempt),
		Subject: pod.Annotations[AnnotationSubject], Group: pod.Labels[LabelProbeGroup],
		Created: pod.CreationTimestamp.Time, State: Pending,
		Terminating: pod.DeletionTimestamp != nil, Recorded: pod.Annotations[AnnotationRecorded] == "true",
	}
	worker := container(pod.Status.ContainerStatuses, Container)
	if worker != nil {
		if t := worker.State.Terminated; t != nil {
			o.Started, o.Ended = t.StartedAt.Time, t.FinishedAt.Time
		}
		if r := worker.State.Running; r != nil {
			o.Started, o.State = r.StartedAt.Time, Running
		}
	}
	if worker != nil && worker.State.Terminated != nil && !killedByKubelet(pod) {
		o.exited(worker.State.Terminated, pod.Annotations[AnnotationNode])
		if o.Outcome == node.OutcomeFailed && interrupted(pod, o.Ended) {
			o.finish(node.OutcomeInconclusive, ReasonPodDeleted, "the pod was deleted before it had a result")
		}
		return o
	}
	if outcome, reason, message, ok := classify(pod, o); ok {
		o.finish(outcome, reason, message)
		return o
	}
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		o.UnschedulableSince, o.UnschedulableMessage = c.LastTransitionTime.Time, c.Message
	}
	return o
}

func (o *Observation) finish(outcome node.Outcome, reason, message string) {
	o.State, o.Outcome, o.Check, o.Reason, o.Message = Finished, outcome, "", reason, node.Truncate(message)
}

// exited turns the container's exit into an outcome. The exit code decides; the report explains.
func (o *Observation) exited(t *corev1.ContainerStateTerminated, nodeName string) {
	if r, err := result.Parse([]byte(t.Message)); err == nil && r.Node == nodeName {
		o.Report = &r
	}
	switch {
	case t.Reason == "OOMKilled":
		o.finish(node.OutcomeInconclusive, ReasonOOMKilled, "the worker ran out of memory; raise worker.resources.limits.memory")
	case t.ExitCode == result.ExitPassed:
		o.finish(node.OutcomePassed, "", "all required checks passed")
	case t.ExitCode == result.ExitFailed:
		o.finish(node.OutcomeFailed, ReasonChecksFailed, "a required check failed; the worker left no report")
		if o.Report != nil {
			if c, ok := o.Report.FirstFailure(); ok {
				o.Check, o.Reason, o.Message = c.Name, reasonOr(c.Reason, ReasonChecksFailed), node.Truncate(c.Message)+others(*o.Report, c.Name)
			}
		}
	case t.ExitCode == result.ExitConfig:
		o.finish(node.OutcomeInconclusive, ReasonConfigRefused, "the worker refused its configuration (exit 2); see its log")
	case t.ExitCode == result.ExitClient:
		o.finish(node.OutcomeInconclusive, ReasonClientSetup, "the worker has no service account token or CA (exit 3); see worker.serviceAccountName")
	case t.ExitCode == result.ExitInternal:
		o.finish(node.OutcomeInconclusive, ReasonInternalError, "the worker hit an internal error (exit 10); see its log")
	default:
		o.finish(node.OutcomeInconclusive, ReasonUnknownExit, fmt.Sprintf("the worker ended with exit code %d (%s)", t.ExitCode, t.Reason))
	}
}

// maxOthers bounds how many checks are named beside the first that failed.
const maxOthers = 5

// others names the other checks that failed: lost service routing, say, fails DNS too, and it is the list that tells them apart.
func others(r result.Report, first string) string {
	var names []string
	for _, c := range r.Checks {
		if c.Outcome == result.Failed && c.Name != first {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - maxOthers; n > 0 {
		names, more = names[:maxOthers], fmt.Sprintf(" and %d more", n)
	}
	return "; also failed: " + strings.Join(names, ", ") + more
}

func reasonOr(reason, fallback string) string {
	if reason == "" {
		return fallback
	}
	return reason
}

// killedByKubelet tells whether the container's exit code is only the echo of the kubelet ending
// the whole pod, whose status.reason then says why.
func killedByKubelet(pod *corev1.Pod) bool {
	return pod.Status.Reason != "" && pod.Status.Phase == corev1.PodFailed
}

// interrupted tells whether the container ended after somebody asked for the pod's deletion: what
// it could not finish by then is not the node's fault.
func interrupted(pod *corev1.Pod, ended time.Time) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	asked := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds != nil {
		asked = asked.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	}
	return !ended.Before(asked)
}

// classify finds the outcome of a pod whose container tells nothing.
func classify(pod *corev1.Pod, o Observation) (node.Outcome, string, string, bool) {
	s := pod.Status
	switch s.Reason {
	case "":
	case "DeadlineExceeded":
		if !o.Started.IsZero() {
			return node.OutcomeFailed, ReasonTimeout, "the worker ran past the pod's deadline", true
		}
		return node.OutcomeInconclusive, ReasonStartTimeout, "the pod's deadline passed before the worker started", true
	case "Evicted", "Preempting", "Preempted":
		return node.OutcomeInconclusive, ReasonEvicted, "the pod was evicted: " + s.Message, true
	case "NodeLost":
		return node.OutcomeInconclusive, ReasonNodeLost, "the kubelet stopped reporting: " + s.Message, true
	case "Terminated", "NodeShutdown", "Shutdown":
		// k8s.io/kubernetes pkg/kubelet/nodeshutdown
		return node.OutcomeInconclusive, ReasonNodeRebooted, "the node shut down: " + s.Message, true
	default:
		if s.Phase == corev1.PodFailed {
			// Admission refusals carry their own reasons (OutOfcpu, OutOfpods, NodeAffinity,
			// UnexpectedAdmissionError, ...; k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go).
			return node.OutcomeInconclusive, ReasonKubeletRejected, s.Reason + ": " + s.Message, true
		}
	}
	if s.Phase == corev1.PodUnknown {
		return node.OutcomeInconclusive, ReasonNodeLost, "the pod's state is unknown: the kubelet stopped reporting", true
	}
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return node.OutcomeInconclusive, ReasonEvicted, c.Reason + ": " + c.Message, true
	}
	for _, cs := range s.InitContainerStatuses {
		if t := cs.State.Terminated; t != nil && t.ExitCode != 0 && pod.Status.Phase == corev1.PodFailed {
			return node.OutcomeInconclusive, ReasonInitFailed, fmt.Sprintf("init container %s ended with exit code %d (%s)", cs.Name, t.ExitCode, t.Reason), true
		}
		if reason, message, ok := waiting(cs); ok {
			return node.OutcomeInconclusive, reason, message, true
		}
	}
	for _, cs := range s.ContainerStatuses {
		if reason, message, ok := waiting(cs); ok {
			return node.OutcomeInconclusive, reason, message, true
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded, s.Phase == corev1.PodFailed:
		return node.OutcomeInconclusive, ReasonUnknownPodStatus, fmt.Sprintf("the pod is %s and tells no exit code", s.Phase), true
	case o.Terminating:
		return node.OutcomeInconclusive, ReasonPodDeleted, "the pod was deleted before it had a result", true
	}
	return "", "", "", false
}

// waiting tells whether a container waits for something that will not come by itself soon.
// The reasons are the kubelet's (k8s.io/kubernetes pkg/kubelet/images/types.go and
// pkg/kubelet/kuberuntime/kuberuntime_container.go).
func waiting(cs corev1.ContainerStatus) (reason, message string, ok bool) {
	w := cs.State.Waiting
	if w == nil {
		return "", "", false
	}
	message = fmt.Sprintf("container %s: %s: %s", cs.Name, w.Reason, w.Message)
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return ReasonImagePull, message, true
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError":
		return ReasonContainerConfig, message, true
	}
	return "", "", false
}

func container(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
