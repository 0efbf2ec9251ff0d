package node_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// writes has a field manager patch a node.
func writes(manager, patch string) func(*world.World, *corev1.Node) {
	return func(w *world.World, n *corev1.Node) {
		w.Helper()
		w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(manager)))
	}
}

// Another writer takes each release back a second later, for ten minutes. An event names who does it, from the third
// time on, and verification slows down. A taint with another effect is not the gating taint, and stays.
func TestMarksTakenBackAreNotFought(t *testing.T) {
	const returns = `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoSchedule"}]}}`
	for name, tc := range map[string]struct {
		settings    string
		by          func(*world.World, *corev1.Node)
		least, most int
		event       string // its key
	}{
		"the taint returns":      {by: writes("node-group", returns), least: 10, most: 14, event: "taint/node-group"},
		"the label is changed":   {by: writes("git", `{"metadata":{"labels":{"node-ready/verified":"false"}}}`), least: 10, most: 14, event: "label/git"},
		"the label is removed":   {by: writes("git", `{"metadata":{"labels":{"node-ready/verified":null}}}`), least: 10, most: 14, event: "label/"},
		"another effect":         {by: writes("node-group", `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoExecute"}]}}`), least: 1, most: 1},
		"nothing is checked":     {settings: `{"worker": {"checks": []}, "nodeManagement": {"prerequisites": {"nodeReady": true}}}`, by: writes("node-group", returns), event: "taint/node-group"},
		"reverify.taint is used": {settings: `{"nodeManagement": {"reverify": {"taint": true}}}`, by: writes("git", `{"metadata":{"labels":{"node-ready/verified":null}}}`), least: 10, most: 14, event: "label/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.WithManagedFields(t, tc.settings)
			n, l := w.Node("n"), w.Lead()
			for end := w.Clock.Now().Add(10 * time.Minute); w.Clock.Now().Before(end); {
				if changed, wait := l.Step(); !changed {
					w.Clock.Advance(min(wait, time.Second))
				}
				if _, f := w.Get(n.Name); !f.Gated && f.Labelled {
					w.Clock.Advance(time.Second)
					tc.by(w, n)
				}
			}
			workers, passes := w.Created("verify"), w.EventCount(n.Name, decide.EventPassed)
			if workers < tc.least || workers > tc.most || passes > max(14, tc.most) || l.WriteCount() > 8*14 {
				t.Errorf("%d workers, %d events of a pass and %d writes, want %d to %d workers", workers, passes, l.WriteCount(), tc.least, tc.most)
			}
			var keys []string
			if tc.event != "" {
				keys = []string{tc.event}
			}
			if got := slices.Collect(maps.Keys(w.Events[n.Name+" "+decide.EventMarksTakenBack.Name])); !slices.Equal(got, keys) {
				t.Errorf("events %q, want %q", got, keys)
			}
			if have, _ := w.Get(n.Name); tc.event == "" && len(have.Spec.Taints) != 1 {
				t.Errorf("taints %v, want the one that is not ours", have.Spec.Taints)
			}
			if len(l.Errs) > 0 {
				t.Error(l.Errs)
			}
		})
	}
}

// A person removes the label twice in an hour, each time right after a pass. The node is verified at once.
func TestLabelRemovedByAPerson(t *testing.T) {
	t.Parallel()
	w := world.WithManagedFields(t, `{"reconciliation": {"initialBackoffSeconds": 30, "maxBackoffSeconds": 30}}`)
	n, l := w.Node("n"), w.Lead()
	labelled := func() bool { _, f := w.Get(n.Name); return f.Labelled }
	l.Until(time.Minute, labelled)
	for i := range 2 {
		w.Clock.Advance(10 * time.Second)
		writes("kubectl-label", `{"metadata":{"labels":{"node-ready/verified":null}}}`)(w, n)
		took, ok := l.Until(time.Minute, labelled)
		if r := w.Record(n.Name); !ok || took > 5*time.Second || len(r.TakenBack.Passes) != i+1 {
			t.Fatalf("removal %d: verified %t after %s, %+v", i+1, ok, took, r.TakenBack)
		}
	}
	if w.EventCount(n.Name, decide.EventMarksTakenBack) > 0 {
		t.Error("an event MarksTakenBack about a person")
	}
}
