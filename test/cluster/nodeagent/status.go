package nodeagent

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the container runtime reports for a container that it lost, as in a reboot (containerd
// internal/cri: unknownExitCode, unknownExitReason).
const (
	lostExitCode = 255
	lostReason   = "Unknown"
)

// podState is what a pod's status is made of.
type podState struct {
	phase           corev1.PodPhase // set where it does not follow from the containers
	reason, message string
	started         metav1.Time
	init            []corev1.ContainerStatus
	containers      []corev1.ContainerStatus
}

// newPodState begins with the pod's status as the API server has it, else with containers about to be created.
func newPodState(pod *corev1.Pod) podState {
	s := podState{
		init:       slices.Clone(pod.Status.InitContainerStatuses),
		containers: slices.Clone(pod.Status.ContainerStatuses),
		started:    deref(pod.Status.StartTime),
	}
	reason := "ContainerCreating"
	if len(pod.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	fresh := func(c corev1.Container) corev1.ContainerStatus {
		started := false
		return corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: &started, State: waiting(reason, "")}
	}
	if len(s.init) == 0 {
		for _, c := range pod.Spec.InitContainers {
			s.init = append(s.init, fresh(c))
		}
	}
	if len(s.containers) == 0 {
		for _, c := range pod.Spec.Containers {
			s.containers = append(s.containers, fresh(c))
		}
	}
	return s
}

// lose ends containers that ran when the node went down; it says whether there were any.
func (s *podState) lose() bool {
	any := false
	for _, statuses := range [][]corev1.ContainerStatus{s.init, s.containers} {
		for i := range statuses {
			running := statuses[i].State.Running
			if running == nil {
				continue
			}
			any = true
			statuses[i].Ready, statuses[i].Started = false, new(bool)
			statuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: lostExitCode, Reason: lostReason, StartedAt: running.StartedAt, FinishedAt: metav1.Now(), ContainerID: statuses[i].ContainerID,
			}}
		}
	}
	return any
}

// status is the pod's status, by the kubelet's rules (k8s.io/kubernetes pkg/kubelet,
// getPhase, and status/generate.go).
func (r *podRun) status() corev1.PodStatus {
	s := corev1.PodStatus{
		Phase: r.state.phase, Reason: r.state.reason, Message: r.state.message,
		InitContainerStatuses: slices.Clone(r.state.init), ContainerStatuses: slices.Clone(r.state.containers),
	}
	if !r.state.started.IsZero() {
		s.StartTime = &r.state.started
		s.HostIP, s.HostIPs = r.node.IP, []corev1.HostIP{{IP: r.node.IP}}
		s.PodIP, s.PodIPs = r.node.IP, []corev1.PodIP{{IP: r.node.IP}}
	}
	if s.Phase == "" {
		s.Phase = phase(r.pod, s.InitContainerStatuses, s.ContainerStatuses, r.terminal)
	}
	s.Conditions = podConditions(r.pod, s)
	return s
}

func phase(pod *corev1.Pod, init, containers []corev1.ContainerStatus, terminal bool) corev1.PodPhase {
	never := pod.Spec.RestartPolicy == corev1.RestartPolicyNever
	for _, c := range init {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && (never || terminal) {
			return corev1.PodFailed
		}
	}
	var running, stopped, succeeded, waiting int
	for _, c := range containers {
		switch last := c.LastTerminationState.Terminated; {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil:
			stopped++
			if c.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case last != nil:
			stopped++
		default:
			waiting++
		}
	}
	switch {
	case terminal && waiting > 0: // ended before they were started
		return corev1.PodFailed
	case waiting > 0:
		return corev1.PodPending
	case running > 0:
		return corev1.PodRunning
	case !terminal && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case stopped == succeeded:
		return corev1.PodSucceeded
	case terminal || never:
		return corev1.PodFailed
	default:
		return corev1.PodRunning
	}
}

func podConditions(pod *corev1.Pod, s corev1.PodStatus) []corev1.PodCondition {
	ready := len(s.ContainerStatuses) > 0
	for _, c := range s.ContainerStatuses {
		ready = ready && c.Ready
	}
	initialized := true
	for _, c := range s.InitContainerStatuses {
		initialized = initialized && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	}
	reason := "ContainersNotReady"
	switch s.Phase {
	case corev1.PodSucceeded:
		reason = "PodCompleted"
	case corev1.PodFailed:
		reason = "PodFailed"
	}
	condition := func(kind corev1.PodConditionType, ok bool, reason string) corev1.PodCondition {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
		if !ok {
			c.Status, c.Reason = corev1.ConditionFalse, reason
		}
		// The time is that of the last change.
		for _, old := range pod.Status.Conditions {
			if old.Type == kind && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		return c
	}
	return []corev1.PodCondition{
		condition(corev1.PodScheduled, true, ""),
		condition(corev1.PodReadyToStartContainers, !terminalPhase(s.Phase), ""),
		condition(corev1.PodInitialized, initialized, "ContainersNotInitialized"),
		condition(corev1.PodReady, ready, reason),
		condition(corev1.ContainersReady, ready, reason),
	}
}

// sync writes the pod's status. Writes of one pod are in order.
func (r *podRun) sync() {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	r.mu.Lock()
	status := r.status()
	r.mu.Unlock()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.pod.UID}, "status": status})
	if err != nil {
		r.agent.logf("%s/%s: %v", r.pod.Namespace, r.pod.Name, err)
		return
	}
	r.retry("report the status", func() error {
		written, err := r.agent.client.CoreV1().Pods(r.pod.Namespace).Patch(r.killed, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil {
			r.mu.Lock()
			r.pod.Status.Conditions = written.Status.Conditions
			r.mu.Unlock()
		}
		return err
	})
}

// retry repeats a write while the API server cannot answer, and gives up on an answer that
// will not change: the pod is gone, or is another one of the same name. done says that the
// write was made by this call.
func (r *podRun) retry(what string, write func() error) (done bool) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if r.silent.Load() || r.killed.Err() != nil {
			return false
		}
		err := write()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return err == nil
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			r.agent.logf("%s/%s: %s: %v", r.pod.Namespace, r.pod.Name, what, err)
			return false
		}
		select {
		case <-time.After(wait):
		case <-r.killed.Done():
			return false
		}
	}
}
