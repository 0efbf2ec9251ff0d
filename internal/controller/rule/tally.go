package rule

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Tallies are how all nodes stand with each rule, by the rule's UID; empty where rules are not served.
func (r *Rules) Tallies(ctx context.Context) (map[string]*decide.RuleTally, error) {
	s := r.served()
	if s == nil {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := r.Nodes.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	tallies := map[string]*decide.RuleTally{}
	for i := range s.rules {
		tallies[s.rules[i].UID] = &decide.RuleTally{}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		observed := decide.RuleNode{Node: n, Renewed: r.renewals(n)}
		for _, e := range decide.NextRules(observed, s.rules, r.Config.StaleAfter.Duration, r.Now()).Evaluations {
			tallies[e.Rule.UID].Count(n.Name, e)
		}
	}
	return tallies, nil
}

func (r *Rules) renewals(n *corev1.Node) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sight(n).renewals()
}
