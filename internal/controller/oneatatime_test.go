package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A node is taken if it is new, replaces another one under its name, or has other marks. A change of its status alone
// is ignored.
func TestChangedNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*corev1.Node)
		concerned bool
		want      bool
	}{
		"nothing":           {func(*corev1.Node) {}, true, false},
		"its status":        {func(n *corev1.Node) { n.Status.Conditions = nil }, true, false},
		"its taints":        {func(n *corev1.Node) { n.Spec.Taints = nil }, true, true},
		"its labels":        {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true, true},
		"its annotations":   {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, true, true},
		"another, the same": {func(n *corev1.Node) { n.UID = "another" }, true, true},
		"none of ours":      {func(n *corev1.Node) { n.UID, n.Spec.Taints = "another", nil }, false, false},
	} {
		old, now := node("n"), node("n")
		old.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		now.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		tc.change(now)
		p := changed(func(n *corev1.Node) bool { return tc.concerned && n == now })
		if got := p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != tc.want {
			t.Errorf("%s: taken %t", name, got)
		}
		if got := p.Create(event.CreateEvent{Object: now}); got != tc.concerned {
			t.Errorf("%s, new: taken %t", name, got)
		}
		if p.Delete(event.DeleteEvent{Object: now}) {
			t.Errorf("%s: taken once it is gone", name)
		}
	}
}
