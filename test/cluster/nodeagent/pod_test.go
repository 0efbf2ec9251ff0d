package nodeagent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestContainerSeesItsClusterAsAPodDoes(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	pod := shell(node.Name, "")
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	pod.Spec.Containers[0] = corev1.Container{Name: "c", Image: "look", Env: []corev1.EnvVar{
		{Name: asContainer, Value: "yes"},
		{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")},
		{Name: "POD_IP", ValueFrom: field("status.podIP")},
	}}
	pod = await(t, create(t, pod), "ended", ended)
	got := seen{}
	if err := json.Unmarshal([]byte(pod.Status.ContainerStatuses[0].State.Terminated.Message), &got); err != nil {
		t.Fatalf("%v: %+v", err, pod.Status)
	}
	if !strings.HasPrefix(got.ResolvConf, "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver [127.0.0.1]:") ||
		!strings.HasSuffix(got.ResolvConf, "\noptions ndots:5\n") {
		t.Errorf("resolv.conf is\n%s", got.ResolvConf)
	}
	got.ResolvConf = ""
	want := seen{
		Node: node.Name, PodIP: node.IP, Namespace: "default", User: "system:serviceaccount:default:default " + pod.Name,
		ClusterIP: "127.0.0.1", SRVPort: strconv.Itoa(testCluster.Port()), Lookup: "192.0.2.80",
	}
	if got != want {
		t.Errorf("the container saw\n%+v, want\n%+v", got, want)
	}
}

func TestOutcomes(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	tests := map[string]struct {
		change  func(*corev1.Pod)
		script  string
		phase   corev1.PodPhase
		code    int32
		reason  string
		message string
	}{
		"exit 0":   {script: `exit 0`, phase: corev1.PodSucceeded, reason: "Completed"},
		"exit 1":   {script: `echo no >$` + EnvTerminationLog + `; exit 1`, phase: corev1.PodFailed, code: 1, reason: "Error", message: "no\n"},
		"a signal": {script: `kill -9 $$$$`, phase: corev1.PodFailed, code: 137, reason: "Error"},
		"the end of a long message": {
			script: `(head -c 5000 /dev/zero | tr '\0' a; head -c 4095 /dev/zero | tr '\0' b; printf c) >$` + EnvTerminationLog,
			phase:  corev1.PodSucceeded, reason: "Completed", message: strings.Repeat("b", 4095) + "c",
		},
		"the log in place of a message": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
			},
			script: `echo said; exit 4`, phase: corev1.PodFailed, code: 4, reason: "Error", message: "said\n",
		},
		"no such program": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/none"} },
			phase:  corev1.PodFailed, code: 128, reason: "StartError",
			message: `failed to create containerd task: exec: "/none": stat /none: no such file or directory`,
		},
		"references in arguments": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "7"}, {Name: "B", Value: "$(A)$$(A)$(NONE)"}}
			},
			script: `printf '$(A) %s' "$B" >$` + EnvTerminationLog, phase: corev1.PodSucceeded, reason: "Completed", message: "7 7$(A)$(NONE)",
		},
		"no service account": {
			change: func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(false) },
			script: `[ -e "$` + EnvServiceAccountDir + `/token" ] && exit 1; exit 0`, phase: corev1.PodSucceeded, reason: "Completed",
		},
		"a failed init container": {
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "sh", Args: []string{"exit 3"}}}
			},
			script: "exit 0", phase: corev1.PodFailed,
		},
		"init containers first": {
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "sh", Args: []string{"sleep 0.1; date +%s%N >../when"}}}
			},
			script: `[ "$(cat ../when)" -lt "$(date +%s%N)" ]`, phase: corev1.PodSucceeded, reason: "Completed",
		},
	}
	i := 0
	for name, test := range tests {
		i++
		t.Run(name, func(t *testing.T) {
			pod := shell(node.Name, test.script)
			pod.Name = fmt.Sprintf("outcome-%d", i)
			if test.change != nil {
				test.change(pod)
			}
			pod = await(t, create(t, pod), "ended", ended)
			if pod.Status.Phase != test.phase {
				t.Errorf("phase %s, want %s: %+v", pod.Status.Phase, test.phase, pod.Status)
			}
			terminated := deref(pod.Status.ContainerStatuses[0].State.Terminated)
			if terminated.ExitCode != test.code || terminated.Reason != test.reason || terminated.Message != test.message {
				t.Errorf("container ended with %+v, want %d %s %q", terminated, test.code, test.reason, test.message)
			}
			if test.reason == "Completed" && (terminated.StartedAt.IsZero() || terminated.FinishedAt.Before(&terminated.StartedAt) || pod.Status.StartTime.IsZero()) {
				t.Errorf("times are wrong: %+v", terminated)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	_, node := startAgent(t, NodeSpec{Capacity: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1")}})
	tests := map[string]struct {
		change func(*corev1.Pod)
		reason string
	}{
		"OutOfcpu": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1001m")}
		}, "OutOfcpu"},
		"NodeAffinity": {func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
					Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"another"},
				}}}},
			}}}
		}, "NodeAffinity"},
		"Unsupported": {func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "scratch"}} }, "Unsupported"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := shell(node.Name, "exit 0")
			pod.Name = strings.ToLower(name)
			test.change(pod)
			pod = await(t, create(t, pod), "refused", failed)
			if pod.Status.Reason != test.reason || len(pod.Status.ContainerStatuses) != 0 {
				t.Errorf("%s: %s %+v", pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
			}
		})
	}
	t.Run("OutOfpods", func(t *testing.T) {
		first := shell(node.Name, "sleep 60")
		first.Name = "first"
		await(t, create(t, first), "running", running)
		second := shell(node.Name, "exit 0")
		second.Name = "second"
		if pod := await(t, create(t, second), "refused", failed); pod.Status.Reason != "OutOfpods" {
			t.Errorf("%s: %s", pod.Status.Reason, pod.Status.Message)
		}
	})
}

func TestImagePullBackOffAndRecovery(t *testing.T) {
	agent, node := startAgent(t, NodeSpec{})
	pod := shell(node.Name, "exit 0")
	pod.Spec.Containers[0].Image = "late"
	pod = create(t, pod)
	pod = await(t, pod, "backing off", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && deref(p.Status.ContainerStatuses[0].State.Waiting).Reason == "ImagePullBackOff"
	})
	if pod.Status.Phase != corev1.PodPending {
		t.Errorf("phase %s", pod.Status.Phase)
	}
	agent.SetImage("late", images(t)["sh"])
	await(t, pod, "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
}

func TestRestartPolicies(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	const thirdTime = `n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) >n; [ $n = 2 ] || exit 1; `
	for name, test := range map[string]struct {
		policy corev1.RestartPolicy
		script string
		holds  func(*corev1.Pod) bool
	}{
		"on failure, until it succeeds": {corev1.RestartPolicyOnFailure, thirdTime + "exit 0", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded && p.Status.ContainerStatuses[0].RestartCount == 2
		}},
		"always, and ready once it stays": {corev1.RestartPolicyAlways, thirdTime + "sleep 60", func(p *corev1.Pod) bool {
			return running(p) && p.Status.ContainerStatuses[0].Ready && p.Status.ContainerStatuses[0].RestartCount == 2
		}},
		"always, also after success": {corev1.RestartPolicyAlways, "exit 0", func(p *corev1.Pod) bool {
			return running(p) && p.Status.ContainerStatuses[0].RestartCount > 0 && deref(p.Status.ContainerStatuses[0].State.Waiting).Reason == "CrashLoopBackOff"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := shell(node.Name, test.script)
			pod.Spec.RestartPolicy = test.policy
			pod.Name = strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
			await(t, create(t, pod), name, test.holds)
		})
	}
}

func TestDeadline(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	pod := shell(node.Name, "sleep 60")
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](1)
	pod = await(t, create(t, pod), "failed", failed)
	if pod.Status.Reason != "DeadlineExceeded" || deref(pod.Status.ContainerStatuses[0].State.Terminated).ExitCode != 143 {
		t.Errorf("%+v", pod.Status)
	}
}

func TestDeletion(t *testing.T) {
	agent, node := startAgent(t, NodeSpec{})
	pid := func(p *corev1.Pod) int {
		id := p.Status.ContainerStatuses[0].ContainerID
		pid, err := strconv.Atoi(id[strings.LastIndex(id, "/")+1:])
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	gone := func(t *testing.T, pod *corev1.Pod, within time.Duration) {
		t.Helper()
		for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
			_, err := testClient.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) && syscall.Kill(-pid(pod), 0) == syscall.ESRCH {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("pod or process %d is still there (%v)", pid(pod), err)
			}
		}
	}
	t.Run("SIGTERM is heard", func(t *testing.T) {
		pod := shell(node.Name, `trap 'echo ended; exit 0' TERM; echo up; sleep 60 & wait`)
		pod = await(t, create(t, pod), "running", running)
		log := agent.LogFile(pod, "c")
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if content, _ := os.ReadFile(log); len(content) > 0 || time.Now().After(end) {
				break
			}
		}
		if err := testClient.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		gone(t, pod, 5*time.Second)
		if content, _ := os.ReadFile(log); string(content) != "up\nended\n" {
			t.Errorf("the container said %q", content)
		}
	})
	t.Run("SIGKILL after the grace", func(t *testing.T) {
		pod := shell(node.Name, `trap '' TERM; while :; do sleep 1; done`)
		pod = await(t, create(t, pod), "running", running)
		began := time.Now()
		if err := testClient.CoreV1().Pods("default").Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(1)); err != nil {
			t.Fatal(err)
		}
		gone(t, pod, 5*time.Second)
		if took := time.Since(began); took < time.Second {
			t.Errorf("the pod was gone after %s, before its grace of 1 s", took)
		}
	})
	t.Run("forced", func(t *testing.T) {
		pod := shell(node.Name, `trap '' TERM; while :; do sleep 1; done`)
		pod = await(t, create(t, pod), "running", running)
		if err := testClient.CoreV1().Pods("default").Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
		gone(t, pod, 5*time.Second)
	})
}

func TestKubectlLogs(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	pod := await(t, create(t, shell(node.Name, `echo one; echo two; sleep 1; echo three`)), "running", running)
	kubectl := func(args ...string) string {
		t.Helper()
		args = append([]string{"--kubeconfig", testCluster.Kubeconfig(), "logs", pod.Name}, args...)
		out, err := exec.CommandContext(t.Context(), filepath.Join(testCluster.Bin(), "kubectl"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl: %v: %s", err, out)
		}
		return string(out)
	}
	if got := kubectl("--follow"); got != "one\ntwo\nthree\n" {
		t.Errorf("followed %q", got)
	}
	if got := kubectl("--tail=2"); got != "two\nthree\n" {
		t.Errorf("the last two lines are %q", got)
	}
}
