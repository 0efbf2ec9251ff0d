package node_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// Another writer loses the gating taint before the node has a record, as with a stale read-modify-write of spec.taints
// (kubernetes#128304). The node is open and unverified, and an event and the condition name the writer. Where admission
// promises the gate, it is put back once, unless a person removed it.
func TestGateRemovedByAnotherWriter(t *testing.T) {
	const policy = `{"admission": {"mode": "policy"}}`
	stale := writes("cloud-node-manager", `{"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)
	kubectl := writes("kubectl-taint", `{"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)
	softened := writes("cloud-node-manager", `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoExecute"}]}}`)
	emptied := writes("cloud-node-manager", `{"spec":{"taints":null}}`)
	for name, tc := range map[string]struct {
		settings string
		by       func(*world.World, *corev1.Node)
		waits    time.Duration // before the taint goes
		again    bool          // the writer removes it a second time
		restored bool
		key      string
	}{
		"at once":                 {by: stale, key: "cloud-node-manager"},
		"while its worker runs":   {by: stale, waits: 10 * time.Second, key: "cloud-node-manager"},
		"all taints":              {by: emptied, key: ""},
		"by a person":             {settings: policy, by: kubectl, key: "kubectl-taint"},
		"admission promises it":   {settings: policy, by: stale, restored: true, key: "cloud-node-manager"},
		"promised, worker runs":   {settings: policy, by: stale, waits: 10 * time.Second, restored: true, key: "cloud-node-manager"},
		"promised, by nobody":     {settings: `{"admission": {"mode": "auto"}}`, by: emptied, restored: true, key: ""},
		"promised, removed twice": {settings: policy, by: stale, again: true, key: "cloud-node-manager"},
		"another effect":          {by: softened, key: "cloud-node-manager"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.WithManagedFields(t, tc.settings)
			w.Exit = func(*corev1.Pod) int { return world.Stays }
			n := w.Node("n")
			l := w.Lead()
			l.Deliver()
			l.RunFor(tc.waits)
			tc.by(w, n)
			l.RunFor(2 * time.Second)
			if tc.again {
				tc.by(w, n)
			}
			l.RunFor(20 * time.Second)
			_, f := w.Get(n.Name)
			if f.Gated != tc.restored || f.Labelled || len(l.Errs) > 0 {
				t.Errorf("gated %t, want %t; labelled %t; errors %v", f.Gated, tc.restored, f.Labelled, l.Errs)
			}
			if got := slices.Collect(maps.Keys(w.Events[n.Name+" "+decide.EventGateRemoved.Name])); !slices.Equal(got, []string{"taints/" + tc.key}) {
				t.Errorf("events %q, want %q", got, tc.key)
			}
			if len(l.Reads) > 8 {
				t.Errorf("%d reads of the node", len(l.Reads))
			}
			c := f.Condition
			if !tc.restored && !tc.again {
				if f.HasRecord || len(w.Pods(n.Name)) > 0 || c == nil || c.Status != corev1.ConditionUnknown ||
					c.Reason != marks.ReasonGateRemoved || !strings.Contains(c.Message, tc.key) {
					t.Errorf("condition %+v, record %t, %d pods", c, f.HasRecord, len(w.Pods(n.Name)))
				}
				taints(w, n, true) // somebody cures it
			}
			w.Exit = func(*corev1.Pod) int { return 0 }
			for _, p := range w.Pods(n.Name) {
				w.Terminate(&p, 0)
			}
			l.Drive()
			if have, f := w.Get(n.Name); f.Gated || !f.Labelled || f.Condition == nil || f.Condition.Reason != marks.ReasonChecksPassed {
				t.Errorf("in the end: taints %v, labelled %t, condition %+v", have.Spec.Taints, f.Labelled, f.Condition)
			}
		})
	}
}

// The gate goes while no controller runs. Its successor knows from the condition that the node waited behind a gate. A
// node that never had a gate says nothing.
func TestGateRemovedWithoutALeader(t *testing.T) {
	t.Parallel()
	w := world.WithManagedFields(t, `{"admission": {"mode": "policy"}}`)
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n, never := w.Node("n"), w.Node("never", world.Untainted)
	w.Lead().RunFor(10 * time.Second)
	writes("cloud-node-manager", `{"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)(w, n)
	l := w.Lead()
	l.RunFor(10 * time.Second)
	if _, f := w.Get(n.Name); f.Gated || f.Condition == nil || f.Condition.Reason != marks.ReasonGateRemoved ||
		w.EventCount(n.Name, decide.EventGateRemoved) != 1 {
		t.Errorf("gated %t, condition %+v", f.Gated, f.Condition)
	}
	if _, f := w.Get(never.Name); f.Condition != nil || w.EventCount(never.Name, decide.EventGateRemoved) != 0 {
		t.Errorf("condition %+v of a node that never had a gate", f.Condition)
	}
	later := w.Lead() // the event stays one
	later.RunFor(10 * time.Second)
	if w.EventCount(n.Name, decide.EventGateRemoved) != 1 || later.WriteCount() > 0 {
		t.Errorf("a successor writes %v", later.Writes)
	}
	w.Annotate(n.Name, marks.AnnotationSkip, "true")
	later.RunFor(10 * time.Second)
	if _, f := w.Get(n.Name); f.Condition != nil {
		t.Errorf("an opted-out node has condition %+v", f.Condition)
	}
}
