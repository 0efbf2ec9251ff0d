//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// A pending pod makes Karpenter launch a node with our startup taint. It is untainted once
// Karpenter has registered it, and then Karpenter calls it initialized.
func (s *suite) karpenterVerifies(ctx context.Context, t *testing.T) {
	s.pool(ctx, t)
	claim := s.awaitClaim(ctx, t, nil)
	s.awaitVerified(ctx, t, 40*time.Second, claim.Status.NodeName)
	s.awaitInitialized(ctx, t, claim)
	s.awaitPooled(ctx, t, 1)
	if claims := s.nodeClaims(ctx, t); len(claims) != 1 {
		t.Errorf("one pod needed one node, and Karpenter launched %d", len(claims))
	}
	s.karpenter.check(t)
	s.watch.check(t)
}

// A node joins with the taint, as a kubelet registers it, before Karpenter has registered it. Its worker passes, but
// the taint stays, because Karpenter would put it back. Karpenter is stopped meanwhile, and the test creates the node
// as Karpenter's kwok provider was about to. The node lacks the NodeClaim's labels, which a kubelet does not know.
// Karpenter adds them when it registers the node. One of the labels selects a profile with a check of its own. So the
// first worker's pass no longer counts, and a second worker runs that check before the taint is removed.
func (s *suite) karpenterLate(ctx context.Context, t *testing.T) {
	s.pooled(ctx, t, 1)
	claim, release := s.holdKarpenter(ctx, t, "pooled", 2)
	node := claim.node(gatingTaint)
	_, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	must(t, err)
	_, err = s.karpenter.agent.AdoptNode(ctx, node.Name, nodeagent.DNSWorks) // it is not followed until it has its labels
	must(t, err)
	eventually(ctx, t, 30*time.Second, "its worker comes to an end", func() error {
		pods := s.watch.of(node.Name, time.Time{})
		if len(pods) == 0 || !pods[0].ended {
			return fmt.Errorf("it does not: %+v", pods)
		}
		return nil
	})
	throughout(ctx, t, 5*time.Second, "the taint stays until Karpenter has registered the node", func() error {
		m, err := s.marks(ctx, node.Name)
		if err == nil && (!m.tainted || m.labelled) {
			err = fmt.Errorf("it does not: %s", m)
		}
		return err
	})
	const ownCheck = "pooled-network" // of the profile in testdata/values.yaml
	if pods := s.watch.of(node.Name, time.Time{}); strings.Contains(pods[0].config, ownCheck) {
		t.Errorf("the profile's check is there before its label is: %s", pods[0].config)
	}
	release()
	s.awaitVerified(ctx, t, 30*time.Second, node.Name)
	if pods := s.watch.of(node.Name, time.Time{}); len(pods) < 2 || !strings.Contains(pods[len(pods)-1].config, ownCheck) {
		t.Errorf("the node was released without its profile's check: %+v", pods)
	}
	s.awaitInitialized(ctx, t, claim)
	s.awaitPooled(ctx, t, 2)
	s.karpenter.check(t)
	s.watch.check(t)
}

// The taint of a bootstrap-only rule is among a NodePool's startupTaints, which Karpenter merges into the node until it
// has registered it. A node is released once the rule's condition holds, and then Karpenter calls it initialized. One
// whose condition holds before it is registered waits for that; one that another controller released too early gets
// the taint again, and is released again.
func (s *suite) karpenterRule(ctx context.Context, t *testing.T) {
	const key = "readiness.k8s.io/e2e-agent"
	s.pool(ctx, t)
	known := s.nodeClaims(ctx, t)
	t.Cleanup(func() {
		// The pool goes with the others: until then the kwok provider may still make the node whose delay it waits for.
		s.kubectl(context.WithoutCancel(ctx), t, "delete", "nodereadinessrule", "ruled", "--ignore-not-found", "--timeout=30s")
	})
	manifest := filepath.Join(s.root, "test", "e2e", "testdata", "karpenter-rule.yaml")
	s.kubectl(ctx, t, "apply", "--server-side", "-f", manifest)
	reportsReady := func(name string) {
		condition := `{"type":"e2e.test/AgentReady","status":"True","reason":"Test","lastTransitionTime":"` +
			time.Now().UTC().Format(time.RFC3339) + `"}`
		s.kubectl(ctx, t, "patch", "node", name, "--subresource=status", "-p", `{"status":{"conditions":[`+condition+`]}}`)
	}
	held := func(name string) error {
		if have := s.ruled(ctx, t)[name]; !slices.Equal(have, []string{key}) {
			return fmt.Errorf("%s has of rules the taints %v", name, have)
		}
		return nil
	}

	claim := s.awaitClaim(ctx, t, known)
	name := claim.Status.NodeName
	s.awaitVerified(ctx, t, 40*time.Second, name)
	throughout(ctx, t, 3*time.Second, "the rule holds the node, which Karpenter does not initialize", func() error {
		if s.nodeClaims(ctx, t)[claim.Metadata.UID].is("Initialized") {
			return fmt.Errorf("it is initialized")
		}
		return held(name)
	})
	reportsReady(name)
	s.awaitInitialized(ctx, t, claim)

	claim, release := s.holdKarpenter(ctx, t, "ruled", 2)
	node := claim.node(gatingTaint, corev1.Taint{Key: key, Value: "pending", Effect: corev1.TaintEffectNoSchedule})
	node.Labels[nodePoolLabel] = "ruled" // its kubelet sets the label by which the rule selects it
	_, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	must(t, err)
	reportsReady(node.Name)
	throughout(ctx, t, 5*time.Second, "the taint stays until Karpenter has registered the node", func() error {
		return held(node.Name)
	})
	// The node-readiness-controller does not wait for Karpenter: this is what it leaves behind.
	s.kubectl(ctx, t, "taint", "node", node.Name, key+"-")
	uid := s.kubectl(ctx, t, "get", "nodereadinessrule", "ruled", "-o", "jsonpath={.metadata.uid}")
	s.kubectl(ctx, t, "annotate", "node", node.Name, "readiness.k8s.io/bootstrap-completed-"+uid+`={"rule-name":"ruled"}`)
	release()
	s.awaitInitialized(ctx, t, claim)
	s.awaitEvent(ctx, t, 10*time.Second, node.Name, "TaintRemoved") // Karpenter had merged the taint back
	s.awaitVerified(ctx, t, 30*time.Second, node.Name)
	s.karpenter.check(t)
	s.watch.check(t)
}

// A node fails every attempt: we delete its NodeClaim and not the Node; Karpenter drains and
// terminates it, and launches another for the pod that still waits. That one is verified.
func (s *suite) karpenterReplaces(ctx context.Context, t *testing.T) {
	s.deleting(ctx, t)
	s.pooled(ctx, t, 2)
	known := s.nodeClaims(ctx, t)
	s.karpenter.nextResolver(nodeagent.DNSDrops)
	s.scalePooled(ctx, t, 3)
	failing := s.awaitClaim(ctx, t, known)
	s.karpenter.nextResolver(nodeagent.DNSWorks)
	known[failing.Metadata.UID] = failing
	eventually(ctx, t, 60*time.Second, "the failing node's NodeClaim is deleted and terminated", func() error {
		now, ok := s.nodeClaims(ctx, t)[failing.Metadata.UID]
		if ok {
			m, _ := s.marks(ctx, failing.Status.NodeName)
			return fmt.Errorf("it is there, deleted=%t, node %s", now.Metadata.DeletionTimestamp != nil, m)
		}
		if _, err := s.client.CoreV1().Nodes().Get(ctx, failing.Status.NodeName, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("its node is still there")
		}
		return nil
	})
	s.awaitEvent(ctx, t, 5*time.Second, failing.Status.NodeName, "NodeClaimDeleted")
	replacement := s.awaitClaim(ctx, t, known)
	s.awaitVerified(ctx, t, 40*time.Second, replacement.Status.NodeName)
	s.awaitInitialized(ctx, t, replacement)
	s.awaitPooled(ctx, t, 3)
	if deleted, err := s.prometheus.value(ctx, `sum(kube_node_ready_remediations_total{result="deleted"})`); err != nil || deleted != "1" {
		t.Errorf("kube_node_ready_remediations_total says %q deletions (%v), should be 1", deleted, err)
	}
	s.karpenter.check(t)
	s.watch.check(t)
}

// DNS is gone for the whole cluster while a new node joins. That is no fault of the node's: no
// NodeClaim is deleted, and when DNS is back the node is verified without anyone's doing.
func (s *suite) karpenterFleetFailure(ctx context.Context, t *testing.T) {
	s.deleting(ctx, t)
	s.pooled(ctx, t, 3)
	known := s.nodeClaims(ctx, t)
	s.kubectl(ctx, t, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=0")
	recovers := func(ctx context.Context) {
		s.kubectl(ctx, t, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=2")
		s.kubectl(ctx, t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
	}
	recovered := false
	t.Cleanup(func() {
		if !recovered {
			recovers(context.WithoutCancel(ctx))
		}
	})
	eventually(ctx, t, 20*time.Second, "CoreDNS is gone", func() error {
		list, err := s.client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are there", len(list.Items))
		}
		return err
	})
	s.scalePooled(ctx, t, 4)
	claim := s.awaitClaim(ctx, t, known)
	s.awaitEvent(ctx, t, 60*time.Second, claim.Status.NodeName, "RemediationHeld")
	throughout(ctx, t, 15*time.Second, "a shared outage deletes nothing", func() error {
		claims := s.nodeClaims(ctx, t)
		for _, claim := range claims {
			if claim.Metadata.DeletionTimestamp != nil {
				return fmt.Errorf("NodeClaim %s is being deleted", claim.Metadata.Name)
			}
		}
		if len(claims) != len(known)+1 {
			return fmt.Errorf("there are %d NodeClaims, were %d and one more", len(claims), len(known))
		}
		return nil
	})
	eventually(ctx, t, 30*time.Second, "the node says that its deletion is held, and has spent no attempt", func() error {
		m, err := s.marks(ctx, claim.Status.NodeName)
		if err == nil && (m.reason != "RemediationHeld" || !strings.Contains(m.message, "controlProbe") || m.recorded.Attempts != 0) {
			err = fmt.Errorf("it does not: %s", m)
		}
		return err
	})
	s.awaitAlert(ctx, t, "KubeNodeReadyRemediationHeld")
	recovers(ctx)
	recovered = true
	s.awaitVerified(ctx, t, 60*time.Second, claim.Status.NodeName)
	s.awaitInitialized(ctx, t, claim)
	s.awaitPooled(ctx, t, 4)
	s.karpenter.check(t)
	s.watch.check(t)
}

// Its nodes go as Karpenter takes them away; nothing of ours stands in the way of that.
func (s *suite) karpenterStop(ctx context.Context, t *testing.T) {
	s.pooled(ctx, t, 1)
	s.kubectl(ctx, t, "delete", "deployment", "pooled", "ruled", "--ignore-not-found")
	s.kubectl(ctx, t, "delete", "nodepool", "--all", "--timeout=50s")
	eventually(ctx, t, 30*time.Second, "Karpenter's nodes are gone", func() error {
		nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: nodePoolLabel})
		if err == nil && len(nodes.Items) > 0 {
			err = fmt.Errorf("%s is there", nodes.Items[0].Name)
		}
		return err
	})
	s.karpenter.stop()
	s.karpenter = nil
	s.watch.check(t)
}
