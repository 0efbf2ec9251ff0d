package rules

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// tally is how all nodes stand with each rule. It follows the decisions about single nodes: to evaluate each rule on each
// node whenever a status is due, or metrics are scraped, costs the square of the number of rules.
type tally struct {
	rules map[string]*rule.Tally       // by UID
	nodes map[string][]rule.Evaluation // what is counted of a node, by its name
}

func newTally(rules []rule.Rule) *tally {
	t := &tally{rules: map[string]*rule.Tally{}, nodes: map[string][]rule.Evaluation{}}
	for i := range rules {
		t.rules[rules[i].UID] = &rule.Tally{}
	}
	return t
}

// count replaces what is counted of a node; nil for one that is gone. It returns the rules for which that changes anything.
func (t *tally) count(node string, evaluations []rule.Evaluation) (changed []*rule.Rule) {
	next := make([]rule.Evaluation, 0, len(evaluations))
	for _, e := range evaluations {
		if e.State != rule.Held {
			e.Results = nil // a status shows those of held nodes alone
		}
		next = append(next, e)
	}
	before := t.nodes[node]
	for _, e := range before {
		if !slices.ContainsFunc(next, func(o rule.Evaluation) bool { return same(e, o) }) {
			t.rules[e.Rule.UID].Drop(node, e)
			changed = append(changed, e.Rule)
		}
	}
	for _, e := range next {
		if !slices.ContainsFunc(before, func(o rule.Evaluation) bool { return same(e, o) }) {
			t.rules[e.Rule.UID].Count(node, e)
			if !slices.Contains(changed, e.Rule) {
				changed = append(changed, e.Rule)
			}
		}
	}
	if t.nodes[node] = next; len(next) == 0 {
		delete(t.nodes, node)
	}
	return changed
}

// same reports whether two evaluations of a node count alike.
func same(a, b rule.Evaluation) bool {
	return a.Rule == b.Rule && a.State == b.State && a.Met == b.Met && a.Completed == b.Completed && a.Missing == b.Missing &&
		a.Tainted == b.Tainted && a.ReleasedBefore == b.ReleasedBefore && a.LeftOpen == b.LeftOpen &&
		slices.Equal(a.Results, b.Results) && slices.Equal(a.Defaulted, b.Defaulted)
}

// counted is the tally, made of all nodes of the cache where the rules are other ones than before; nil where rules are not
// served. r.mu must be held.
func (r *Rules) counted(ctx context.Context) (*tally, error) {
	if state, _ := r.serving.why(r.set != nil, r.Now()); state != rule.Serving {
		return nil, nil
	}
	if r.tally != nil {
		return r.tally, nil
	}
	var nodes corev1.NodeList
	if err := r.Nodes.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	t := newTally(r.set.rules)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		t.count(n.Name, rule.Next(r.observe(n), r.set.rules, r.Config.StaleAfter.Duration, r.Now()).Evaluations)
	}
	r.tally = t
	return t, nil
}

// Tallies are how all nodes stand with each rule, by the rule's UID; empty where rules are not served.
func (r *Rules) Tallies(ctx context.Context) (map[string]*rule.Tally, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.counted(ctx)
	if t == nil {
		return nil, err
	}
	out := make(map[string]*rule.Tally, len(t.rules))
	for uid, of := range t.rules {
		c := of.Clone()
		out[uid] = &c
	}
	return out, nil
}

// standing is how all nodes stand with one rule; zero where rules are not served.
func (r *Rules) standing(ctx context.Context, c *rule.Rule) (rule.Tally, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.counted(ctx)
	if t == nil || t.rules[c.UID] == nil {
		return rule.Tally{}, err
	}
	return t.rules[c.UID].Clone(), nil
}

// recount accounts for what was decided about a node, and wakes the rules whose status that changes. r.mu must be held.
func (r *Rules) recount(node string, evaluations []rule.Evaluation) {
	if r.tally == nil {
		return // it is made of all nodes when it is asked for
	}
	for _, c := range r.tally.count(node, evaluations) {
		r.WakeRule(c.Name)
		r.wakeLeftOpen(c)
	}
}
