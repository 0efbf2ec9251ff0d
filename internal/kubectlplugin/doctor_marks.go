package kubectlplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// namedNodes is how many nodes a finding about many of them names.
const namedNodes = 3

// examineMarks finds nodes whose passes another writer takes back, by the field manager that does, nodes that were
// opened before they were verified, and nodes whose gating taint the controller may not remove.
func examineMarks(ctx context.Context, v *invocation, d *diagnosis) error {
	taken := map[string][]string{}
	var open, closed []string
	err := each(ctx, v.cluster.client.CoreV1().Nodes().List, "", func(n *corev1.Node) {
		s := v.cluster.observe(n, nil)
		if r := s.in.Node.Record; decide.MarksTakenBack(r, v.now) {
			taken[r.TakenBack.By] = append(taken[r.TakenBack.By], n.Name)
		}
		if decide.OpenedUnverified(s.in) {
			open = append(open, n.Name)
		}
		if c := s.in.Node.Condition; s.in.Node.Gated && c != nil && c.Reason == marks.ReasonReleaseRefused {
			closed = append(closed, n.Name)
		}
	})
	if len(closed) > 0 {
		d.found("release refused: the API server refuses the patch that removes the gating taint of "+someOf(closed),
			"kubectl describe node quotes the refusal. If a permission is missing, run helm upgrade; correct an admission "+
				"policy of yours. AKS refuses to remove a pool's node taints: set nodeInitializationTaints instead "+
				"(docs/guides/autoscalers.md)")
	}
	if len(open) > 0 {
		d.found("opened unverified: another writer removed the gating taint of "+someOf(open)+" before they were verified",
			"kubectl describe node shows the writer, and how to verify the node. Correct the writer, which may write "+
				"spec.taints from an old read, or set admission.mode, with which the taint is put back")
	}
	label := v.cluster.config.NodeManagement.VerifiedLabel.Key
	for _, by := range slices.Sorted(maps.Keys(taken)) {
		names := someOf(taken[by])
		d.found(fmt.Sprintf("%s takes back the passes of %s: the gating taint returns or the label %s goes within a "+
			"minute of each. The next verification then waits, up to ten minutes", takenBy(by), names, label),
			"remove the gating taint from what sets it all the time: taints of a node group, of a machine set, Talos' "+
				"nodeTaints. A node needs it only when it is created. Remove the label from what Git or another "+
				"controller applies to nodes (docs/operate/troubleshooting.md)")
	}
	return err
}

// someOf names the first of the nodes.
func someOf(nodes []string) string {
	names := strings.Join(nodes[:min(namedNodes, len(nodes))], ", ")
	if len(nodes) > namedNodes {
		names += fmt.Sprintf(" and %d more", len(nodes)-namedNodes)
	}
	return names
}

// takenBy names who takes passes back.
func takenBy(manager string) string {
	if manager == "" {
		return "a writer that the Node does not show, but the API server's audit log does,"
	}
	return "field manager " + manager
}
