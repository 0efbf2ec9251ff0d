package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// unhealthy reports whether a node counts for maxUnhealthy.
func unhealthy(n *corev1.Node) bool {
	r := recordOf(n)
	return (r.Attempts > 0 && r.LastOutcome != attempt.Passed || r.Suspicion != nil && gated(n)) && n.Annotations["node-ready/skip"] != "true"
}

// outage counts the nodes that are unhealthy beside one whose deletion is intended now, and of how many. What changed while the decision was under
// way counts in its favour: few are unhealthy, of many.
func (c *checker) outage(n *nodeSeen, ch change) (bad []string, total int) {
	pool := n.node.Labels[labelPool]
	for uid, o := range c.ever {
		if pool != "" && o.node.Labels[labelPool] != pool {
			continue
		}
		_, deleted := c.ledger[uid]
		switch {
		case !o.gone:
			total++
			if o == n || unhealthy(o.node) && ch.at.Sub(o.sound) > underWay {
				bad = append(bad, fmt.Sprintf("%s since %s: %s", o.node.Name, o.sound.Format("05.000"), describe(o.node)))
			}
		case deleted && ch.at.Sub(o.left) > underWay:
			bad = append(bad, fmt.Sprintf("%s, deleted", o.node.Name))
			total++
		case deleted || ch.at.Sub(o.left) <= underWay:
			total++
		}
	}
	return bad, total
}

// intends checks a deletion that is written into the record.
func (c *checker) intends(n *nodeSeen, before *corev1.Node, ch change) {
	n.intended, n.busy = before, c.busy(n, ch)
	n.early = c.tooEarly(n, int32(len(c.settings.entries())-1), recordOf(before), boot(before), ch) //nolint:gosec // some
	c.crowded(n, ch, "the deletion is intended")
}
