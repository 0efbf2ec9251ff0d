//go:build e2e

package e2e

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

var smoke = flag.Bool("smoke", false, "run the cases of each change alone: what a user meets first, and no failover")

// TestEndToEnd runs the cases in order: they share one cluster, and the first ones build it up. run has those of a smoke
// run too, whole those of the whole run alone.
func TestEndToEnd(t *testing.T) {
	ctx := t.Context()
	began := time.Now()
	s := setup(ctx, t)
	s.results = append(s.results, result{"(control plane up)", time.Since(began), "passed"})
	t.Cleanup(func() { s.tearDown(t) })

	s.run(t, "three nodes join and workloads wait for them", 2*time.Minute, s.threeNodesJoin)
	if t.Failed() {
		return // nothing that follows could mean anything
	}
	s.run(t, "Prometheus scrapes the controller", time.Minute, s.startPrometheus)

	s.run(t, "removing the label verifies again", time.Minute, s.labelRemoved)
	s.whole(t, "a worker's time on a node, phase by phase", 5*time.Minute, s.workerPhases)
	s.run(t, "DNS dropped on one node", 2*time.Minute, s.dnsDropped)
	s.whole(t, "service network lost on one node", 2*time.Minute, s.servicesLost)
	s.whole(t, "30% loss and 300 ms latency", 2*time.Minute, s.lossAndLatency)
	s.whole(t, "MTU cut on one node", 2*time.Minute, s.mtuCut)
	s.whole(t, "one of two DNS endpoints dead", 2*time.Minute, s.deadDNSEndpoint)
	s.whole(t, "clock of a node skewed", 2*time.Minute, s.clockSkewed)
	s.run(t, "reboot verifies again", 2*time.Minute, s.reboot)
	s.whole(t, "all nodes reboot without DNS: no gate closes", 5*time.Minute, s.sharedOutage)
	s.whole(t, "devices of a device plugin: late, in part, unhealthy", 3*time.Minute, s.devicePlugin)
	s.whole(t, "devices of a DRA driver: claimed, and read by the worker", 3*time.Minute, s.draDriver)
	s.whole(t, "DaemonSet mode and back", 5*time.Minute, s.daemonSetMode)

	s.whole(t, "controller killed mid-verification", 4*time.Minute, s.controllerKilled)
	s.run(t, "helm upgrade mid-verification", 3*time.Minute, s.helmUpgrade)
	s.whole(t, "verified node fails for good: quarantined, not deleted", 2*time.Minute, s.quarantined)
	s.whole(t, "full node: a re-verification displaces no workload", 3*time.Minute, s.fullNode)
	s.run(t, "late DaemonSet and late CSI driver: no worker before they are there", 3*time.Minute, s.lateAgents)
	s.whole(t, "container that cannot be ended", 6*time.Minute, s.containerStuck)
	s.whole(t, "image missing on a node", 2*time.Minute, s.imageMissing)
	s.whole(t, "node vanishes mid-verification", 3*time.Minute, s.nodeVanishes)
	s.run(t, "rules and the reporter beside an agent", 5*time.Minute, s.reporter)
	s.whole(t, "leader's node drained", 4*time.Minute, s.leaderDrained)

	s.whole(t, "Karpenter: leader's node consolidated", 8*time.Minute, s.karpenterConsolidates)
	s.run(t, "Karpenter: node verified, then initialized", 2*time.Minute, s.karpenterVerifies)
	s.run(t, "Karpenter: taint stays until the node is registered, whose label then brings other checks", 3*time.Minute, s.karpenterLate)
	s.whole(t, "Karpenter: a rule's taint among the startupTaints", 4*time.Minute, s.karpenterRule)
	s.run(t, "Karpenter: failing node replaced", 4*time.Minute, s.karpenterReplaces)
	s.whole(t, "Karpenter: fleet-wide failure replaces nothing", 5*time.Minute, s.karpenterFleetFailure)
	s.whole(t, "Karpenter: no configuration, and no node too many", 10*time.Minute, s.karpenterZeroConfig)
	s.run(t, "Karpenter: taken away", 3*time.Minute, s.karpenterStop)

	s.run(t, "alerts fired and resolved", 2*time.Minute, s.alerts)
	s.whole(t, "two releases, each lost beside the other", 5*time.Minute, s.twoReleases)
	s.run(t, "helm uninstall leaves only marks on nodes", 2*time.Minute, s.uninstall)
	s.whole(t, "README to deletion, from the text alone", 12*time.Minute, s.pages)
}

// tearDown ends the cluster and insists that nothing of it is left on the machine.
func (s *suite) tearDown(t *testing.T) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	outcome := "passed"
	s.karpenter.stop()
	if err := s.cluster.Stop(ctx); err != nil {
		t.Errorf("tear down: %v", err)
		outcome = "FAILED"
	}
	for _, left := range realnode.Leftovers(s.cluster.Dir()) {
		t.Errorf("left behind: %s", left)
		outcome = "FAILED"
	}
	s.results = append(s.results, result{"(torn down, nothing left)", time.Since(began), outcome})
	s.summary()
	if t.Failed() {
		_, _ = os.Stdout.WriteString("evidence: " + s.artifacts + "\n")
	}
}
