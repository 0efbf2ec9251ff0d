package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// TaintsOnCreation lists the taints that are to be added to a node at its creation, in the configuration's order: those of the
// profile that its labels select now, less what it brings. A taint that the node brings with another value is left as it is,
// and so is what stands in for one of effect NoExecute: the API server refuses two taints of one key and effect. None are added
// to a node that is not verified: one that is opted out or not selected, not Linux, virtual, or a control-plane one as far
// as its labels show it; nor to one of AKS's system pools, which run what a cluster cannot start without.
func TaintsOnCreation(n *corev1.Node, c *config.Config) []marks.Taint {
	in := Input{Config: c, Node: marks.Observe(n, c.Vocabulary()), Selected: c.Selects(n.Labels)}
	if !Eligible(in) || protected(in) || n.Labels[marks.LabelAKSMode] == marks.AKSModeSystem {
		return nil
	}
	var missing []marks.Taint
	for _, t := range c.For(n.Labels).Taints {
		there := marks.Vocabulary{Gating: marks.WithFallbacks([]marks.Taint{t})}
		if !slices.ContainsFunc(n.Spec.Taints, there.Gates) {
			missing = append(missing, t)
		}
	}
	return missing
}
