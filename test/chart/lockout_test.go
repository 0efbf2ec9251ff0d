package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// ruleTaint is the key of the rule in these tests.
const ruleTaint = "readiness.k8s.io/agent"

// schedulerNode creates a node that the real scheduler can bind pods to.
func schedulerNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("20")}
	n.Status.Capacity = n.Status.Allocatable
	if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// setTaints replaces the taints of a node. With drained it is cordoned too, as kubectl drain does it.
func setTaints(t *testing.T, client kubernetes.Interface, node string, drained bool, taints string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t,"taints":[%s]}}`, drained, taints)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// replicas are the controller's pods that are not being deleted.
func replicas(t *testing.T, client kubernetes.Interface) (pods []corev1.Pod) {
	t.Helper()
	all, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// replicasOn reports whether the controller's pods are on these nodes; "" is that of a pending pod.
func replicasOn(t *testing.T, client kubernetes.Interface, nodes ...string) bool {
	t.Helper()
	var on []string
	for _, p := range replicas(t, client) {
		on = append(on, p.Spec.NodeName)
	}
	slices.Sort(on)
	return slices.Equal(on, nodes)
}

// createRule creates a rule whose taint may be on every node, and returns what the API server warns of.
func createRule(t *testing.T, c *cluster.Cluster) (warned string) {
	t.Helper()
	const rule = `{"apiVersion":"readiness.node.x-k8s.io/v1alpha1","kind":"NodeReadinessRule","metadata":{"name":"agent"},"spec":{
		"conditions":[{"type":"Agent","requiredStatus":"True"}],"enforcementMode":"continuous",
		"taint":{"key":"` + ruleTaint + `","effect":"NoSchedule"},"nodeSelector":{"matchLabels":{"kubernetes.io/os":"linux"}}}}`
	r := resourcesOn(c)
	warned, err := r.create(t, r.rules, rule)
	if err != nil {
		t.Fatal(err)
	}
	return warned
}

// deletePod deletes a pod at once, since no kubelet ends it.
func deletePod(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
}

// The real scheduler places two replicas of the controller on two nodes.
func testPlacesOfReplicas(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	for _, name := range []string{"one", "two"} {
		schedulerNode(t, client, name)
	}
	installOn(t, c, "controller: {replicas: 2, image: {tag: local}}")
	t.Run("drains", func(t *testing.T) { testDrainedNodesDoNotGetTheirReplicaBack(t, client) })
	for _, name := range []string{"one", "two"} {
		setTaints(t, client, name, false, "")
	}
	t.Run("rules", func(t *testing.T) { testRulesDoNotLockTheControllerOut(t, c, client) })
	helmOn(t, c, "uninstall", "kube-node-ready")
	withoutRules(t, c)
	nodes := client.CoreV1().Nodes()
	if err := nodes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A rule may put its taint on every node. The controller is still scheduled, and the real taint eviction spares it. A
// replica leaves a node that is unreachable all the same.
func testRulesDoNotLockTheControllerOut(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	const noSchedule = `{"key":"` + ruleTaint + `","effect":"NoSchedule"}`
	const noExecute = `{"key":"` + ruleTaint + `","effect":"NoExecute"}`
	const unreachable = `{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}`
	nodes := []string{"one", "two"}
	ordinary := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ordinary", Namespace: metav1.NamespaceDefault}}
	ordinary.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}, NodeName: "one"}
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), ordinary, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range replicas(t, client) {
		deletePod(t, client, p.Name)
	}
	eventually(t, "the two replicas are scheduled to different nodes", func() bool { return replicasOn(t, client, nodes...) })

	// The rule is younger than the controller's Deployment.
	createRule(t, c)
	for _, name := range nodes {
		setTaints(t, client, name, false, noSchedule)
	}
	eventually(t, "new pods of the controller are scheduled", func() bool {
		for _, p := range replicas(t, client) {
			if !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == ruleTaint }) {
				deletePod(t, client, p.Name)
				return false
			}
		}
		return replicasOn(t, client, nodes...)
	})

	for _, name := range nodes {
		setTaints(t, client, name, false, noExecute)
	}
	eventually(t, "the ordinary pod is evicted", func() bool {
		p, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "ordinary", metav1.GetOptions{})
		return err != nil || p.DeletionTimestamp != nil
	})
	if !replicasOn(t, client, nodes...) {
		t.Errorf("a replica is evicted by a rule's taint: %v", replicas(t, client))
	}

	began := time.Now()
	setTaints(t, client, "one", false, noExecute+","+unreachable)
	eventually(t, "the replica on the unreachable node is evicted, and another one is scheduled to the other node", func() bool {
		return replicasOn(t, client, "two", "two")
	})
	if took := time.Since(began); took < 20*time.Second {
		t.Errorf("it was evicted after %s: a short interruption must not move it", took)
	}
}

// What is different on an API server without MutatingAdmissionPolicies. What Helm renders then is tested by day too,
// and so is that the rules that exist are tolerated (testRulesOfPeople).
func TestWithoutMutatingPolicies(t *testing.T) {
	missing.Request(t, "NIGHTLY", "make test-nightly")
	t.Parallel()
	c, client := startCluster(t, cluster.Options{APIServerArgs: []string{
		"--disable-admission-plugins=MutatingAdmissionPolicy", // it waits for the policies, and the API server for it
		"--runtime-config=admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
	}})
	createNamespace(t, client, namespace)
	t.Run("modes", func(t *testing.T) { testModesWithoutPolicies(t, c) })
	t.Run("rules", func(t *testing.T) { testFirstPodsTolerateRules(t, c, client) })
}

// A policy that the API server does not have is refused by name, and mode auto comes to a webhook.
func testModesWithoutPolicies(t *testing.T, c *cluster.Cluster) {
	install := func(mode string) (stdout, failure string) {
		return tryHelmOn(t, c, "install", "kube-node-ready", chartDir, "--dry-run=server", "--set", "controller.config.admission.mode="+mode)
	}
	if _, failure := install("policy"); !strings.Contains(failure, "controller.config.admission.mode is policy, but this API server has no MutatingAdmissionPolicy") {
		t.Errorf("policy: %s", failure)
	}
	if out, failure := install("auto"); failure != "" || !strings.Contains(out, "kind: MutatingWebhookConfiguration") {
		t.Errorf("auto: %s: %s", failure, out)
	}
}

// There keys are in the values, and the API server warns of a rule whose key is missing among them. An installation into a
// cluster whose nodes all have a rule's taint tolerates it.
func testFirstPodsTolerateRules(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	schedulerNode(t, client, "one")
	const values = `{controller: {replicas: 1, image: {tag: local}}, rules: {toleratedKeys: [readiness.k8s.io/listed]}}`
	setTaints(t, client, "one", false, `{"key":"readiness.k8s.io/listed","effect":"NoSchedule"}`)
	installOn(t, c, values)
	eventually(t, "a listed key is tolerated", func() bool { return replicasOn(t, client, "one") })
	eventually(t, "the API server warns of a rule's key that is not listed", func() bool {
		warned := createRule(t, c)
		if strings.Contains(warned, "rules.toleratedKeys") {
			return true
		}
		resourcesOn(c).delete(t, "agent")
		return false
	})
	helmOn(t, c, "uninstall", "kube-node-ready")
	setTaints(t, client, "one", false, `{"key":"`+ruleTaint+`","effect":"NoSchedule"}`)
	installOn(t, c, values)
	eventually(t, "the rule that exists is tolerated", func() bool { return replicasOn(t, client, "one") })
}

// A replica does not return to a node that is drained, whoever drains it, or the drain would never end.
func testDrainedNodesDoNotGetTheirReplicaBack(t *testing.T, client kubernetes.Interface) {
	evict := func(node string) {
		t.Helper()
		for _, p := range replicas(t, client) {
			if p.Spec.NodeName == node {
				deletePod(t, client, p.Name)
			}
		}
	}
	for _, test := range []struct {
		name     string
		cordon   bool
		draining string
	}{
		{"kubectl drain", true, `{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}`},
		{"Cluster Autoscaler", false, `{"key":"ToBeDeletedByClusterAutoscaler","value":"1","effect":"NoSchedule"}`},
		{"Karpenter", false, `{"key":"karpenter.sh/disrupted","effect":"NoSchedule"}`},
	} {
		for _, node := range []string{"one", "two"} {
			setTaints(t, client, node, false, "")
		}
		for _, p := range replicas(t, client) {
			deletePod(t, client, p.Name)
		}
		eventually(t, test.name+": the two replicas are on different nodes", func() bool { return replicasOn(t, client, "one", "two") })
		setTaints(t, client, "one", test.cordon, test.draining)
		evict("one")
		eventually(t, test.name+": the replica goes to the other node", func() bool { return replicasOn(t, client, "two", "two") })
		setTaints(t, client, "two", test.cordon, test.draining)
		evict("two")
		eventually(t, test.name+": without another node, the replicas stay pending", func() bool { return replicasOn(t, client, "", "") })
	}
}
