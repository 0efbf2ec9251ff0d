package rules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// removesRule removes the rule, as a deletion does that read it before it had the finalizer.
func removesRule(w *world.World) {
	w.Helper()
	o := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: w.RuleNames[0]}}
	w.Must(w.API.Patch(w.Ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))))
	w.Must(client.IgnoreNotFound(w.API.Delete(w.Ctx, o)))
	if err := w.API.Get(w.Ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		w.Fatalf("the rule is still there: %v", err)
	}
}

// A rule is deleted right after it got its finalizer, and no watch has shown that yet. Its taint is not put on a node,
// or is removed again in the same reconcile.
func TestDeletedAMomentAfterItWasCreated(t *testing.T) {
	t.Parallel()
	replaced := func(w *world.World) {
		removesRule(w)
		names := w.RuleNames
		w.Rule(world.InPool)
		w.RuleNames = names
	}
	for name, tc := range map[string]struct {
		before, after func(w *world.World) // the first write of the taint
		added         bool
	}{
		"it is kept":                    {added: true},
		"before the taint":              {before: removesRule},
		"another has its name":          {before: replaced},
		"it is being deleted":           {before: func(w *world.World) { deletesRule(w, "") }},
		"while the taint is written":    {after: removesRule},
		"another has its name, written": {after: replaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			w.Rule(world.BootstrapOnly)
			n, other := w.Node("n", world.Untainted), w.Node("other", world.Untainted)
			l := w.Lead()
			l.Step() // the rule gets its finalizer
			l.Deliver()
			if tc.before != nil {
				tc.before(w)
			}
			if tc.after != nil {
				l.Once("patch Node", func() { tc.after(w) })
			}
			before := len(l.Writes)
			l.ReconcileAll()
			for _, node := range []*corev1.Node{n, other} {
				if now, _ := w.Get(node.Name); (len(world.RuleTaints(now)) > 0) != tc.added {
					t.Errorf("%s has the taints %v; writes %v", node.Name, world.RuleTaints(now), l.Writes[before:])
				}
			}
			if tc.before != nil && tc.after == nil && len(l.Writes) > before {
				for _, write := range l.Writes[before:] {
					if write == "patch Node" {
						t.Errorf("it writes %v", l.Writes[before:])
					}
				}
			}
			l.Drive()
			for _, node := range []*corev1.Node{n, other} {
				if now, _ := w.Get(node.Name); (len(world.RuleTaints(now)) > 0) != tc.added {
					t.Errorf("then %s has the taints %v", node.Name, world.RuleTaints(now))
				}
			}
			if len(l.Errs) > 0 {
				t.Error(l.Errs)
			}
		})
	}
}
