package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taint puts a rule's taint on a node, as an autoscaler or a person does.
func (w *world) taint(node, rule string) {
	w.Helper()
	w.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		fmt.Sprintf(`{"spec":{"taints":[{"key":"readiness.k8s.io/%s","effect":"NoSchedule"}]}}`, rule))
}

// The node-readiness-controller leaves the taint of a completed bootstrap-only rule on nodes (its issue 382). The first
// controller of ours that serves the rule releases those whose conditions hold, and counts no second completion.
func TestStrandedByNRC(t *testing.T) {
	w := in(t)
	r := w.rule("stranded", bootstrapOnly)
	byUID, byName := "readiness.k8s.io/bootstrap-completed-"+string(r.UID), "readiness.k8s.io/bootstrap-completed-stranded"
	completed := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{key: value} }
	}
	left := createdWith("readiness.k8s.io/stranded")
	w.node("stranded-uid", isReady, left, completed(byUID, `{"rule-name":"stranded"}`))
	w.node("stranded-name", isReady, left, completed(byName, "true"))
	w.node("stranded-failed", left, completed(byUID, `{"rule-name":"stranded"}`))
	w.controller()
	w.tainted("stranded-uid", "stranded", false)
	w.tainted("stranded-name", "stranded", false)
	w.said("stranded-uid", "Taint 'readiness.k8s.io/stranded:NoSchedule' removed by rule 'stranded'")
	w.eventually("the other one is held", func() string {
		if s := w.read("stranded").Status; !slices.Equal(s.AppliedNodes, []string{"stranded-failed"}) {
			return fmt.Sprint(s)
		}
		return ""
	})
	w.condition("stranded-failed", "True")
	w.tainted("stranded-failed", "stranded", false)
	w.eventually("three taints are removed", func() string {
		return w.scraped(`node_readiness_taint_operations_total{operation="remove",rule="stranded"} 3`)
	})
	const completions = "node_readiness_bootstrap_completed_total"
	if have := w.scraped(completions + `{rule="stranded"} 1`); !strings.HasSuffix(have, "in []") {
		t.Errorf("a completion is counted: %s", have)
	}
}

// Somebody puts the taint of a completed bootstrap-only rule back while the conditions do not hold. The taint is
// removed if this process saw the node pass: it released the node, or found it released with its conditions as
// required. An annotation that the node wrote itself removes nothing.
func TestATaintThatIsPutBack(t *testing.T) {
	w := in(t)
	r := w.rule("back", bootstrapOnly)
	w.node("back-forged", createdWith("readiness.k8s.io/back"), func(n *corev1.Node) {
		n.Annotations = map[string]string{"readiness.k8s.io/bootstrap-completed-" + string(r.UID): `{"rule-name":"back"}`}
	})
	w.node("back-1")
	w.node("back-2")
	w.controller()
	for _, name := range []string{"back-1", "back-2"} {
		w.tainted(name, "back", true)
		w.condition(name, "True")
		w.tainted(name, "back", false)
	}
	putBack := func(name string) {
		w.Helper()
		w.taint(name, "back")
		w.tainted(name, "back", false)
	}
	w.condition("back-1", "False")
	putBack("back-1")
	counted := func(line string) {
		w.Helper()
		w.eventually("no second release is counted", func() string { return w.scraped(line) })
	}
	counted(`node_readiness_bootstrap_completed_total{rule="back"} 2`)
	counted(`node_readiness_taint_operations_total{operation="remove",rule="back"} 3`)
	putBack("back-2") // its conditions hold
	counted(`node_readiness_taint_operations_total{operation="remove",rule="back"} 4`)
	counted(`kube_node_ready_rule_release_seconds_count{rule="back"} 2`)

	w.stop()
	w.controller()
	w.eventually("the successor has seen the node released", func() string {
		return w.scraped(`node_readiness_rule_nodes{rule="back",state="released"} 2`)
	})
	w.condition("back-2", "False")
	putBack("back-2")
	w.taint("back-1", "back") // released by the predecessor, and its conditions have not held since
	time.Sleep(3 * time.Second)
	for _, name := range []string{"back-1", "back-forged"} {
		if !carries(w.get(name), "readiness.k8s.io/back") {
			t.Errorf("%s is released although its conditions do not hold", name)
		}
		w.condition(name, "True")
		w.tainted(name, "back", false)
	}
}
