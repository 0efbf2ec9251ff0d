package rules

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// The time for which a rule held a node counts from the addition of the taint by this process. If the node came with
// the taint, it counts from the node's creation. It is unknown for a node that is older than this process and was
// tainted before.
func TestHowLongARuleHeldANode(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	began := now.Add(-time.Minute)
	r := &rule.Rule{Name: "boot", UID: "u"}
	plan := func(tainted bool, operations ...rule.Operation) rule.Plan {
		p := rule.Plan{Evaluations: []rule.Evaluation{{Rule: r, Tainted: tainted}}}
		for _, o := range operations {
			p.Actions = append(p.Actions, rule.Action{Rule: r, Operation: o})
		}
		return p
	}
	release := plan(true, rule.Remove, rule.Complete)
	node := func(created time.Time) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
	}
	young, old := node(now.Add(-30*time.Second)), node(now.Add(-time.Hour))
	for name, c := range map[string]struct {
		node  *corev1.Node
		added bool
		last  rule.Plan
		want  hold
	}{
		"put on by us":             {old, true, release, hold{"boot", OriginController, now.Add(-10 * time.Second)}},
		"came with it":             {young, false, release, hold{"boot", OriginAdopted, now.Add(-30 * time.Second)}},
		"held before this process": {old, false, release, hold{}},
		"never held":               {young, false, plan(false, rule.Complete), hold{}},
		"held still":               {young, true, plan(true), hold{}},
	} {
		s := &nodeState{}
		if c.added {
			s.recordHolds(c.node, plan(false, rule.Add), began, now.Add(-10*time.Second))
		}
		got := append(s.recordHolds(c.node, c.last, began, now), hold{})[0]
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
