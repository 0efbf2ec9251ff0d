package conditions_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/conditions"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/nodeready"
)

// current is a cluster in which all that is reported counts.
type current struct{ kind.Cluster }

func (current) Stale(*corev1.Node, kind.Object) string { return "" }

// earlier is a node whose agents have not reported in this boot.
type earlier struct{ current }

func (earlier) Stale(*corev1.Node, kind.Object) string { return "is old" }

// A condition of that type and status is waited for, and nothing else on the node counts. Ready is one of them.
func TestConditions(t *testing.T) {
	storage := conditions.Settings{{Type: "Storage", Status: corev1.ConditionTrue}}.Prerequisites()
	ready := nodeready.Settings(true).Prerequisites()
	has := func(of corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: of, Status: status}
	}
	const noStorage, notReady = "the node's condition Storage to be True", "the node's condition Ready to be True"
	for name, test := range map[string]struct {
		wanted []kind.Prerequisite
		have   []corev1.NodeCondition
		why    string
	}{
		"absent":         {storage, nil, noStorage},
		"another status": {storage, []corev1.NodeCondition{has("Storage", corev1.ConditionFalse)}, noStorage},
		"another type":   {storage, []corev1.NodeCondition{has("Network", corev1.ConditionTrue)}, noStorage},
		"met":            {storage, []corev1.NodeCondition{has("Network", corev1.ConditionFalse), has("Storage", corev1.ConditionTrue)}, ""},
		"not Ready":      {ready, []corev1.NodeCondition{has("Ready", corev1.ConditionUnknown), has("Storage", corev1.ConditionTrue)}, notReady},
		"Ready":          {ready, []corev1.NodeCondition{has("Ready", corev1.ConditionTrue)}, ""},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: test.have}}
		if len(test.wanted) != 1 {
			t.Fatalf("%s: %d prerequisites", name, len(test.wanted))
		}
		if got := test.wanted[0].Unmet(n, current{}).Why; got != test.why {
			t.Errorf("%s: waits for %q, want %q", name, got, test.why)
		}
	}
	both := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{has("Storage", "True"), has("Ready", "True")}}}
	if why := storage[0].Unmet(both, earlier{}).Why; why != noStorage+" (it is old)" {
		t.Errorf("an old report counts: waits for %q", why)
	}
	if why := ready[0].Unmet(both, earlier{}).Why; why != "" { // it comes with the boot ID
		t.Errorf("Ready is taken for one of an earlier boot: waits for %q", why)
	}
	if len(nodeready.Settings(false).Prerequisites()) > 0 {
		t.Error("Ready is waited for although it is off")
	}
}
