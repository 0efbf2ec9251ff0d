//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// knownKey is a gating key that Karpenter knows by itself, as in examples/values-zero-config.yaml.
const knownKey = "readiness.k8s.io/node-ready"

const burstPods = 30

// burst is a NodePool without startupTaints, and a Deployment whose pods need several of its nodes at once. The pool's
// limit bounds what Karpenter launches for a taint that it does not know.
const burst = `
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: burst}
spec: {}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: NAME}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: burst}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [c-8x-amd64-linux]}
      expireAfter: Never
  limits: {cpu: "96"}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: default}
spec:
  replicas: 30
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {karpenter.sh/nodepool: NAME}
      containers:
      - name: pause
        image: "kube-node-ready.test/pause:1"
        imagePullPolicy: IfNotPresent
        resources: {requests: {cpu: "1"}}
`

// onRealNodes keeps the controller off the nodes that Karpenter's kwok provider plays, of this case and of those before: no
// container runs there, so a rollout would never end.
const onRealNodes = `controller.affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` +
	`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kwok.x-k8s.io/node","operator":"DoesNotExist"}]}]}}}`

// New nodes are gated by a policy, and no NodePool has startupTaints. With a key that Karpenter knows by itself it
// launches as many nodes for 30 pods as without a gate, all of them gated on creation, verified and initialized. With the
// default key it launches more, and doctor, an event and an alert report why.
func (s *suite) karpenterZeroConfig(ctx context.Context, t *testing.T) {
	s.startKarpenter(ctx, t)
	t.Cleanup(func() { s.deploy(context.WithoutCancel(ctx), t, onRealNodes) })

	needed := len(s.launchBurst(ctx, t, "ungated"))
	t.Logf("%d pods need %d nodes", burstPods, needed)
	if needed < 2 {
		t.Fatalf("%d nodes show nothing", needed)
	}
	s.endBurst(ctx, t, "ungated")

	s.gateByPolicy(ctx, t, knownKey)
	claims := s.launchBurst(ctx, t, "gated")
	for _, c := range claims {
		name := c.Status.NodeName
		s.awaitVerified(ctx, t, 60*time.Second, name)
		s.awaitInitialized(ctx, t, c)
		s.karpenter.mu.Lock()
		onCreation := s.karpenter.created[name]
		s.karpenter.mu.Unlock()
		if !slices.ContainsFunc(onCreation, func(t corev1.Taint) bool { return t.Key == knownKey }) {
			t.Errorf("%s was created with the taints %v", name, onCreation)
		}
	}
	throughout(ctx, t, 15*time.Second, "Karpenter launches no more nodes than without a gate", func() error {
		if have := len(s.claimsOf(ctx, t, "gated")); have != needed {
			return fmt.Errorf("it launched %d, and %d are needed", have, needed)
		}
		return nil
	})
	s.endBurst(ctx, t, "gated")

	const pool = "unknown"
	s.gateByPolicy(ctx, t, taintKey)
	s.apply(ctx, t, strings.ReplaceAll(burst, "NAME", pool))
	eventually(ctx, t, 60*time.Second, "Karpenter launches more nodes than are needed", func() error {
		if have := len(s.claimsOf(ctx, t, pool)); have <= needed {
			return fmt.Errorf("it launched %d, and %d are needed", have, needed)
		}
		return nil
	})
	const finding = "the gating taint " + taintKey + ":NoSchedule in startupTaints"
	if out := s.plugin(ctx, t, "doctor", "-n", namespace); !strings.Contains(out, finding) {
		t.Errorf("doctor does not report it: %s", out)
	}
	eventually(ctx, t, 20*time.Second, "an event on the NodePool reports it", func() error {
		out := s.kubectl(ctx, t, "get", "events", "-A", "--field-selector",
			"reason=StartupTaintUnknown,involvedObject.name="+pool, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, finding) {
			return fmt.Errorf("it does not: %q", out)
		}
		return nil
	})
	s.awaitAlert(ctx, t, "KubeNodeReadyUnknownStartupTaint")
	t.Logf("with a key that Karpenter does not know it launched %d nodes in place of %d", len(s.claimsOf(ctx, t, pool)), needed)
	s.endBurst(ctx, t, pool)
	s.watch.check(t)
}

// gateByPolicy makes the API server add the taint to each new node. It stays for longer than Karpenter waits before it
// plans again for pods that are pending.
func (s *suite) gateByPolicy(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	s.deploy(ctx, t, onRealNodes, `controller.config.admission={"mode":"policy"}`, `controller.config.reconciliation.intervalSeconds=5`,
		`controller.config.nodeManagement={"minimumHoldSeconds":30,"taints":[{"key":"`+key+`","value":"true","effect":"NoSchedule"}]}`)
	eventually(ctx, t, 30*time.Second, "the policy taints new nodes", func() error {
		n, err := s.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dry-run"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key }) {
			err = fmt.Errorf("it adds %v", n.Spec.Taints)
		}
		return err
	})
}

// launchBurst has the pods of a pool run, and returns the pool's NodeClaims.
func (s *suite) launchBurst(ctx context.Context, t *testing.T, name string) []nodeClaim {
	t.Helper()
	s.apply(ctx, t, strings.ReplaceAll(burst, "NAME", name))
	eventually(ctx, t, 3*time.Minute, fmt.Sprintf("%d pods of %s run", burstPods, name), func() error {
		list, err := s.client.CoreV1().Pods("default").List(ctx,
			metav1.ListOptions{LabelSelector: "app=" + name, FieldSelector: "status.phase=Running"})
		if err == nil && len(list.Items) != burstPods {
			err = fmt.Errorf("%d do", len(list.Items))
		}
		return err
	})
	return s.claimsOf(ctx, t, name)
}

// endBurst takes a pool and its nodes away.
func (s *suite) endBurst(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	s.kubectl(ctx, t, "delete", "deployment", name)
	s.kubectl(ctx, t, "delete", "nodepool", name, "--timeout=60s")
	eventually(ctx, t, 60*time.Second, "the nodes of "+name+" are gone", func() error {
		nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: nodePoolLabel + "=" + name})
		if err == nil && len(nodes.Items) > 0 {
			// Karpenter may launch a NodeClaim while its NodePool is being deleted, and then leaves it.
			s.kubectl(ctx, t, "delete", "nodeclaims", "--selector", nodePoolLabel+"="+name, "--wait=false", "--ignore-not-found")
			// kwok makes the node of a NodeClaim that was deleted meanwhile: nobody deletes that node.
			if len(s.claimsOf(ctx, t, name)) == 0 {
				s.kubectl(ctx, t, "delete", "nodes", "--selector", nodePoolLabel+"="+name, "--wait=false", "--ignore-not-found")
			}
			err = fmt.Errorf("%d are there", len(nodes.Items))
		}
		return err
	})
}

func (s *suite) claimsOf(ctx context.Context, t *testing.T, pool string) (claims []nodeClaim) {
	t.Helper()
	for _, c := range s.nodeClaims(ctx, t) {
		if c.Metadata.Labels[nodePoolLabel] == pool {
			claims = append(claims, c)
		}
	}
	return claims
}

// plugin runs the kubectl plugin, whatever its exit code.
func (s *suite) plugin(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	path, err := install.Binary("kubectl-node_ready")
	must(t, err)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.ControlPlane.Kubeconfig())
	out, _ := cmd.CombinedOutput()
	return string(out)
}
