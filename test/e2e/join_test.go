//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

var baseNodes = []string{"node-a", "node-b", "node-c"}

// workload is an ordinary Deployment, which tolerates nothing and wants one pod on each node.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: workload, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: workload}}
  template:
    metadata: {labels: {app: workload}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: workload}}}
      containers:
      - {name: pause, image: ` + realnode.PauseImage + `, imagePullPolicy: IfNotPresent}
`

// restrictedNamespace admits only pods that Pod Security's strictest level admits.
const restrictedNamespace = `
apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/enforce-version: latest
`

// Nodes register with the taint; ordinary pods stay Pending, DNS and the controller run; with
// the result the taint goes and the pods run.
func (s *suite) threeNodesJoin(ctx context.Context, t *testing.T) {
	s.addNodes(ctx, t, realnode.NodeOptions{}, baseNodes...)
	for _, name := range baseNodes {
		m, err := s.marks(ctx, name)
		must(t, err)
		if !m.tainted || m.labelled || m.record {
			t.Fatalf("%s did not join with the taint and without marks: %s", name, m)
		}
	}
	s.apply(ctx, t, workload)
	s.apply(ctx, t, restrictedNamespace)
	eventually(ctx, t, 30*time.Second, "CoreDNS runs on unverified nodes", func() error {
		deployment, err := s.client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && deployment.Status.ReadyReplicas != 2 {
			err = fmt.Errorf("%d replicas are ready", deployment.Status.ReadyReplicas)
		}
		return err
	})
	pods := func() []corev1.Pod {
		list, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=workload"})
		must(t, err)
		return list.Items
	}
	eventually(ctx, t, 10*time.Second, "the scheduler refuses the workload", func() error {
		refused := 0
		for _, pod := range pods() {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Reason == "Unschedulable" && strings.Contains(c.Message, "3 node(s) had untolerated taint") {
					refused++
				}
			}
		}
		if refused != 3 {
			return fmt.Errorf("%d of 3 pods are unschedulable for the taint", refused)
		}
		return nil
	})

	s.deploy(ctx, t)
	s.awaitVerified(ctx, t, 60*time.Second, baseNodes...)
	eventually(ctx, t, 20*time.Second, "the workload runs on every node", func() error {
		var on []string
		for _, pod := range pods() {
			if pod.Status.Phase == corev1.PodRunning {
				on = append(on, pod.Spec.NodeName)
			}
		}
		if slices.Sort(on); !slices.Equal(on, baseNodes) {
			return fmt.Errorf("it runs on %v", on)
		}
		return nil
	})
	for _, name := range baseNodes {
		if pods := s.watch.of(name, time.Time{}); len(pods) != 1 {
			t.Errorf("%s took %d workers, should take one: %+v", name, len(pods), pods)
		}
		s.awaitEvent(ctx, t, 5*time.Second, name, "VerificationPassed")
	}
	s.noWorkersLeft(ctx, t)
	s.limited(ctx, t)
	s.watch.check(t)
}

// limited insists that every policy is there, the one on kubelets among them, which run under it from here on.
func (s *suite) limited(ctx context.Context, t *testing.T) {
	t.Helper()
	var want []string
	for _, policy := range []string{"kubelets", "nodes", "pods", "pods-kept", "pods-of-others", "rule-conflicts", "rule-warnings", "rules"} {
		want = append(want, "validatingadmissionpolicy.admissionregistration.k8s.io/"+release+"-"+policy)
	}
	if got := strings.Fields(s.kubectl(ctx, t, "get", "validatingadmissionpolicies", "-o", "name", "-l", "app.kubernetes.io/instance="+release)); !slices.Equal(got, want) {
		t.Errorf("admission policies %q, want %q", got, want)
	}
	_, err := s.cluster.Kubectl(ctx, "", "annotate", "node", "node-a", "node-ready/skip=true", "--as", "system:node:node-a", "--as-group", "system:nodes")
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+release+"-kubelets'") {
		t.Errorf("a node opts itself out: %v", err)
	}
}

// noWorkersLeft insists that the workers of passed verifications are gone.
func (s *suite) noWorkersLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	eventually(ctx, t, 20*time.Second, "workers are deleted once their result is recorded", func() error {
		list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=worker"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left, %s the first", len(list.Items), list.Items[0].Name)
		}
		return err
	})
}

// A person removes the label: the node is verified again, and stays schedulable meanwhile.
func (s *suite) labelRemoved(ctx context.Context, t *testing.T) {
	before, err := s.marks(ctx, "node-a")
	must(t, err)
	s.reverify(ctx, t, "node-a")
	eventually(ctx, t, 30*time.Second, "node-a is verified again", func() error {
		m, err := s.marks(ctx, "node-a")
		must(t, err)
		if m.tainted {
			t.Fatalf("node-a was tainted for a re-verification that passes: %s", m)
		}
		if m.recorded.Sequence <= before.recorded.Sequence {
			return fmt.Errorf("no further attempt is recorded: %s", m)
		}
		return s.verified(ctx, "node-a")
	})
	s.watch.check(t)
}

// The machine restarts: a new boot ID, nothing runs any more, the old result says nothing.
func (s *suite) reboot(ctx context.Context, t *testing.T) {
	before, err := s.marks(ctx, "node-c")
	must(t, err)
	must(t, s.node("node-c").Reboot(ctx))
	eventually(ctx, t, 60*time.Second, "node-c is verified for its new boot", func() error {
		m, err := s.marks(ctx, "node-c")
		must(t, err)
		if m.bootID == before.bootID {
			return fmt.Errorf("the kubelet reports the old boot ID")
		}
		if m.uid != before.uid {
			t.Fatalf("the Node object was replaced")
		}
		if m.recorded.Sequence <= before.recorded.Sequence {
			return fmt.Errorf("no attempt was made: %s", m)
		}
		return s.verified(ctx, "node-c")
	})
	must(t, s.cluster.AwaitNode(ctx, "node-c", 20*time.Second))
	s.watch.check(t)
}

// A node is switched off and its object deleted while its worker runs: its series go. A new
// node takes its name while the old one's pod is still there: it starts afresh.
func (s *suite) nodeVanishes(ctx context.Context, t *testing.T) {
	const name = "node-e"
	since := time.Now()
	t.Cleanup(func() { s.removeNode(context.WithoutCancel(ctx), t, name) })
	_, err := s.cluster.AddNode(ctx, name, realnode.NodeOptions{Taints: []corev1.Taint{gatingTaint}})
	must(t, err)
	// With no answer from DNS its worker has something to wait for.
	_, err = s.node(name).DropDNS(ctx)
	must(t, err)
	s.watch.awaitRunning(ctx, t, 60*time.Second, name, since)
	old, err := s.marks(ctx, name)
	must(t, err)
	s.removeNode(ctx, t, name)
	eventually(ctx, t, 20*time.Second, "the lost node has no series any more", func() error {
		return s.prometheus.expectNone(ctx, `{__name__=~"kube_node_ready_.*",node="`+name+`"}`)
	})
	s.addNodes(ctx, t, realnode.NodeOptions{}, name)
	s.awaitVerified(ctx, t, 60*time.Second, name)
	m, err := s.marks(ctx, name)
	must(t, err)
	if m.uid == old.uid || m.recorded.Sequence != 1 || m.recorded.Attempts != 0 {
		t.Errorf("the new node did not start afresh: UID %s after %s, %s", m.uid, old.uid, m)
	}
	eventually(ctx, t, 60*time.Second, "no worker of either is left", func() error {
		list, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name, LabelSelector: "app.kubernetes.io/component=worker"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s is there", list.Items[0].Name)
		}
		return err
	})
	s.watch.check(t)
}
