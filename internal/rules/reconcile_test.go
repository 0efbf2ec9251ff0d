package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// writer records the patches of rules, and answers each with the same error.
type writer struct {
	client.Client
	patches []string
	err     error
}

func (w *writer) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	w.patches = append(w.patches, string(data))
	return errors.Join(err, w.err)
}

func (w *writer) Status() client.SubResourceWriter { return statusWriter{w: w} }

type statusWriter struct {
	client.SubResourceWriter
	w *writer
}

func (s statusWriter) Patch(ctx context.Context, o client.Object, p client.Patch,
	_ ...client.SubResourcePatchOption) error {
	return s.w.Patch(ctx, o, p)
}

func (f *fixture) reconcile(t *testing.T, live client.Reader, w *writer) (reconcile.Result, error) {
	t.Helper()
	r := &Reconciler{Rules: f.Rules, Live: live, Writer: w}
	request := reconcile.Request{}
	request.Name = "r0"
	return r.Reconcile(t.Context(), request)
}

func deletedRule() *v1alpha1.NodeReadinessRule {
	r := agentRule(0)
	r.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return r
}

// A deleted rule keeps its finalizer while a node has its taint, in the cache or only on the API server. It also keeps
// it until a decision from before the deletion has been written. A taint that verification owns by now is no reason.
func TestFinalizerStaysWhileTaintsDo(t *testing.T) {
	held := closed(newcomer("n", corev1.ConditionFalse))
	unregistered := closed(newcomer("n", corev1.ConditionTrue))
	unregistered.Labels["karpenter.sh/nodepool"] = "p"
	unrecorded := unregistered.DeepCopy()
	unrecorded.Annotations = nil
	for name, c := range map[string]struct {
		cached, live cached
		pending      bool
		gating       []marks.Taint
		released     bool
	}{
		"in the cache":                 {cached: cached{"n": held}, live: cached{}},
		"on the API server":            {cached: cached{}, live: cached{"n": held}},
		"a write is pending":           {cached: cached{}, live: cached{}, pending: true},
		"not registered yet":           {cached: cached{"n": unregistered}, live: cached{}},
		"nor is the owner recorded":    {cached: cached{"n": unrecorded}, live: cached{}},
		"no node has the rule's taint": {cached: cached{}, live: cached{"m": newcomer("m", "")}, released: true},
		"verification owns the taint": {cached: cached{"n": held}, live: cached{"n": held},
			gating: []marks.Taint{{Key: "readiness.k8s.io/r0", Effect: corev1.TaintEffectNoSchedule}}, released: true},
	} {
		f := serve(t, agentRule(0))
		f.Nodes, f.Gating = c.cached, c.gating
		if c.pending {
			f.Plan(newcomer("p", corev1.ConditionFalse)) // and done is not called
		}
		if err := f.Replace(t.Context(), []*v1alpha1.NodeReadinessRule{deletedRule()}); err != nil {
			t.Fatal(err)
		}
		w := &writer{}
		result, err := f.reconcile(t, c.live, w)
		if err != nil || (len(w.patches) == 1) != c.released || (result.RequeueAfter == 0) != c.released {
			t.Errorf("%s: %v, %v, patches %v", name, result, err, w.patches)
		}
		if c.released && !strings.Contains(fmt.Sprint(w.patches), `"finalizers":[]`) {
			t.Errorf("%s: %s", name, w.patches)
		}
	}
}

func value(c prometheus.Counter) float64 {
	var m dto.Metric
	_ = c.Write(&m)
	return m.GetCounter().GetValue()
}

// A change that the API server refuses is not counted as done, and the rule's status reports why it refuses it.
func TestRefusedChangeIsNoChange(t *testing.T) {
	f := serve(t, agentRule(0))
	n := newcomer("n", corev1.ConditionFalse)
	f.nodes["n"] = n
	added := f.Counters.operations.WithLabelValues("r0", "add")
	plan, done := f.Plan(n)
	f.RecordFailure(n, plan, errors.New("denied by policy"))
	done()
	w := &writer{}
	if _, err := f.reconcile(t, f.nodes, w); err != nil {
		t.Fatal(err)
	}
	refused := f.Counters.failures.WithLabelValues("r0", "AddTaintError")
	if value(added) != 0 || value(refused) != 1 {
		t.Errorf("%v taints added, %v refused", value(added), value(refused))
	}
	if status := fmt.Sprint(w.patches); !strings.Contains(status, `"failedNodes":[{`) ||
		!strings.Contains(status, "denied by policy") {
		t.Errorf("the status is %s", status)
	}
	plan, done = f.Plan(n)
	f.RecordWrite(n, plan)
	done()
	if value(added) != 1 || len(f.failures(&rule.Rule{UID: "uid-r0"})) > 0 {
		t.Errorf("%v taints added, failures %v", value(added), f.failures(&rule.Rule{UID: "uid-r0"}))
	}
}

// A write fails after its rule is gone, and after the nodes were counted without it. The failure is recorded for the
// rules that exist.
func TestFailureAfterARuleIsGone(t *testing.T) {
	f := serve(t, agentRule(0), agentRule(1))
	n := newcomer("n", corev1.ConditionFalse)
	f.nodes["n"] = n
	plan, done := f.Plan(n)
	if err := f.Replace(t.Context(), []*v1alpha1.NodeReadinessRule{agentRule(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tallies(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.RecordFailure(n, plan, errors.New("denied by policy"))
	done()
	tallies, err := f.Tallies(t.Context())
	if err != nil || len(tallies) != 1 || len(tallies["uid-r1"].Held) != 1 {
		t.Errorf("%+v, %v", tallies, err)
	}
}

// A rule without the finalizer gets it before anything else, and adds no taint until then.
func TestFinalizerComesFirst(t *testing.T) {
	r := agentRule(0)
	r.Finalizers = nil
	f, w := serve(t, r), &writer{}
	plan, done := f.Plan(newcomer("n", corev1.ConditionFalse))
	done()
	if _, err := f.reconcile(t, f.nodes, w); err != nil || len(plan.Change.Add) > 0 {
		t.Errorf("%v, %+v", err, plan.Change)
	}
	if len(w.patches) != 1 || !strings.Contains(w.patches[0], `"finalizers":["`+v1alpha1.Finalizer+`"]`) {
		t.Errorf("%v", w.patches)
	}
}
