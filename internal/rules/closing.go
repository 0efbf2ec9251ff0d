package rules

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// closings are the nodes that rules, by UID, close again although they have released them before: decided here, whether
// the cache shows it or not. Nodes are decided about at the same time, and rules.maxClosedPercent must hold for all of
// them together. A node stays in it until it is decided about without the taint and need not be closed.
type closings map[string]map[string]bool

func (c closings) add(uid, node string) {
	if c[uid] == nil {
		c[uid] = map[string]bool{}
	}
	c[uid][node] = true
}

// keep drops the rules that are not in the set.
func (c closings) keep(s *set) {
	uids := map[string]bool{}
	for i := range s.rules {
		uids[s.rules[i].UID] = true
	}
	for uid := range c {
		if !uids[uid] {
			delete(c, uid)
		}
	}
}

// gone drops a node.
func (c closings) gone(node string) {
	for _, nodes := range c {
		delete(nodes, node)
	}
}

// mayClose are the UIDs of the rules that may close the node again, each of which now has a closing for it; none where
// nodes cannot be counted. r.mu must be held.
func (r *Rules) mayClose(node string, evaluations []rule.Evaluation) (may map[string]bool) {
	if r.closing == nil {
		r.closing = closings{}
	}
	wanted := map[string]bool{}
	for _, e := range evaluations {
		if e.LeftOpen || e.Tainted {
			wanted[e.Rule.UID] = true
		}
	}
	for uid, nodes := range r.closing {
		if !wanted[uid] {
			delete(nodes, node)
		}
	}
	for _, e := range evaluations {
		if !e.LeftOpen {
			continue
		}
		t, err := r.counted(context.Background())
		if err != nil || t == nil {
			return nil
		}
		if uid := e.Rule.UID; r.closing[uid][node] || r.free(t, uid, node) > 0 {
			if may == nil {
				may = map[string]bool{}
			}
			may[uid] = true
			r.closing.add(uid, node)
		}
	}
	return may
}

// free is how many more nodes a rule may close again, besides the one that is named. r.mu must be held.
func (r *Rules) free(t *tally, uid, besides string) int {
	of := t.rules[uid]
	closed := of.ClosedAgain
	if t.closedAgain(uid, besides) {
		closed--
	}
	for node := range r.closing[uid] {
		if node != besides && !t.closedAgain(uid, node) {
			closed++
		}
	}
	return rule.ClosingLimit(of.ReleasedBefore, r.Config.MaxClosedPercent) - closed
}

// closedAgain reports whether a node is counted as one that the rule has closed again.
func (t *tally) closedAgain(uid, node string) bool {
	for _, e := range t.nodes[node] {
		if e.Rule.UID == uid {
			return e.ReleasedBefore && e.Tainted
		}
	}
	return false
}

// wakeLeftOpen wakes as many of the nodes that the limit leaves open as the rule may close by now. r.mu must be held.
func (r *Rules) wakeLeftOpen(c *rule.Rule) {
	open := r.tally.rules[c.UID].LeftOpen
	if len(open) == 0 {
		return
	}
	free := r.free(r.tally, c.UID, "")
	for node := range open {
		if free <= 0 {
			return
		}
		free--
		r.WakeNode(node)
	}
}

// recallClosings reads from the API server which nodes are closed again: the cache may not show the last writes of the
// leader of before.
func (r *Rules) recallClosings(ctx context.Context, live client.Reader) error {
	if r.Config.MaxClosedPercent == 0 {
		return nil
	}
	closed := closings{}
	empty := func() *corev1.NodeList { return &corev1.NodeList{} }
	err := apiread.Pages(ctx, live, pageSize, empty, func(page *corev1.NodeList, first bool) bool {
		if first {
			clear(closed)
		}
		for i := range page.Items {
			n := &page.Items[i]
			owned := marks.OwnedOn(n)
			for _, uid := range marks.ReleasedOn(n) {
				on := func(t corev1.Taint) bool { return marks.TaintIDOf(t) == owned[uid] }
				if slices.ContainsFunc(n.Spec.Taints, on) {
					closed.add(uid, n.Name)
				}
			}
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = closed
	return err
}
