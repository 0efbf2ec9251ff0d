package rules

import (
	"fmt"
	"slices"
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

// Every heartbeat of every node comes to the rules. It is no change, whatever the order of the conditions, and costs no
// allocation.
func TestHeartbeatsAreNoChange(t *testing.T) {
	at := time.Unix(1000, 0)
	r := &Rules{Now: func() time.Time { return at }, set: &set{rules: []rule.Rule{{UID: "u"}}}}
	conditions := func(statuses ...corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
		// As many as with a node-problem-detector. A map of eight costs no allocation.
		for i, s := range append(slices.Repeat([]corev1.ConditionStatus{"False"}, 12), statuses...) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprint(i)), Status: s, LastHeartbeatTime: metav1.NewTime(at)})
		}
		return n
	}
	before := conditions("True", "False")
	r.ObserveNode(nil, before)
	began := at
	at = at.Add(time.Minute)
	turned := conditions("True", "False")
	slices.Reverse(turned.Status.Conditions)
	for _, now := range []*corev1.Node{conditions("True", "False"), turned} {
		if cost := testing.AllocsPerRun(10, func() { r.ObserveNode(before, now) }); cost > 0 || !r.nodes["n"].changed.Equal(began) {
			t.Errorf("%v: %.0f allocations, changed at %s", now.Status.Conditions, cost, r.nodes["n"].changed)
		}
	}
	for _, now := range []*corev1.Node{conditions("True", "True"), conditions("True"), conditions("True", "False", "Unknown")} {
		r.nodes["n"].changed = began
		if r.ObserveNode(before, now); !r.nodes["n"].changed.Equal(at) || !r.lastChange.Equal(at) {
			t.Errorf("%v counts as no change", now.Status.Conditions)
		}
	}
}
