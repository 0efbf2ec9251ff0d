package chart

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// A rule may put its taint on every node. The real scheduler still places the controller, and the real taint eviction
// spares it. A replica leaves a node that is unreachable all the same.
func TestRulesDoNotLockTheControllerOut(t *testing.T) {
	t.Parallel()
	c, client := startCluster(t, cluster.Options{})
	createNamespace(t, client, namespace)
	taint := func(node, taints string) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"taints":[%s]}}`, taints)
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const noSchedule = `{"key":"readiness.k8s.io/agent","effect":"NoSchedule"}`
	const noExecute = `{"key":"readiness.k8s.io/agent","effect":"NoExecute"}`
	const unreachable = `{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}`
	nodes := []string{"one", "two"}
	for _, name := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("20")}
		n.Status.Capacity = n.Status.Allocatable
		if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ordinary := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ordinary", Namespace: metav1.NamespaceDefault}}
	ordinary.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}, NodeName: "one"}
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), ordinary, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range nodes {
		taint(name, noSchedule)
	}
	installOn(t, c, "controller: {replicas: 2, image: {tag: local}}")
	replicas := func() []corev1.Pod {
		t.Helper()
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err != nil {
			t.Fatal(err)
		}
		return pods.Items
	}
	eventually(t, "the two replicas are scheduled to different nodes", func() bool {
		pods := replicas()
		return len(pods) == 2 && pods[0].Spec.NodeName != "" && pods[1].Spec.NodeName != "" && pods[0].Spec.NodeName != pods[1].Spec.NodeName
	})

	for _, name := range nodes {
		taint(name, noExecute)
	}
	eventually(t, "the ordinary pod is evicted", func() bool {
		p, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "ordinary", metav1.GetOptions{})
		return err != nil || p.DeletionTimestamp != nil
	})
	for _, p := range replicas() {
		if p.DeletionTimestamp != nil {
			t.Errorf("replica %s is evicted by a rule's taint", p.Name)
		}
	}

	began := time.Now()
	taint("one", noExecute+","+unreachable)
	eventually(t, "the replica on the unreachable node is evicted", func() bool {
		for _, p := range replicas() {
			if p.Spec.NodeName == "one" && p.DeletionTimestamp != nil {
				return true
			}
		}
		return false
	})
	if took := time.Since(began); took < 20*time.Second {
		t.Errorf("it was evicted after %s: a short interruption must not move it", took)
	}
	eventually(t, "another replica is scheduled to the other node", func() bool {
		running := 0
		for _, p := range replicas() {
			if p.Spec.NodeName == "two" && p.DeletionTimestamp == nil {
				running++
			}
		}
		return running == 2
	})
}
