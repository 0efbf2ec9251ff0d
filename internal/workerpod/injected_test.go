package workerpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// injected adds a container that an admission webhook put before the worker.
func injected(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		proxy := corev1.ContainerStatus{Name: "proxy", State: state}
		p.Status.ContainerStatuses = append([]corev1.ContainerStatus{proxy}, p.Status.ContainerStatuses...)
	}
}

// injectedInit adds an init container that an admission webhook injected, or with always a sidecar.
func injectedInit(state corev1.ContainerState, always bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy"}}
		if always {
			sidecar(p)
		}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: state}}
	}
}

func waitsFor(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "details"}}
}

// Once the worker has started, only it counts (kumahq/kuma#5497). Before that, an injected regular container does not
// keep the worker from starting, and an init container does.
func TestInjectedContainers(t *testing.T) {
	failed := reportOf("node-a", result.Check{Name: "dns", Type: "dns", Severity: "required", Outcome: result.Failed, Reason: "Timeout", Message: "no answer"})
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	const waits = "beside it, injected container proxy waits: ErrImagePull: details"
	type changes = []func(*corev1.Pod)
	for name, tc := range map[string]struct {
		pod     changes
		state   State
		outcome attempt.Outcome // empty: no result yet
		reason  string
		beside  string
		says    string // in the result's message
	}{
		"no image beside a worker that runs":      {changes{running, injected(waitsFor("ErrImagePull"))}, Running, "", "", waits, ""},
		"its image backs off":                     {changes{running, injected(waitsFor("ImagePullBackOff"))}, Running, "", "", "ImagePullBackOff", ""},
		"its Secret is missing":                   {changes{running, injected(waitsFor("CreateContainerConfigError"))}, Running, "", "", "CreateContainerConfigError", ""},
		"its hook failed":                         {changes{running, injected(waitsFor("PostStartHookError"))}, Running, "", "", "PostStartHookError", ""},
		"it is being created":                     {changes{running, injected(waitsFor("ContainerCreating"))}, Running, "", "", "", ""},
		"it runs":                                 {changes{running, injected(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}, Running, "", "", "", ""},
		"it ended with an error":                  {changes{running, injected(ended)}, Running, "", "", "beside it, injected container proxy ended with exit code 3 (Error)", ""},
		"a sidecar crash-loops":                   {changes{running, injectedInit(waitsFor("CrashLoopBackOff"), true)}, Running, "", "", "sidecar proxy waits: CrashLoopBackOff", ""},
		"a sidecar's image is gone":               {changes{running, injectedInit(waitsFor("ErrImagePull"), true)}, Running, "", "", "sidecar proxy waits: ErrImagePull", ""},
		"a sidecar ended with an error":           {changes{running, injectedInit(ended, true)}, Running, "", "", "sidecar proxy ended with exit code 3", ""},
		"the worker passed beside it":             {changes{exit(0, "Completed", ""), phase(corev1.PodRunning), injected(waitsFor("ErrImagePull"))}, Ended, attempt.Passed, "", waits, ""},
		"the worker passed, it ended with errors": {changes{exit(0, "Completed", ""), phase(corev1.PodFailed), injected(ended)}, Ended, attempt.Passed, "", "exit code 3", ""},
		"the worker failed beside it":             {changes{exit(1, "Error", failed), phase(corev1.PodRunning), injected(waitsFor("ErrImagePull"))}, Ended, attempt.Failed, "Timeout", waits, waits},
		"the worker was killed beside it":         {changes{exit(137, "OOMKilled", ""), injected(ended)}, Ended, attempt.Inconclusive, attempt.ReasonOOMKilled, "exit code 3", "container proxy ended"},
		"evicted beside it":                       {changes{running, injected(waitsFor("ErrImagePull")), whole("Evicted")}, Ended, attempt.Inconclusive, attempt.ReasonEvicted, "", ""},

		"no image beside a worker that is created":  {changes{wait("ContainerCreating"), injected(waitsFor("ErrImagePull"))}, Pending, "", "", "container proxy waits", ""},
		"no image beside a worker without a status": {changes{injected(waitsFor("ErrImagePull"))}, Pending, "", "", "container proxy waits", ""},
		"neither has an image":                      {changes{wait("ErrImagePull"), injected(waitsFor("ErrImagePull"))}, Pending, attempt.Inconclusive, attempt.ReasonImagePull, "container proxy waits", "container worker"},
		"an init container has no image":            {changes{wait("PodInitializing"), injectedInit(waitsFor("ErrImagePull"), false)}, Pending, attempt.Inconclusive, attempt.ReasonImagePull, "", "init container proxy: ErrImagePull"},
		"a sidecar has no image":                    {changes{wait("PodInitializing"), injectedInit(waitsFor("CreateContainerConfigError"), true)}, Pending, attempt.Inconclusive, attempt.ReasonContainerConfig, "", "init container proxy"},
		"an init container failed":                  {changes{phase(corev1.PodFailed), injectedInit(ended, false)}, Ended, attempt.Inconclusive, attempt.ReasonInitFailed, "", "init container proxy ended with exit code 3"},
		"a sidecar crash-loops before the worker":   {changes{wait("PodInitializing"), injectedInit(waitsFor("CrashLoopBackOff"), true)}, Pending, "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observe(status(t, tc.pod...))
			r := attempt.Result{}
			if o.Attempt.Result != nil {
				r = *o.Attempt.Result
			}
			if o.State != tc.state || r.Outcome != tc.outcome || r.Reason != tc.reason {
				t.Errorf("%s %s %q (%s); want %s %s %q", o.State, r.Outcome, r.Reason, r.Message, tc.state, tc.outcome, tc.reason)
			}
			if !strings.Contains(r.Message, tc.says) {
				t.Errorf("the message %q lacks %q", r.Message, tc.says)
			}
			if (o.Beside == "") != (tc.beside == "") || !strings.Contains(o.Beside, tc.beside) {
				t.Errorf("beside it: %q, want %q", o.Beside, tc.beside)
			}
		})
	}
}
