package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// taintsBack is a controller that puts the gating taint back, as one does that sets the taints of a node group.
func taintsBack(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule})
	writtenBy(n, "node-group", `{"f:spec":{"f:taints":{}}}`)
}

// taintsWithAnotherEffect puts a taint with the same key on the node, which gates nothing.
func taintsWithAnotherEffect(n *corev1.Node) {
	n.Spec.Taints = n.Spec.Taints[:1]
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoExecute})
	writtenBy(n, "node-group", `{"f:spec":{"f:taints":{}}}`)
}

func setsLabel(n *corev1.Node) {
	n.Labels["node-ready/verified"] = "false"
	writtenBy(n, "git", `{"f:metadata":{"f:labels":{"f:node-ready/verified":{}}}}`)
}

func removesLabel(n *corev1.Node) {
	delete(n.Labels, "node-ready/verified")
	writtenBy(n, "git", `{"f:metadata":{"f:labels":{"f:other":{}}}}`)
}

func writtenBy(n *corev1.Node, manager, fields string) {
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kube-node-ready-controller", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{}}}`)},
		{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}}
}

// Another writer takes each release back a second later, for ten minutes. Verification slows down, and a Warning event
// names who does it. A taint with another effect is not ours, and changes nothing.
func TestAnotherWriterTakesMarksBack(t *testing.T) {
	for name, tc := range map[string]struct {
		settings string
		by       func(*corev1.Node)
		// most is how many attempts there may be, least how many are needed before anything waits.
		most, least int32
		event       string
	}{
		"the taint returns":      {by: taintsBack, most: 14, least: 10, event: "node-group"},
		"with linear retries":    {settings: "reconciliation: {retryBackoff: linear}", by: taintsBack, most: 14, least: 10, event: "node-group"},
		"with long retries":      {settings: "reconciliation: {initialBackoffSeconds: 900, maxBackoffSeconds: 900}", by: taintsBack, most: 5, least: 4, event: "node-group"},
		"the label is changed":   {by: setsLabel, most: 14, least: 10, event: "git"},
		"the label is removed":   {by: removesLabel, most: 14, least: 10, event: "audit log"},
		"another effect":         {by: taintsWithAnotherEffect, most: 1, least: 1},
		"reverify.taint as well": {settings: "nodeManagement: {reverify: {taint: true}}", by: removesLabel, most: 14, least: 10, event: "audit log"},
		"deletion is on": {settings: "nodeManagement: {deleteFailedNodes: true}\nreconciliation: {verificationDeadlineSeconds: 30}", by: taintsBack,
			most: 14, least: 10, event: "node-group"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t.Fatalf, map[string]int{}, tc.settings)
			began, version, others := m.now, m.version, 0
			taken := time.Time{} // when the other writer acts next
			for m.now.Sub(began) < 10*time.Minute {
				for m.reconcile(joining) || m.kubelets(0) {
				}
				n := m.nodes[joining]
				open := !marks.Observe(n, m.cfg.Vocabulary()).Gated && n.Labels["node-ready/verified"] == "true"
				switch {
				case !open:
					taken = time.Time{}
				case taken.IsZero():
					taken = m.now.Add(time.Second)
				case !m.now.Before(taken):
					tc.by(n)
					m.touch(n)
					taken = time.Time{}
					others++
					continue
				}
				m.now = m.now.Add(time.Second)
			}
			if m.gone > 0 {
				t.Error("the node was deleted")
			}
			attempts, writes := sequence(m.nodes[joining]), m.version-version-others
			if attempts > tc.most || attempts < tc.least || writes > 8*int(tc.most) {
				t.Errorf("%d attempts and %d writes in ten minutes, want %d to %d attempts", attempts, writes, tc.least, tc.most)
			}
			var texts []string
			keys := map[string]bool{}
			for _, e := range m.recorded {
				if e.Reason.Name == "MarksTakenBack" && !keys[e.Key] {
					keys[e.Key] = true
					texts = append(texts, e.Message)
				}
			}
			if tc.event == "" && len(texts) > 0 || tc.event != "" && (len(texts) != 1 || !strings.Contains(texts[0], tc.event)) {
				t.Errorf("events %q, want one that names %q", texts, tc.event)
			}
			c := marks.Observe(m.nodes[joining], m.cfg.Vocabulary()).Condition
			if waits := tc.event != ""; waits && (c.Status != corev1.ConditionUnknown || !strings.Contains(c.Message, "next verification")) {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

// One or two removals of the label in an hour, by a person who wants a verification, have it at once.
func TestPersonVerifiesAgain(t *testing.T) {
	m := newModel(t.Fatalf, map[string]int{}, "")
	passed := func() { // at once
		for m.reconcile(joining) || m.kubelets(0) {
		}
		m.now = m.now.Add(10 * time.Second) // the condition
		for m.reconcile(joining) || m.kubelets(0) {
		}
		if in := m.gather(m.nodes[joining]); decide.NeedsVerification(in, m.now) {
			t.Fatalf("attempt %d is not made at once: %s", in.Node.Record.Sequence+1, m.describe())
		}
	}
	passed()
	for i := range 10 { // two in any hour
		removesLabel(m.nodes[joining])
		m.touch(m.nodes[joining])
		passed()
		m.now = m.now.Add(31 * time.Minute)
		if i%2 == 0 { // and one more, of an older pass
			removesLabel(m.nodes[joining])
			m.touch(m.nodes[joining])
			passed()
		}
	}
	if slices.ContainsFunc(m.recorded, func(e decide.Event) bool { return e.Reason.Name == "MarksTakenBack" }) {
		t.Error(fmt.Sprint(m.recorded))
	}
}
