package rule

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// FuzzRule checks any rule that somebody's definition of the resource admits against any node. The rule is either
// refused with a reason or obeyed, and the result settles: after one round, nothing is left to do.
func FuzzRule(f *testing.F) {
	node, err := json.Marshal(aWorker(carries(agentTaint), carries("foreign"), ownedBy("a", agentTaint), reports("agent/Ready", "True")))
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range []*v1alpha1.NodeReadinessRule{aRule("a"), aRule("a", bootstrapOnly), aRule("a", anyOf, isDeleted), aRule("a", inDryRun, unfinalized),
		aRule("a", asks(v1alpha1.ConditionRequirement{Type: "x", DefaultStatus: "True", RequiredStatus: "False"}))} {
		rule, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(rule, node)
		f.Add(rule, []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, rule, node []byte) {
		var r v1alpha1.NodeReadinessRule
		var n corev1.Node
		if json.Unmarshal(rule, &r) != nil || json.Unmarshal(node, &n) != nil {
			return
		}
		rules := compiled(&r)
		if rules[0].Invalid != "" && rules[0].Selects(n.Labels) {
			t.Errorf("it is refused (%s) and selects", rules[0].Invalid)
		}
		Overruled(compiled(&r, aRule("older")))
		seen := Node{Node: &n, Gating: ruleGating, Adopting: map[string]time.Time{rules[0].UID: ruleTime.Add(-time.Hour)}}
		plan := Next(seen, rules, time.Minute, ruleTime)
		for _, a := range plan.Actions {
			if a.Rule.UID == rules[0].UID && rules[0].DryRun && !rules[0].Deleting {
				t.Errorf("a dry run changes %+v", plan.Change)
			}
		}
		for _, add := range plan.Change.Add {
			if add.ID() == (marks.TaintID{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}) {
				t.Error("it puts on a taint that gates")
			}
		}
		if len(plan.Change.Remove) > 0 && n.DeletionTimestamp != nil {
			t.Error("it writes to a node that is going")
		}
		seen.Node = applied(t, &n, plan.Change)
		if again := Next(seen, rules, time.Minute, ruleTime); !again.Change.Empty() {
			t.Errorf("it does not settle: %s, then %s\n%+v", said(plan), said(again), seen.Node)
		}
	})
}
