package rules

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// counting is a cache of nodes that counts how often all of them are listed.
type counting struct {
	cached
	lists *int
}

func (c counting) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	*c.lists++
	return c.cached.List(ctx, list, options...)
}

// With twenty rules, all nodes are evaluated once. After that, a change of a node costs one decision about that node,
// and enqueues only the rule that the change affects. Neither a status update nor a scrape evaluates the nodes again.
func TestTwentyRulesLookAtAllNodesOnce(t *testing.T) {
	const nodes, changes = 200, 50
	var rules []*v1alpha1.NodeReadinessRule
	for i := range 20 {
		r := agentRule(i)
		r.Spec.DryRun = false
		rules = append(rules, r)
	}
	f, lists := serve(t, rules...), 0
	f.Nodes = counting{f.nodes, &lists}
	node := func(i int, status corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: "u", Labels: map[string]string{"role": "worker"}}}
		for r := range rules {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType("agent/" + rules[r].Name), Status: corev1.ConditionTrue})
		}
		n.Status.Conditions[7].Status = status
		if status != corev1.ConditionTrue {
			n.Spec.Taints = []corev1.Taint{rules[7].Spec.Taint}
		}
		return n
	}
	for i := range nodes {
		f.show(t, node(i, corev1.ConditionTrue))
	}
	if _, err := f.Tallies(t.Context()); err != nil || lists != 1 {
		t.Fatalf("%d lists at first (%v)", lists, err)
	}
	f.woken, f.ruled = nil, nil
	for i := range changes {
		f.show(t, node(i, corev1.ConditionFalse))
		for _, c := range f.all().rules {
			if _, err := f.tally(t.Context(), &c); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.View(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lists != 1 || len(f.woken) > 0 {
		t.Errorf("%d lists of all nodes, woken are %v", lists, f.woken)
	}
	for _, name := range f.ruled {
		if name != rules[7].Name {
			t.Errorf("rule %s is woken by what another one asks for", name)
		}
	}
	// The rule is enqueued when the old evaluation is dropped, and when the new one is counted.
	if len(f.ruled) > 3*changes {
		t.Errorf("%d enqueues of a rule by %d changes", len(f.ruled), changes)
	}
}
