package workerpod

import (
	"encoding/json"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// FuzzObserve checks that any pod with any status can be read, and that the observation is bounded and printable. A pod
// passes only by exit code 0, and is ours only under the one name of its attempt.
func FuzzObserve(f *testing.F) {
	for _, seed := range []*corev1.Pod{status(f), status(f, exit(0, "Completed", reportOf("node-a"))), status(f, exit(1, "Error", reportOf("node-a"))), status(f, exit(137, "OOMKilled", "\x1b[2J")),
		status(f, wait("ErrImagePull")), status(f, whole("OutOfcpu")), status(f, pastDeadline(0)), status(f, deleted, running)} {
		b, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var pod corev1.Pod
		if json.Unmarshal(data, &pod) != nil {
			return
		}
		o := Observe(&pod)
		shown := []string{o.Unschedulable, o.Startup, o.Beside}
		if r := o.Attempt.Result; r != nil {
			shown = append(shown, r.Message, r.Check, r.Reason)
			if attempt.CheckReason(r.Reason) != r.Reason && r.Outcome != attempt.Passed {
				t.Errorf("reason %q", r.Reason)
			}
			if r.Duration < 0 {
				t.Errorf("took %s", r.Duration)
			}
		}
		for _, text := range shown {
			for _, c := range text {
				if !unicode.IsPrint(c) {
					t.Fatalf("%q", text)
				}
			}
			if len(text) > attempt.MaxMessage || !utf8.ValidString(text) {
				t.Fatalf("%d bytes: %q", len(text), text)
			}
		}
		if worker := container(pod.Status.ContainerStatuses, Container); o.Passed() && (worker == nil || worker.State.Terminated == nil || worker.State.Terminated.ExitCode != 0) {
			t.Error("it passed without an exit code 0")
		}
		target := TargetOf(&pod)
		if Ours(&pod, pod.Namespace, target) && pod.Name != VerifyName(target, o.Attempt.Number) && pod.Name != ProbeName(target, o.Subject) {
			t.Errorf("%s is taken for ours", pod.Name)
		}
	})
}
