package rules

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodecache"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// counted returns the tallies: how many nodes are in each state under each rule, by the rule's UID. Decisions about
// single nodes update them. To evaluate every rule on every node for each status and each scrape would cost the square
// of the number of rules. The tallies are computed from all cached nodes when the rules have changed. They are nil if
// rules are not served. r.mu must be held.
func (r *Rules) counted(ctx context.Context) (map[string]*rule.Tally, error) {
	if state, _ := r.serving.state(r.Config, r.set != nil, r.Now()); state != rule.Serving {
		return nil, nil
	}
	if r.tallies != nil {
		return r.tallies, nil
	}
	nodes, err := nodecache.Each(ctx, r.Nodes)
	if err != nil {
		return nil, err
	}
	r.tallies = map[string]*rule.Tally{}
	for i := range r.set.rules {
		r.tallies[r.set.rules[i].UID] = &rule.Tally{}
	}
	for _, s := range r.nodes {
		s.counted = nil
	}
	if len(r.set.rules) == 0 {
		return r.tallies, nil
	}
	for n := range nodes {
		plan := rule.Next(r.observed(n), r.set.rules, r.Config.StaleAfter.Duration, r.Now())
		r.recount(n.Name, plan.Evaluations)
	}
	return r.tallies, nil
}

// Tallies are the states of all nodes under each rule, by the rule's UID; empty if rules are not served.
func (r *Rules) Tallies(ctx context.Context) (map[string]*rule.Tally, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tallies, err := r.counted(ctx)
	out := make(map[string]*rule.Tally, len(tallies))
	for uid, t := range tallies {
		c := t.Clone()
		out[uid] = &c
	}
	return out, err
}

// tally counts the nodes in each state under one rule. It is zero if rules are not served.
func (r *Rules) tally(ctx context.Context, c *rule.Rule) (rule.Tally, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tallies, err := r.counted(ctx)
	if t := tallies[c.UID]; t != nil {
		return t.Clone(), nil
	}
	return rule.Tally{}, err
}

// count updates the tallies with the decision about a node, and enqueues the rules whose status changes. There are no
// evaluations for a node that is gone. r.mu must be held.
func (r *Rules) count(node string, evaluations []rule.Evaluation) {
	if r.tallies == nil {
		return // they are made of all nodes when they are needed
	}
	for _, c := range r.recount(node, evaluations) {
		r.EnqueueRule(c.Name)
		r.enqueueLeftOpen(c)
	}
}

// recount replaces a node's evaluations in the tallies, and returns the rules whose tally changes. Evaluations of rules
// that are gone do not count: a plan may be older than the tallies. r.mu must be held.
func (r *Rules) recount(node string, evaluations []rule.Evaluation) (changed []*rule.Rule) {
	s := r.nodes[node]
	if s == nil {
		return nil
	}
	gone := func(e rule.Evaluation) bool { return r.tallies[e.Rule.UID] == nil }
	before, next := s.counted, slices.DeleteFunc(slices.Clone(evaluations), gone)
	for i := range next {
		if next[i].State != rule.Held {
			next[i].Results = nil // a status shows those of held nodes alone
		}
	}
	for _, e := range before {
		if !slices.ContainsFunc(next, e.CountsAs) {
			r.tallies[e.Rule.UID].Drop(node, e)
			changed = append(changed, e.Rule)
		}
	}
	for _, e := range next {
		if !slices.ContainsFunc(before, e.CountsAs) {
			r.tallies[e.Rule.UID].Count(node, e)
			if !slices.Contains(changed, e.Rule) {
				changed = append(changed, e.Rule)
			}
		}
	}
	s.counted = next
	return changed
}

// mayClose are the UIDs of the rules that may put their taint on the node again although they have released it before.
// They are recorded in r.closing. If nodes cannot be counted, no rule may. r.mu must be held.
func (r *Rules) mayClose(node string, evaluations []rule.Evaluation) (may map[string]bool) {
	wanted := map[string]bool{}
	for _, e := range evaluations {
		wanted[e.Rule.UID] = e.LeftOpen || e.Tainted
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
		tallies, err := r.counted(context.Background())
		if err != nil || tallies == nil {
			return nil
		}
		if uid := e.Rule.UID; r.closing[uid][node] || r.free(uid, node) > 0 {
			if may == nil {
				may = map[string]bool{}
			}
			may[uid] = true
			if r.closing == nil {
				r.closing = map[string]map[string]bool{}
			}
			addClosing(r.closing, uid, node)
		}
	}
	return may
}

func addClosing(closing map[string]map[string]bool, uid, node string) {
	if closing[uid] == nil {
		closing[uid] = map[string]bool{}
	}
	closing[uid][node] = true
}

// free is how many more nodes a rule may close again, not counting the node named besides. r.mu must be held.
func (r *Rules) free(uid, besides string) int {
	closed := r.tallies[uid].ClosedAgain
	if r.closedAgain(uid, besides) {
		closed--
	}
	for node := range r.closing[uid] {
		if node != besides && !r.closedAgain(uid, node) {
			closed++
		}
	}
	return rule.ClosingLimit(r.tallies[uid].ReleasedBefore, r.Config.MaxClosedPercent) - closed
}

// closedAgain reports whether the rule's tally counts the node as closed again. r.mu must be held.
func (r *Rules) closedAgain(uid, node string) bool {
	s := r.nodes[node]
	return s != nil && slices.ContainsFunc(s.counted, func(e rule.Evaluation) bool {
		return e.Rule.UID == uid && e.ReleasedBefore && e.Tainted
	})
}

// enqueueLeftOpen enqueues as many of the nodes that the limit leaves open as the rule may close now. r.mu must be
// held.
func (r *Rules) enqueueLeftOpen(c *rule.Rule) {
	open := r.tallies[c.UID].LeftOpen
	if len(open) == 0 {
		return
	}
	free := r.free(c.UID, "")
	for node := range open {
		if free <= 0 {
			return
		}
		free--
		r.EnqueueNode(node)
	}
}

// recallClosings reads from the API server which nodes are closed again, because the cache may not show the last writes
// of the previous leader.
func (r *Rules) recallClosings(ctx context.Context, live client.Reader) error {
	if r.Config.MaxClosedPercent == 0 {
		return nil
	}
	closing := map[string]map[string]bool{}
	empty := func() *corev1.NodeList { return &corev1.NodeList{} }
	err := apiread.Pages(ctx, live, pageSize, empty, func(page *corev1.NodeList, first bool) bool {
		if first {
			clear(closing)
		}
		for i := range page.Items {
			n := &page.Items[i]
			owned := marks.OwnedOn(n)
			for _, uid := range marks.ReleasedOn(n) {
				if id, owns := owned[uid]; owns && rule.Tainted(n, id) {
					addClosing(closing, uid, n.Name)
				}
			}
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = closing
	return err
}
