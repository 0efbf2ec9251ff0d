package rules_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The running controller holds the nodes of a rule. It releases them once their condition is as required, and when the
// rule is deleted.
func TestRulesByTheController(t *testing.T) {
	w := world.OnServer(t, "")
	w.Run(`{"rules": {"enabled": true}}`)
	w.Rule()
	n, other := w.Node("n", world.Untainted), w.Node("other", world.Untainted)
	holds := func(node string, want int) {
		t.Helper()
		w.Eventually(fmt.Sprintf("%s carries %d taints of rules", node, want), func() string {
			now, _ := w.Get(node)
			if keys := world.RuleTaints(now); len(keys) != want {
				return fmt.Sprint(keys)
			}
			return ""
		})
	}
	holds(n.Name, 1)
	holds(other.Name, 1)
	world.AgentReports("True", "boot")(w, n.Name)
	holds(n.Name, 0)
	w.Eventually("the status counts nodes", func() string {
		r := &v1alpha1.NodeReadinessRule{}
		w.Must(w.API.Get(w.Ctx, client.ObjectKey{Name: w.RuleNames[0]}, r))
		if len(r.Status.AppliedNodes) != 1 || r.Status.ObservedGeneration != r.Generation {
			return fmt.Sprintf("%+v", r.Status)
		}
		return ""
	})
	deletesRule(w, "")
	holds(other.Name, 0)
	w.Eventually("the rule is gone", func() string {
		err := w.API.Get(w.Ctx, client.ObjectKey{Name: w.RuleNames[0]}, &v1alpha1.NodeReadinessRule{})
		if err == nil {
			return "it is there"
		}
		return ""
	})
}
