//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// The profile of testdata/values.yaml that waits for an agent and a CSI driver, and the image of the agent.
const (
	agentsLabel = "e2e.test/agents"
	csiDriver   = "e2e.csi.test"
	agentImage  = "kube-node-ready.test/coredns:1"
)

// agent is a DaemonSet of the nodes that wait for it. It tolerates the gating taint, or the wait would have no end.
const agent = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      nodeSelector: {` + agentsLabel + `: "true"}
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers:
      - {name: agent, image: ` + agentImage + `, imagePullPolicy: IfNotPresent}
`

// A node waits for a DaemonSet that does not exist yet, and then for its pod, whose image comes late. After that, it
// waits for a CSI driver that the kubelet has not registered, and for the number of volumes that the driver takes. The
// node reports each wait. No worker starts before all prerequisites hold, and then the node is verified.
func (s *suite) lateAgents(ctx context.Context, t *testing.T) {
	const name = "node-g"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.kubectl(ctx, t, "-n", "default", "delete", "daemonset", "agent", "--ignore-not-found")
		s.removeNode(ctx, t, name)
	})
	began := time.Now()
	s.addNodes(ctx, t, realnode.NodeOptions{Labels: map[string]string{agentsLabel: "true"}, WithoutImages: []string{agentImage}}, name)
	s.awaitHeld(ctx, t, name, began, "default/agent")
	s.awaitAlert(ctx, t, "KubeNodeReadyNodeStuckUnverified")
	s.apply(ctx, t, agent)
	s.awaitHeld(ctx, t, name, began, "default/agent", "not Ready")

	must(t, s.node(name).ImportImage(ctx, filepath.Join(s.root, ".cache", "realnode", "coredns.tar")))
	// The kubelet tries a missing image at growing distances.
	s.kubectl(ctx, t, "-n", "default", "delete", "pod", "-l", "app=agent", "--wait=false")
	eventually(ctx, t, 40*time.Second, "the agent is no longer waited for", func() error {
		m, err := s.marks(ctx, name)
		if err == nil && strings.Contains(m.message, "default/agent") {
			err = fmt.Errorf("it is: %s", m)
		}
		return err
	})
	s.awaitHeld(ctx, t, name, began, csiDriver)

	must(t, s.node(name).StartCSIDriver(csiDriver, 0))
	s.awaitHeld(ctx, t, name, began, csiDriver, "volume")
	must(t, s.node(name).StopCSIDriver(ctx))
	eventually(ctx, t, 20*time.Second, "the kubelet takes the driver out of the CSINode", func() error {
		if out := s.kubectl(ctx, t, "get", "csinode", name, "-o", "jsonpath={.spec.drivers[*].name}"); out != "" {
			return fmt.Errorf("it says %s", out)
		}
		return nil
	})
	must(t, s.node(name).StartCSIDriver(csiDriver, 8))
	s.awaitVerified(ctx, t, 40*time.Second, name)
	if pods := s.watch.of(name, began); len(pods) != 1 {
		t.Errorf("one worker was needed, %d were started: %+v", len(pods), pods)
	}
	s.watch.check(t)
}
