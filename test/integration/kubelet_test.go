package integration

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// act is what a played kubelet reports of one pod, one status after the other.
type act []corev1.PodStatus

// playedNode is a node whose kubelet is played.
type playedNode struct{ Name string }

// played registers a tainted node whose kubelet is played, so that nothing runs. The n-th of our pods that is bound to
// the node gets the statuses of the n-th act. Each later pod gets those of the last act. Deletions are confirmed.
func (s *suite) played(suffix string, acts []act, change ...func(*nodeagent.NodeSpec)) playedNode {
	s.Helper()
	n := 0
	return s.playedBy(suffix, func() act { n++; return acts[min(n, len(acts))-1] }, change...)
}

// playedBy is played with acts that are chosen when a pod is bound.
func (s *suite) playedBy(suffix string, next func() act, change ...func(*nodeagent.NodeSpec)) playedNode {
	s.Helper()
	spec := s.spec(suffix, change...)
	watch, err := k8s.CoreV1().Pods(s.name).Watch(s.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + spec.Name, LabelSelector: "app.kubernetes.io/component=worker"})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(watch.Stop)
	s.must(k8s.CoreV1().Nodes().Create(s.ctx, spec.Object(), metav1.CreateOptions{}))
	seen := map[types.UID]bool{}
	go func() {
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == "DELETED" {
				continue
			}
			if !seen[pod.UID] {
				seen[pod.UID] = true
				for _, status := range next() {
					s.report(pod, status)
				}
			}
			if pod.DeletionTimestamp != nil {
				_ = k8s.CoreV1().Pods(s.name).Delete(s.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
			}
		}
	}()
	return playedNode{spec.Name}
}

// report patches a pod's status as a kubelet does.
func (s *suite) report(pod *corev1.Pod, status corev1.PodStatus) {
	if status.Phase == corev1.PodSucceeded && status.ContainerStatuses[0].State.Terminated.Message == "" {
		r := result.Report{Version: result.Version, Node: pod.Annotations[workerpod.AnnotationNode], Outcome: result.Passed}
		status = *status.DeepCopy() // the acts are shared
		status.ContainerStatuses[0].State.Terminated.Message = string(r.Encode())
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err == nil {
		_, err = k8s.CoreV1().Pods(s.name).Patch(s.ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && s.ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.Errorf("report %s of %s: %v", status.Phase, pod.Name, err)
	}
}

// worker is a pod's status with the state of its one container.
func worker(phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
	return corev1.PodStatus{Phase: phase, StartTime: ptr.To(metav1.Now()), ContainerStatuses: []corev1.ContainerStatus{{Name: "worker", State: state}}}
}

func exited(code int32, reason, message string) corev1.ContainerState {
	now := metav1.Now()
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, StartedAt: now, FinishedAt: now}}
}

var running = worker(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})

// The acts, in the words of a kubelet.
var (
	passes   = act{running, worker(corev1.PodSucceeded, exited(0, "Completed", ""))}
	outOfCPU = act{{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: Node didn't have enough resource: cpu"}}
)

// fails is the end of a worker on a node whose one check, of type exec, failed, with the report that the real worker writes.
func fails(node, check string) act {
	report := result.Report{Node: node, Outcome: result.Failed, Checks: []result.Check{{Name: check, Type: "exec", Severity: "required", Outcome: result.Failed, Reason: "ExitCode", Message: "exit status 1"}}}
	return act{running, worker(corev1.PodFailed, exited(result.ExitFailed, "Error", string(report.Encode())))}
}
