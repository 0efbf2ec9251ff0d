package effects

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

const backfills = `{"admission": {"backfill": true}}`

// backfill lets the backfill reconciler look at one node.
func (l *leader) backfill(n *corev1.Node) error {
	_, err := l.backfills.Reconcile(l.w.ctx, request(n.Name))
	return err
}

// effects are the effects of a node's taints of a key.
func (w *world) effects(n *corev1.Node, key string) (effects []corev1.TaintEffect) {
	w.Helper()
	got, _ := w.get(n.Name)
	for _, t := range got.Spec.Taints {
		if t.Key == key {
			effects = append(effects, t.Effect)
		}
	}
	return effects
}

// A node that admission missed is tainted by one write, and then verified as any other.
func TestBackfill(t *testing.T) {
	w := begin(t, backfills)
	n := w.node("n", untainted)
	l := w.leads()
	w.must(l.backfill(n))
	if _, f := w.get(n.Name); !f.Gated || f.HasRecord || f.Labelled {
		t.Errorf("%+v", f)
	}
	w.must(l.backfill(n))
	if !slices.Equal(l.writes, []string{"patch Node"}) || w.emitted(n.Name, decide.EventBackfilled) != 1 {
		t.Errorf("writes %v, %d events", l.writes, w.emitted(n.Name, decide.EventBackfilled))
	}
	l.drive()
	if _, f := w.get(n.Name); f.Gated || !f.Labelled || f.Record.Sequence != 1 {
		t.Errorf("%+v", f)
	}
	w.must(l.backfill(n))
	if _, f := w.get(n.Name); f.Gated {
		t.Error("a verified node is tainted")
	}
}

// What came between a look at the node and the write decides.
func TestBackfillDecidesOnWhatIsThere(t *testing.T) {
	verify := `{"metadata":{"labels":{"node-ready/verified":"true"}}}`
	for name, tc := range map[string]struct {
		cached func(*world, *corev1.Node) // after the cache has seen the node
		before func(*world, *corev1.Node) // before the write
		gated  bool
	}{
		"nothing":                    {nil, nil, true},
		"a pod, after the cache":     {func(w *world, n *corev1.Node) { w.ordinaryPod(n) }, nil, false},
		"verified, after the cache":  {func(w *world, n *corev1.Node) { w.patch(n, verify) }, nil, false},
		"opted out, after the cache": {func(w *world, n *corev1.Node) { w.annotate(n.Name, "node-ready/skip", "true") }, nil, false},
		"control plane, after the cache": {func(w *world, n *corev1.Node) {
			w.patch(n, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
		}, nil, false},
		"verified, before the write": {nil, func(w *world, n *corev1.Node) { w.patch(n, verify) }, false},
		"a taint, before the write": {nil, func(w *world, n *corev1.Node) {
			w.patch(n, `{"spec":{"taints":[{"key":"a/b","effect":"NoSchedule"}]}}`)
		}, true},
		"a pod and a change, before the write": {nil, func(w *world, n *corev1.Node) {
			w.ordinaryPod(n)
			w.annotate(n.Name, "a", "b")
		}, false},
		"another node of its name": {nil, func(w *world, n *corev1.Node) {
			w.recreated(n)
			w.patch(n, verify)
		}, true}, // which registered with its taint
		"another one that admission missed too": {nil, func(w *world, n *corev1.Node) {
			w.must(api.Delete(w.ctx, n.DeepCopy()))
			w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{worldLabel: w.ns}}})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, backfills)
			n := w.node("n", untainted)
			l := w.leads()
			if tc.cached != nil {
				l.stale[n.Name], _ = w.get(n.Name)
				tc.cached(w, n)
			}
			if tc.before != nil {
				l.once("patch Node", func() { tc.before(w, n) })
			}
			w.must(l.backfill(n))
			if got := w.effects(n, gating.Key); (len(got) == 1) != tc.gated {
				t.Errorf("%v", got)
			}
			if tc.cached != nil && len(l.writes) > 0 {
				t.Errorf("writes %v", l.writes)
			}
			if name == "a taint, before the write" && len(w.effects(n, "a/b")) != 1 {
				t.Error("another's taint is gone")
			}
		})
	}
}

// A pod that is bound after the node's pods were listed is not evicted: the taint went on with effect NoSchedule.
func TestBackfillEvictsNobody(t *testing.T) {
	w := begin(t, `{"admission": {"backfill": true}, "nodeManagement": {"taints": [{"key": "a/b", "effect": "NoExecute"}]}}`)
	n := w.node("n", untainted)
	l := w.leads()
	l.once("patch Node", func() { w.ordinaryPod(n) })
	w.must(l.backfill(n))
	if got := w.effects(n, "a/b"); !slices.Equal(got, []corev1.TaintEffect{corev1.TaintEffectNoSchedule}) {
		t.Errorf("%v", got)
	}
}

// Two leaders taint a node once, and so does one that dies beside its write.
func TestBackfillBesideAnotherLeader(t *testing.T) {
	w := begin(t, backfills)
	n := w.node("n", untainted)
	first, second := w.leads(), w.leads()
	first.once("patch Node", func() { w.must(second.backfill(n)) })
	w.must(first.backfill(n))
	if got := w.effects(n, gating.Key); len(got) != 1 || len(first.writes) != 1 || len(second.writes) != 1 || w.emitted(n.Name, decide.EventBackfilled) != 1 {
		t.Errorf("%v, writes %v and %v, %d events", got, first.writes, second.writes, w.emitted(n.Name, decide.EventBackfilled))
	}
	for name, f := range map[string]fault{"refused": {at: 1, code: 500}, "answer lost": {at: 1, code: 504, after: true}, "dead": {at: 1}} {
		w := begin(t, backfills)
		n := w.node("n", untainted)
		l := w.leads(func(l *leader) { l.fault = f })
		if err := l.backfill(n); err == nil {
			t.Errorf("%s: no error", name)
		}
		successor := w.leads()
		w.must(successor.backfill(n))
		written := 0
		if name == "refused" {
			written = 1
		}
		if got := w.effects(n, gating.Key); len(got) != 1 || len(successor.writes) != written {
			t.Errorf("%s: %v, then writes %v", name, got, successor.writes)
		}
	}
}

func (w *world) patch(n *corev1.Node, patch string) {
	w.Helper()
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	w.must(api.Patch(w.ctx, target, client.RawPatch(types.MergePatchType, []byte(patch))))
}
