//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reported is the condition of the examples.
const reported = "projectcalico.org/CalicoReady"

// The taints of the examples' rule, which is bootstrap-only, and of a continuous one made of it.
const bootstrapTaint, continuousTaint = "readiness.k8s.io/NetworkReady", "readiness.k8s.io/NetworkUp"

// reporter runs both variants of examples/cni-readiness beside an agent. On every node, the condition follows the
// agent's endpoint, and rules hold and release the nodes by that condition. A rollout of the agent changes nothing. The
// DaemonSet has the limits of the SIG's guide, a hundredth of a CPU and 32 MiB.
func (s *suite) reporter(ctx context.Context, t *testing.T) {
	s.apply(ctx, t, s.reporterExample(t, "calico-rbac-node-status-patch-role.yaml"))
	t.Cleanup(func() {
		s.kubectl(context.WithoutCancel(ctx), t, "delete", "nodereadinessrules", "--all", "--timeout=30s")
		s.kubectl(context.WithoutCancel(ctx), t, "-n", "kube-system", "delete", "daemonset", "cni-reporter", "calico-node", "--ignore-not-found")
	})
	rule := s.reporterExample(t, "network-readiness-rule.yaml")
	s.apply(ctx, t, rule)
	s.apply(ctx, t, strings.NewReplacer("network-readiness-rule", "network-continuous-rule", "NetworkReady", "NetworkUp", "enforcementMode: bootstrap-only", "enforcementMode: continuous").Replace(rule))
	s.awaitRuled(ctx, t, "no agent has reported", bootstrapTaint, continuousTaint)
	own := strings.NewReplacer("value: 60s", "value: 1s", "limits:\n", "limits:\n              cpu: 10m\n").Replace(s.reporterExample(t, "cni-reporter-ds.yaml"))
	s.apply(ctx, t, own)
	s.awaitReported(ctx, t, "there is no agent", corev1.ConditionFalse, "EndpointConnectionError")
	s.startAgent(ctx, t)
	s.awaitReported(ctx, t, "the agent is healthy", corev1.ConditionTrue, "EndpointOK")
	s.awaitRuled(ctx, t, "the agent is healthy")
	s.kubectl(ctx, t, "-n", "kube-system", "delete", "daemonset", "calico-node")
	s.awaitReported(ctx, t, "the agent is gone", corev1.ConditionFalse, "EndpointConnectionError")
	s.awaitRuled(ctx, t, "the agent is gone", continuousTaint) // a node that was released by the other rule stays so
	s.kubectl(ctx, t, "-n", "kube-system", "delete", "daemonset", "cni-reporter")

	s.startAgent(ctx, t)
	patch := filepath.Join(t.TempDir(), "sidecar.yaml")
	must(t, os.WriteFile(patch, []byte(s.reporterExample(t, "cni-patcher-sidecar.yaml")), 0o600))
	s.kubectl(ctx, t, "-n", "kube-system", "patch", "daemonset", "calico-node", "--type", "strategic", "--patch-file", patch)
	s.kubectl(ctx, t, "-n", "kube-system", "rollout", "status", "daemonset", "calico-node", "--timeout=120s")
	s.awaitReported(ctx, t, "the agent is healthy with a sidecar", corev1.ConditionTrue, "EndpointOK")

	s.awaitRuled(ctx, t, "the agent is back")

	before := s.reportedConditions(ctx, t)
	s.kubectl(ctx, t, "-n", "kube-system", "rollout", "restart", "daemonset", "calico-node")
	rolledOut := make(chan error, 1)
	go func() {
		_, err := s.cluster.Kubectl(ctx, "", "-n", "kube-system", "rollout", "status", "daemonset", "calico-node", "--timeout=120s")
		rolledOut <- err
	}()
	for done := false; !done; time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-rolledOut:
			must(t, err)
			done = true
		default:
		}
		for node, c := range s.reportedConditions(ctx, t) {
			if was := before[node]; c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Equal(&was.LastTransitionTime) {
				t.Fatalf("the rollout changed the condition of %s: %+v", node, c)
			}
		}
		for node, taints := range s.ruled(ctx, t) {
			if len(taints) > 0 {
				t.Fatalf("the rollout tainted %s: %v", node, taints)
			}
		}
	}
}

// reporterExample is a file of examples/cni-readiness, with the suite's image and the agent's path.
func (s *suite) reporterExample(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.root, "examples", "cni-readiness", file))
	must(t, err)
	return strings.NewReplacer("ghcr.io/kube-node-ready/kube-node-ready:v0.1.0", s.image, ":9099/readiness", ":9099/health").Replace(string(content))
}

func (s *suite) startAgent(ctx context.Context, t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.root, "test", "e2e", "testdata", "agent.yaml"))
	must(t, err)
	s.apply(ctx, t, string(content))
}

// reportedConditions are the reporter's conditions by node; nodes without one have a zero one.
func (s *suite) reportedConditions(ctx context.Context, t *testing.T) map[string]corev1.NodeCondition {
	t.Helper()
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(t, err)
	found := map[string]corev1.NodeCondition{}
	for _, n := range nodes.Items {
		found[n.Name] = corev1.NodeCondition{}
		for _, c := range n.Status.Conditions {
			if c.Type == reported {
				found[n.Name] = c
			}
		}
	}
	return found
}

func (s *suite) awaitReported(ctx context.Context, t *testing.T, when string, status corev1.ConditionStatus, reason string) {
	t.Helper()
	eventually(ctx, t, 90*time.Second, when, func() error {
		for node, c := range s.reportedConditions(ctx, t) {
			if c.Status != status || c.Reason != reason {
				return fmt.Errorf("the condition of %s is %+v", node, c)
			}
		}
		return nil
	})
}

// ruled are the taints of rules by node.
func (s *suite) ruled(ctx context.Context, t *testing.T) map[string][]string {
	t.Helper()
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(t, err)
	found := map[string][]string{}
	for _, n := range nodes.Items {
		found[n.Name] = nil
		for _, taint := range n.Spec.Taints {
			if strings.HasPrefix(taint.Key, "readiness.k8s.io/") {
				found[n.Name] = append(found[n.Name], taint.Key)
			}
		}
		slices.Sort(found[n.Name])
	}
	return found
}

// awaitRuled waits until every node has these taints of rules, and no others.
func (s *suite) awaitRuled(ctx context.Context, t *testing.T, when string, taints ...string) {
	t.Helper()
	eventually(ctx, t, 30*time.Second, fmt.Sprintf("%s: every node has of rules the taints %v", when, taints), func() error {
		for node, have := range s.ruled(ctx, t) {
			if !slices.Equal(have, taints) {
				return fmt.Errorf("%s has %v", node, have)
			}
		}
		return nil
	})
}
