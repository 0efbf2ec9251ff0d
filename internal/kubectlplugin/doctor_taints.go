package kubectlplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// ownPrefix is the prefix of the names that the project gives its marks, among them the default gating taint.
const ownPrefix = "node-ready/"

// examineEarlierTaints looks for taints that gated nodes before the configuration changed. Nothing remembers the
// earlier one. So a taint is named by what it looks like: it has a key of the project or the prefix of rules, and no
// configuration and no rule has it. A note names other taints of old nodes that the autoscaler expects to be temporary.
func examineEarlierTaints(ctx context.Context, v *invocation, d *diagnosis) error {
	all, err := v.cluster.nodes(ctx, "")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, t := range v.cluster.config.Vocabulary().Gating {
		known[t.Key] = true
	}
	carriers := map[marks.TaintID][]nodeState{}
	for _, s := range all {
		if s.in.Node.Deleting || v.now.Sub(s.node.CreationTimestamp.Time) < settleTime {
			continue
		}
		owned := slices.Collect(maps.Values(marks.OwnedOn(s.node)))
		for _, t := range s.node.Spec.Taints {
			if id := marks.TaintIDOf(t); !known[id.Key] && !slices.Contains(owned, id) {
				carriers[id] = append(carriers[id], s)
			}
		}
	}
	if len(carriers) == 0 {
		return nil
	}
	if err := v.cluster.addKeys(ctx, known); err != nil {
		return err
	}
	pools, err := v.cluster.nodePools(ctx, nil)
	if err != nil {
		return err
	}
	const then = "take the taint off these nodes (kubectl taint nodes NODE KEY:EFFECT-), or list it in " +
		"nodeManagement.taints, too, until no node has it (docs/operate/upgrade.md#rename-a-taint-or-the-label)"
	for _, id := range slices.SortedFunc(maps.Keys(carriers), func(a, b marks.TaintID) int {
		return strings.Compare(a.String(), b.String())
	}) {
		nodes := carriers[id]
		var names []string
		for _, s := range nodes {
			names = append(names, s.node.Name)
		}
		switch {
		case known[id.Key]:
		case strings.HasPrefix(id.Key, ownPrefix), strings.HasPrefix(id.Key, marks.RuleTaintPrefix):
			d.found(fmt.Sprintf("no configuration and no rule has the taint %s, so nobody removes it from %s: it may be a "+
				"gating taint of an earlier configuration", id, someOf(names)), then)
		case expectedToGo(id, nodes, pools):
			d.note(fmt.Sprintf("%s, older than %s, have the taint %s, which the autoscaler expects to be temporary",
				someOf(names), settleTime, id),
				"find what should remove it. If it gated nodes in an earlier configuration, "+then)
		}
	}
	return nil
}

// expectedToGo reports whether an autoscaler takes the taint for one that goes by itself: Cluster Autoscaler by its
// key, or Karpenter by the NodePool of a node that has it.
func expectedToGo(id marks.TaintID, nodes []nodeState, pools []decide.NodePool) bool {
	taint := marks.Taint{Key: id.Key, Effect: id.Effect}
	return knownToClusterAutoscaler(taint) || slices.ContainsFunc(pools, func(p decide.NodePool) bool {
		return decide.HasTaint(p.Startup, taint) && slices.ContainsFunc(nodes, func(s nodeState) bool {
			return s.node.Labels[owner.LabelNodePool] == p.Name
		})
	})
}

// addKeys adds the keys of the taints that any controller of the cluster, or a rule, may remove.
func (c *cluster) addKeys(ctx context.Context, known map[string]bool) error {
	found, err := c.configMaps(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	for _, m := range found {
		if cfg, err := parse(m, ""); err == nil { // else the check "controllers" reports it
			for _, t := range cfg.Vocabulary().Gating {
				known[t.Key] = true
			}
		}
	}
	err = each(ctx, c.dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).List, "",
		func(o *unstructured.Unstructured) {
			key, _, _ := unstructured.NestedString(o.Object, "spec", "taint", "key")
			known[key] = true
		})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
