package workerpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// accepted is a pod that its kubelet has accepted.
func accepted(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: start} }

func sandbox(status corev1.ConditionStatus) func(*corev1.Pod) {
	return conditioned(corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: status})
}

// A pod that has not started says how far the kubelet came with it.
func TestStartup(t *testing.T) {
	unbound := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	message := strings.Repeat("x", 2*attempt.MaxMessage)
	type changes = []func(*corev1.Pod)
	for name, tc := range map[string]struct {
		pod  changes
		want string // empty: nothing
	}{
		"not bound":               {changes{unbound}, "kube-scheduler has not bound it to the node"},
		"not accepted":            {changes{}, "the kubelet has not reported it"},
		"no sandbox":              {changes{accepted, sandbox(corev1.ConditionFalse), wait("ContainerCreating")}, "its sandbox is not ready (network, address or volumes)"},
		"no sandbox, in the init": {changes{accepted, sandbox(corev1.ConditionFalse), wait("PodInitializing"), injectedInit(waitsFor("PodInitializing"), false)}, "its sandbox is not ready"},
		"a sandbox":               {changes{accepted, sandbox(corev1.ConditionTrue), wait("ContainerCreating")}, "its sandbox is ready; container worker waits for its image or the container runtime (ContainerCreating: details)"},
		"a kubelet before 1.29":   {changes{accepted, wait("ContainerCreating")}, "container worker waits for its sandbox, its image or the container runtime (ContainerCreating"},
		"in an init container":    {changes{accepted, sandbox(corev1.ConditionTrue), wait("PodInitializing"), injectedInit(waitsFor("CrashLoopBackOff"), true)}, "its sandbox is ready; container proxy waits for its image or the container runtime (CrashLoopBackOff: details)"},
		"an init container runs":  {changes{accepted, sandbox(corev1.ConditionTrue), wait("PodInitializing"), injectedInit(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, false)}, "its sandbox is ready"},
		"an endless message": {changes{accepted, sandbox(corev1.ConditionTrue), wait("ContainerCreating"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Waiting.Message = message
		}}, "xxx"},
		"unschedulable":   {changes{unbound, conditioned(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node"})}, "kube-scheduler: no node"},
		"running":         {changes{accepted, sandbox(corev1.ConditionTrue), running}, ""},
		"ended":           {changes{accepted, sandbox(corev1.ConditionFalse), exit(1, "Error", "")}, ""},
		"it has a result": {changes{accepted, sandbox(corev1.ConditionTrue), wait("ErrImagePull")}, ""},
	} {
		got := Observe(status(t, tc.pod...)).Startup
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || len(got) > attempt.MaxMessage {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	late := status(t, accepted, sandbox(corev1.ConditionFalse), wait("ContainerCreating"), whole("DeadlineExceeded"))
	if r := Observe(late).Attempt.Result; !strings.Contains(r.Message, "before the worker started; its sandbox is not ready") {
		t.Errorf("past the pod's deadline: %+v", r)
	}
}
