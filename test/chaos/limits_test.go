package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// unhealthy reports whether a node counts for maxUnhealthy.
func (c *checker) unhealthy(n *corev1.Node) bool {
	r := recordOf(n)
	failed := r.Attempts > 0 && r.LastOutcome != attempt.Passed && c.stale(n) == ""
	return (failed || r.Suspicion != nil && gated(n)) && n.Annotations["node-ready/skip"] != "true" && !c.settings.leavesOutNode(n)
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
			if o == n || c.unhealthy(o.node) && ch.at.Sub(o.sound) > underWay {
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
	n.intended, n.busy, n.early = before, c.busy(n, ch), ""
	switch s := c.settings; {
	case c.unsettledConfiguration(ch):
	case s.off || s.dryRun || s.action != deleteOwner:
		n.early = fmt.Sprintf("the configuration has action %s, off %t, dry run %t", s.action, s.off, s.dryRun)
	default:
		n.early = c.stale(before)
	}
	c.crowded(n, ch, "the deletion is intended")
	c.unfounded(n, ch, "the deletion is intended")
}
