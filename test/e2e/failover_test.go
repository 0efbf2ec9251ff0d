//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// failoverWithin bounds the time until another replica leads.
const failoverWithin = 30 * time.Second

// replicas are the controllers that are ready, on machines that are there.
func (s *suite) replicas(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	controllers := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"}
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, controllers)
	must(t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		return !ready || p.DeletionTimestamp != nil || s.node(p.Spec.NodeName) == nil
	})
}

// awaitSpread waits until two replicas are ready on different nodes, and returns the leader and the other one.
func (s *suite) awaitSpread(ctx context.Context, t *testing.T) (leader, other corev1.Pod) {
	t.Helper()
	eventually(ctx, t, 2*time.Minute, "two replicas are ready on different nodes", func() error {
		pods, name := s.replicas(ctx, t), s.leader(ctx, t)
		if len(pods) != 2 || pods[0].Spec.NodeName == pods[1].Spec.NodeName || pods[0].Name != name && pods[1].Name != name {
			return fmt.Errorf("%s leads of %v", name, places(pods))
		}
		if leader, other = pods[0], pods[1]; other.Name == name {
			leader, other = other, leader
		}
		return nil
	})
	return leader, other
}

// spread brings the replicas to different nodes, wherever earlier cases left them: the scheduler spreads only those that it
// places. It returns the leader and the other one.
func (s *suite) spread(ctx context.Context, t *testing.T) (leader, other corev1.Pod) {
	t.Helper()
	eventually(ctx, t, 2*time.Minute, "a replica that shares the leader's node is placed anew", func() error {
		pods, name := s.replicas(ctx, t), s.leader(ctx, t)
		if len(pods) != 2 || pods[0].Name != name && pods[1].Name != name {
			return fmt.Errorf("%s leads of %v", name, places(pods))
		}
		if pods[0].Spec.NodeName != pods[1].Spec.NodeName {
			return nil
		}
		beside := pods[0].Name
		if beside == name {
			beside = pods[1].Name
		}
		s.kubectl(ctx, t, "-n", namespace, "delete", "pod", beside)
		return fmt.Errorf("%s was beside the leader", beside)
	})
	return s.awaitSpread(ctx, t)
}

func places(pods []corev1.Pod) []string {
	var on []string
	for _, p := range pods {
		on = append(on, p.Name+" on "+p.Spec.NodeName)
	}
	return on
}

// awaitFailover waits until a replica leads that is ready, on another node than the one that goes, and logs how long
// that took.
func (s *suite) awaitFailover(ctx context.Context, t *testing.T, since time.Time, what, leaving string) {
	t.Helper()
	eventually(ctx, t, failoverWithin-time.Since(since), what+": another replica leads", func() error {
		name := s.leader(ctx, t)
		for _, p := range s.replicas(ctx, t) {
			if p.Name == name && p.Spec.NodeName != leaving {
				t.Logf("%s: %s on %s leads after %.1f s", what, name, p.Spec.NodeName, time.Since(since).Seconds())
				return nil
			}
		}
		return fmt.Errorf("the Lease is %q's", name)
	})
}

// The leader's node is drained: the other replica, which is on another node, leads within 30 s.
func (s *suite) leaderDrained(ctx context.Context, t *testing.T) {
	leader, _ := s.spread(ctx, t)
	node := leader.Spec.NodeName
	t.Cleanup(func() { s.kubectl(context.WithoutCancel(ctx), t, "uncordon", node) })
	began := time.Now()
	drained := make(chan error, 1)
	go func() {
		_, err := s.cluster.Kubectl(ctx, "", "drain", node,
			"--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
		drained <- err
	}()
	s.awaitFailover(ctx, t, began, "drain of "+node, node)
	must(t, <-drained)
	t.Logf("kubectl drain %s ended after %.1f s", node, time.Since(began).Seconds())
	if _, err := s.client.CoreV1().Pods(namespace).Get(ctx, leader.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the drained leader %s is still there: %v", leader.Name, err)
	}
	s.kubectl(ctx, t, "uncordon", node)
	s.awaitSpread(ctx, t)
	s.watch.check(t)
}

// machine is a real node that Karpenter owns: it registers as the kubelet of a launched NodeClaim does.
const machine = "node-k"

// Karpenter consolidates the leader's node. The leader does not tolerate Karpenter's taint, so it is evicted, releases its
// Lease, and does not hold the node back. The other replica leads within 30 s, before the machine is switched off.
// Karpenter must not have another node yet. A replica could be placed on it, and such nodes have no kubelet to run it.
func (s *suite) karpenterConsolidates(ctx context.Context, t *testing.T) {
	s.startKarpenter(ctx, t)
	known := s.nodeClaims(ctx, t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.kubectl(ctx, t, "delete", "deployment", "machine", "--ignore-not-found")
		s.kubectl(ctx, t, "delete", "nodepool", "machines", "--ignore-not-found", "--timeout=50s")
		s.removeNode(ctx, t, machine)
	})
	manifest := filepath.Join(s.root, "test", "e2e", "testdata", "karpenter-machine.yaml")
	s.kubectl(ctx, t, "apply", "--server-side", "-f", manifest)
	claim := s.awaitClaimWith(ctx, t, known, nodeClaim.launched)
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	s.addNodes(ctx, t, realnode.NodeOptions{Taints: []corev1.Taint{unregistered}}, machine)
	s.kubectl(ctx, t, "patch", "node", machine, "--type=merge", "-p", `{"spec":{"providerID":"`+claim.Status.ProviderID+`"}}`)
	s.awaitVerified(ctx, t, 60*time.Second, machine)
	s.awaitInitialized(ctx, t, claim)

	leader, other := s.spread(ctx, t)
	if leader.Spec.NodeName != machine {
		s.kubectl(ctx, t, append([]string{"cordon"}, baseNodes...)...) // so that the machine alone has space for a new replica
		t.Cleanup(func() {
			s.kubectl(context.WithoutCancel(ctx), t, append([]string{"uncordon"}, baseNodes...)...)
		})
		if other.Spec.NodeName != machine {
			s.kubectl(ctx, t, "-n", namespace, "delete", "pod", other.Name)
			leader, other = s.awaitSpread(ctx, t)
		}
		s.kubectl(ctx, t, append([]string{"uncordon"}, baseNodes...)...)
		if other.Spec.NodeName != machine {
			t.Fatalf("no replica comes to %s, but to %s", machine, other.Spec.NodeName)
		}
		for tries := 0; leader.Spec.NodeName != machine && tries < 5; tries++ { // its successor may lead in place of the other one
			s.kubectl(ctx, t, "-n", namespace, "delete", "pod", leader.Name)
			leader, _ = s.spread(ctx, t) // the scheduler may place it beside the other
		}
	}
	if leader.Spec.NodeName != machine {
		t.Fatalf("%s leads on %s", leader.Name, leader.Spec.NodeName)
	}
	t.Logf("%s leads on %s, and Karpenter has no other use for that node", leader.Name, machine)
	s.kubectl(ctx, t, "scale", "deployment/machine", "--replicas=0")
	eventually(ctx, t, 2*time.Minute, "the leader is evicted", func() error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, leader.Name, metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp == nil {
			err = fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	s.awaitFailover(ctx, t, time.Now(), "consolidation of "+machine, machine)
	eventually(ctx, t, 2*time.Minute, "Karpenter terminates the leader's node", func() error {
		_, err := s.client.CoreV1().Nodes().Get(ctx, machine, metav1.GetOptions{})
		if err == nil {
			err = fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	must(t, s.cluster.RemoveNode(ctx, s.node(machine)))
	s.awaitSpread(ctx, t)
	s.karpenter.check(t)
	s.watch.check(t)
}
