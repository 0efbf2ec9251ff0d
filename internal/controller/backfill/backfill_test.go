package backfill_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kube-node-ready/kube-node-ready/internal/controller/backfill"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

const backfills = `{"admission": {"backfill": true}}`

// reconcile lets the backfill reconciler look at one node.
func reconcile(l *world.Leader, n *corev1.Node) error {
	_, err := l.Backfills.Reconcile(l.W.Ctx, world.Request(n.Name))
	return err
}

// effects are the effects of a node's taints with a key.
func effects(w *world.World, n *corev1.Node, key string) (effects []corev1.TaintEffect) {
	w.Helper()
	got, _ := w.Get(n.Name)
	for _, t := range got.Spec.Taints {
		if t.Key == key {
			effects = append(effects, t.Effect)
		}
	}
	return effects
}

// counted is how many nodes the metric of backfills counts with the result.
func counted(l *world.Leader, result string) (nodes float64) {
	l.W.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(l.Backfills.Counters.Collectors()...)
	families, err := registry.Gather()
	l.W.Must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kube_node_ready_backfills_total" && m.GetLabel()[0].GetValue() == result {
				nodes += m.GetCounter().GetValue()
			}
		}
	}
	return nodes
}

// A node that admission missed is tainted by one write, and then verified like any other node.
func TestBackfill(t *testing.T) {
	w := world.Begin(t, backfills)
	n := w.Node("n", world.Untainted)
	l := w.Lead()
	w.Must(reconcile(l, n))
	if _, f := w.Get(n.Name); !f.Gated || f.HasRecord || f.Labelled {
		t.Errorf("%+v", f)
	}
	w.Must(reconcile(l, n))
	if !slices.Equal(l.Writes, []string{"patch Node"}) || w.EventCount(n.Name, decide.EventBackfilled) != 1 || counted(l, "tainted") != 1 {
		t.Errorf("writes %v, %d events", l.Writes, w.EventCount(n.Name, decide.EventBackfilled))
	}
	l.Drive()
	if _, f := w.Get(n.Name); f.Gated || !f.Labelled || f.Record.Sequence != 1 {
		t.Errorf("%+v", f)
	}
	w.Must(reconcile(l, n))
	if _, f := w.Get(n.Name); f.Gated {
		t.Error("a verified node is tainted")
	}
}

// A change between the read of a node and the write decides the result.
func TestBackfillDecidesOnWhatIsThere(t *testing.T) {
	verify := `{"metadata":{"labels":{"node-ready/verified":"true"}}}`
	for name, tc := range map[string]struct {
		cached func(*world.World, *corev1.Node) // after the cache has seen the node
		before func(*world.World, *corev1.Node) // before the write
		gated  bool
	}{
		"nothing":                    {nil, nil, true},
		"a pod, after the cache":     {func(w *world.World, n *corev1.Node) { w.OrdinaryPod(n) }, nil, false},
		"verified, after the cache":  {func(w *world.World, n *corev1.Node) { w.Patch(n, verify) }, nil, false},
		"opted out, after the cache": {func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, "node-ready/skip", "true") }, nil, false},
		"control plane, after the cache": {func(w *world.World, n *corev1.Node) {
			w.Patch(n, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
		}, nil, false},
		"verified, before the write": {nil, func(w *world.World, n *corev1.Node) { w.Patch(n, verify) }, false},
		"a taint, before the write": {nil, func(w *world.World, n *corev1.Node) {
			w.Patch(n, `{"spec":{"taints":[{"key":"a/b","effect":"NoSchedule"}]}}`)
		}, true},
		"a pod and a change, before the write": {nil, func(w *world.World, n *corev1.Node) {
			w.OrdinaryPod(n)
			w.Annotate(n.Name, "a", "b")
		}, false},
		"another node of its name": {nil, func(w *world.World, n *corev1.Node) {
			w.Recreate(n)
			w.Patch(n, verify)
		}, true}, // which registered with its taint
		"another one that admission missed too": {nil, func(w *world.World, n *corev1.Node) {
			w.Must(w.API.Delete(w.Ctx, n.DeepCopy()))
			w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{world.WorldLabel: w.Namespace}}})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, backfills)
			n := w.Node("n", world.Untainted)
			l := w.Lead()
			if tc.cached != nil {
				l.StaleNodes[n.Name], _ = w.Get(n.Name)
				tc.cached(w, n)
			}
			if tc.before != nil {
				l.Once("patch Node", func() { tc.before(w, n) })
			}
			w.Must(reconcile(l, n))
			if got := effects(w, n, world.Gating.Key); (len(got) == 1) != tc.gated {
				t.Errorf("%v", got)
			}
			if tc.cached != nil && len(l.Writes) > 0 {
				t.Errorf("writes %v", l.Writes)
			}
			if occupied := counted(l, "occupied"); (occupied == 1) != strings.HasPrefix(name, "a pod") {
				t.Errorf("%v nodes are counted as occupied", occupied)
			}
			if name == "a taint, before the write" && len(effects(w, n, "a/b")) != 1 {
				t.Error("another's taint is gone")
			}
		})
	}
}

// A pod that is bound after the node's pods were listed is not evicted, because the taint was added with effect
// NoSchedule.
func TestBackfillEvictsNobody(t *testing.T) {
	w := world.Begin(t, `{"admission": {"backfill": true}, "nodeManagement": {"taints": [{"key": "a/b", "effect": "NoExecute"}]}}`)
	n := w.Node("n", world.Untainted)
	l := w.Lead()
	l.Once("patch Node", func() { w.OrdinaryPod(n) })
	w.Must(reconcile(l, n))
	if got := effects(w, n, "a/b"); !slices.Equal(got, []corev1.TaintEffect{corev1.TaintEffectNoSchedule}) {
		t.Errorf("%v", got)
	}
}

// A node beyond the limit is neither read nor tainted.
func TestBackfillIsLimited(t *testing.T) {
	w := world.Begin(t, backfills)
	n := w.Node("n", world.Untainted)
	l := w.Lead()
	l.Backfills.Limit = flowcontrol.NewFakeNeverRateLimiter()
	if err := reconcile(l, n); err == nil || len(l.Reads)+len(l.Writes) > 0 {
		t.Errorf("%v, reads %v, writes %v", err, l.Reads, l.Writes)
	}
	limit, burst := backfill.NewLimit(), 0
	for limit.TryAccept() {
		burst++
	}
	if limit.QPS() != backfill.PerSecond || burst < backfill.PerSecond || burst > backfill.PerSecond+1 { // a tenth of a second may go by
		t.Errorf("%v nodes a second, %d at once", limit.QPS(), burst)
	}
}

// Two leaders taint a node only once. So does a leader that dies before or after its write.
func TestBackfillBesideAnotherLeader(t *testing.T) {
	w := world.Begin(t, backfills)
	n := w.Node("n", world.Untainted)
	first, second := w.Lead(), w.Lead()
	first.Once("patch Node", func() { w.Must(reconcile(second, n)) })
	w.Must(reconcile(first, n))
	if got := effects(w, n, world.Gating.Key); len(got) != 1 || len(first.Writes) != 1 || len(second.Writes) != 1 || w.EventCount(n.Name, decide.EventBackfilled) != 1 {
		t.Errorf("%v, writes %v and %v, %d events", got, first.Writes, second.Writes, w.EventCount(n.Name, decide.EventBackfilled))
	}
	for name, f := range map[string]world.Fault{"refused": {At: 1, Code: 500}, "answer lost": {At: 1, Code: 504, After: true}, "dead": {At: 1}} {
		w := world.Begin(t, backfills)
		n := w.Node("n", world.Untainted)
		l := w.Lead(func(l *world.Leader) { l.Fault = f })
		if err := reconcile(l, n); err == nil {
			t.Errorf("%s: no error", name)
		}
		successor := w.Lead()
		w.Must(reconcile(successor, n))
		written := 0
		if name == "refused" {
			written = 1
		}
		if got := effects(w, n, world.Gating.Key); len(got) != 1 || len(successor.Writes) != written {
			t.Errorf("%s: %v, then writes %v", name, got, successor.Writes)
		}
	}
}
