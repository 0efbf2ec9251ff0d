package remediation_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	backends "github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// machines is a third back-end: a ConfigMap with the label owns the node that the label names.
type machines struct {
	client.Client
	namespace string
	acted     *int
}

const machineOf = "example.com/node"

func (machines) Kind() string { return "Machine" }

func (m machines) Find(ctx context.Context, n *corev1.Node, _ backends.Read) owner.Owner {
	var found corev1.ConfigMapList
	if err := m.List(ctx, &found, client.InNamespace(m.namespace), client.MatchingLabels{machineOf: n.Name}); err != nil {
		return owner.Owner{Problem: "Machines could not be listed"}
	}
	switch len(found.Items) {
	case 0:
		return owner.Owner{}
	case 1:
		c := &found.Items[0]
		o := owner.Owner{Target: owner.Target{Kind: "Machine", Name: c.Name, UID: string(c.UID)}, Terminating: c.DeletionTimestamp != nil}
		if c.Annotations["example.com/keep"] == "true" {
			o.OptedOut = "example.com/keep"
		}
		return o
	}
	return owner.Owner{Problem: "more than one Machine owns the node"}
}

func (m machines) Act(ctx context.Context, t owner.Target) error {
	*m.acted++
	return m.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: t.Name}},
		client.Preconditions{UID: ptr.To(types.UID(t.UID))})
}

// The deletion of an owner whose kind only its back-end knows works like that of a NodeClaim: it is guarded, recorded
// and carried out once.
func TestAnotherBackend(t *testing.T) {
	for name, tc := range map[string]struct {
		machines int
		keep     string
		held     string
	}{
		"its owner goes":         {machines: 1},
		"its owner opts out":     {machines: 1, keep: "true", held: decide.GuardDoNotDelete},
		"its owner is ambiguous": {machines: 2, held: owner.Guard},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {`+world.Deletes+`, "remediation": {"controlProbe": false}}}`)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n := w.Node("n")
			for i := range tc.machines {
				w.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: []string{"m", "m2"}[i], Finalizers: []string{"example.com/drain"},
					Labels: map[string]string{machineOf: n.Name}, Annotations: map[string]string{"example.com/keep": tc.keep}}})
			}
			t.Cleanup(func() {
				_ = w.API.DeleteAllOf(context.WithoutCancel(w.Ctx), &corev1.ConfigMap{}, client.InNamespace(w.Namespace), client.HasLabels{machineOf})
				for i := range tc.machines {
					m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: []string{"m", "m2"}[i]}}
					_ = w.API.Patch(context.WithoutCancel(w.Ctx), m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				}
			})
			acted := 0
			l := w.Lead()
			l.Remediations.Owners = slices.Concat(backends.Backends{machines{w.API, w.Namespace, &acted}}, l.Remediations.Owners)
			l.Drive()

			_, f := w.Get(n.Name)
			m := &corev1.ConfigMap{}
			w.Must(w.API.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "m"}, m))
			if tc.held != "" {
				if f.Record.Held != tc.held || acted != 0 || m.DeletionTimestamp != nil {
					t.Errorf("held by %q after %d actions on %+v", f.Record.Held, acted, m.ObjectMeta)
				}
				return
			}
			d := f.Record.Deletion
			if d == nil || d.Kind != "Machine" || d.Name != "m" || d.UID != string(m.UID) || acted != 1 || m.DeletionTimestamp == nil {
				t.Errorf("intent %+v, %d actions on %+v", d, acted, m.ObjectMeta)
			}
			if e := w.EventCount(n.Name, decide.EventDeleted("Machine")); e != 1 {
				t.Errorf("%d events MachineDeleted", e)
			}
			if entries := w.Ledger(); len(entries) != 1 {
				t.Errorf("ledger %v", entries)
			}
		})
	}
}
