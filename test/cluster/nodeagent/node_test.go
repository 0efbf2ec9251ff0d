package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var gate = corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}

func get(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node, err := testClient.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// marks are the parts of a node that the agent's methods change.
func marks(node *corev1.Node) string {
	var parts []string
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			parts = append(parts, string(c.Status))
		}
	}
	for _, taint := range node.Spec.Taints {
		parts = append(parts, taint.Key+":"+string(taint.Effect))
	}
	return strings.Join(parts, " ")
}

func TestNodeStates(t *testing.T) {
	ctx := t.Context()
	_, node := startAgent(t, NodeSpec{Taints: []corev1.Taint{gate}, ProviderID: "test://1", Labels: map[string]string{"pool": "a"}, NotReady: true})
	expect := func(want string) {
		t.Helper()
		if got := marks(get(t, node.Name)); got != want {
			t.Errorf("node is %q, want %q", got, want)
		}
	}
	registered := get(t, node.Name)
	if registered.Spec.ProviderID != "test://1" || registered.Labels["pool"] != "a" || registered.Labels[corev1.LabelHostname] != node.Name ||
		registered.Status.NodeInfo.BootID == "" || registered.Status.Allocatable.Pods().Value() != 110 {
		t.Errorf("registered as %+v", registered)
	}
	const gated = "node-ready/unverified:NoSchedule"
	expect("False " + gated + " node.kubernetes.io/not-ready:NoSchedule")
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return node.MarkReady(ctx) }, "True " + gated},
		{func() error { return node.MarkNotReady(ctx) }, "False " + gated + " node.kubernetes.io/not-ready:NoSchedule"},
		{func() error { return node.PowerOff(ctx) }, "Unknown " + gated + " node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute"},
		{func() error { return node.Reboot(ctx) }, "True " + gated},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		expect(step.want)
	}
	if get(t, node.Name).Status.NodeInfo.BootID == registered.Status.NodeInfo.BootID {
		t.Error("a reboot kept the boot ID")
	}
}

func TestRebootEndsContainers(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	pod := await(t, create(t, shell(node.Name, "sleep 60")), "running", running)
	if err := node.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := await(t, pod, "there", func(*corev1.Pod) bool { return true }); !running(now) {
		t.Errorf("a machine without power reported %s", now.Status.Phase)
	}
	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod = await(t, pod, "failed", failed)
	if ended := deref(pod.Status.ContainerStatuses[0].State.Terminated); ended.ExitCode != 255 || ended.Reason != "Unknown" {
		t.Errorf("container ended with %+v", ended)
	}
	again := shell(node.Name, "exit 0")
	again.Name += "-2"
	await(t, create(t, again), "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
}

func TestEvictionAndOOM(t *testing.T) {
	_, node := startAgent(t, NodeSpec{})
	pod := await(t, create(t, shell(node.Name, "sleep 60")), "running", running)
	if err := node.Evict(pod.UID, corev1.ResourceMemory); err != nil {
		t.Fatal(err)
	}
	if pod = await(t, pod, "failed", failed); pod.Status.Reason != "Evicted" {
		t.Errorf("%+v", pod.Status)
	}
	second := shell(node.Name, "sleep 60")
	second.Name += "-2"
	second = await(t, create(t, second), "running", running)
	if err := node.OOMKill(second.UID); err != nil {
		t.Fatal(err)
	}
	second = await(t, second, "failed", failed)
	if ended := deref(second.Status.ContainerStatuses[0].State.Terminated); ended.ExitCode != 137 || ended.Reason != "OOMKilled" || second.Status.Reason != "" {
		t.Errorf("%+v", second.Status)
	}
}

func TestDNSBreaksAndHeals(t *testing.T) {
	_, node := startAgent(t, NodeSpec{DNS: DNSDrops})
	for i, step := range []struct {
		mode DNSMode
		want string
	}{
		{DNSDrops, "i/o timeout"},
		{DNSRefuses, "connection refused"},
		{DNSFails, "SERVFAIL"},
		{DNSWorks, "192.0.2.80"},
		{DNSRefuses, "connection refused"},
		{DNSWorks, "192.0.2.80"},
	} {
		t.Run(fmt.Sprintf("%d %s", i, step.mode), func(t *testing.T) {
			if err := node.SetDNS(step.mode); err != nil {
				t.Fatal(err)
			}
			pod := shell(node.Name, "")
			pod.Name = fmt.Sprintf("dns-%d", i)
			pod.Spec.Containers[0] = corev1.Container{Name: "c", Image: "look", Env: []corev1.EnvVar{{Name: asContainer, Value: "yes"}}}
			pod = await(t, create(t, pod), "ended", ended)
			got := seen{}
			if err := json.Unmarshal([]byte(pod.Status.ContainerStatuses[0].State.Terminated.Message), &got); err != nil {
				t.Fatalf("%v: %+v", err, pod.Status)
			}
			if !strings.HasSuffix(got.Lookup, step.want) {
				t.Errorf("lookup: %q, want %q", got.Lookup, step.want)
			}
		})
	}
	if node.DNSQueries() == 0 {
		t.Error("no query was counted")
	}
}

// Pods that are bound to a node just while it is registered are not missed.
func TestPodsComeWithTheirNode(t *testing.T) {
	agent, _ := startAgent(t, NodeSpec{})
	var wg sync.WaitGroup
	for i := range 10 {
		name := fmt.Sprintf("new-%d", i)
		wg.Go(func() {
			if _, err := agent.AddNode(t.Context(), NodeSpec{Name: name}); err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { _ = testClient.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
		})
		wg.Go(func() {
			for j := range 10 {
				pod := shell(name, "exit 0")
				pod.Name = fmt.Sprintf("%s-%d", name, j)
				if _, err := testClient.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				t.Cleanup(func() {
					_ = testClient.CoreV1().Pods("default").Delete(context.Background(), pod.Name, *metav1.NewDeleteOptions(0))
				})
			}
		})
	}
	wg.Wait()
	for i := range 10 {
		for j := range 10 {
			await(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("new-%d-%d", i, j)}}, "ended", ended)
		}
	}
}

// TestManyNodes registers a thousand nodes and runs a pod on each of a part of them.
func TestManyNodes(t *testing.T) {
	agent, _ := startAgent(t, NodeSpec{})
	const nodes, pods = 1000, 100
	began := time.Now()
	queue := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range queue {
				if _, err := agent.AddNode(t.Context(), NodeSpec{Name: fmt.Sprintf("many-%d", i), Taints: []corev1.Taint{gate}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range nodes {
		queue <- i
	}
	close(queue)
	wg.Wait()
	registered := time.Since(began)
	for i := range pods {
		create(t, shell(fmt.Sprintf("many-%d", i), "exit 0"))
	}
	for i := range pods {
		await(t, shell(fmt.Sprintf("many-%d", i), ""), "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	}
	t.Logf("%d nodes registered in %s, %d pods run in %s", nodes, registered.Round(time.Millisecond), pods, (time.Since(began) - registered).Round(time.Millisecond))
}
