package effects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/adoption"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// adopt looks at a node's adoption, twice.
func (l *leader) adopt(node string) {
	l.w.Helper()
	r := &adoption.Reconciler{View: l.nodes.View, Writer: l.versions.Writer(l.writer()), Counters: metrics.NewCounters(nil), Limit: flowcontrol.NewFakeAlwaysRateLimiter()}
	for range 2 {
		if _, err := r.Reconcile(l.w.ctx, request(node)); err != nil {
			l.w.Error(err)
		}
	}
}

// labelled is a node that another program verified.
func (w *world) labelled(suffix string) *corev1.Node {
	return w.node(suffix, untainted, pooled, func(n *corev1.Node) { n.Labels["node-ready/verified"] = "true" })
}

// A node that another program verified gets a record, once. It is not verified for that, and is once it loses its label or reboots.
func TestAdoption(t *testing.T) {
	for name, again := range map[string]string{
		"its label is removed": `{"metadata":{"labels":{"node-ready/verified":null}}}`,
		"it reboots":           `{"status":{"nodeInfo":{"bootID":"another"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, "")
			n := w.labelled("n")
			l := w.leads()
			l.adopt(n.Name)
			l.drive()
			_, f := w.get(n.Name)
			if r := f.Record; l.written() != 1 || r.LastReason != attempt.ReasonAdopted || r.NodeUID != string(n.UID) || r.BootID != "boot" || !r.MayHaveVerified() || w.born("verify") != 0 {
				t.Fatalf("%d writes %v, record %+v", l.written(), l.writes, r)
			}
			w.must(api.Patch(w.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(again))))
			w.must(api.Status().Patch(w.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(again))))
			l.drive()
			if _, f := w.get(n.Name); !f.Labelled || f.Record.LastOutcome != attempt.Passed || f.Record.VerifiedTime == nil || f.Record.HistoryLost || w.born("verify") != 1 {
				t.Errorf("then: labelled %t, record %+v, %d workers", f.Labelled, f.Record, w.born("verify"))
			}
		})
	}
}

// An adopted node carries no control probe, and is not deleted when it fails later.
func TestAnAdoptedNodeProvesNothingOfOthers(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"controlProbe": true}}}`)
	w.exit = func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe {
			return 0
		}
		return 1
	}
	old, n := w.labelled("old"), w.node("n", pooled)
	w.claim(old)
	w.claim(n)
	l := w.leads()
	l.adopt(old.Name)
	l.turns(6)
	if r := w.record(n.Name); w.born("probe") != 0 || r.Held != decide.GuardControlProbe || r.Attempts != 0 {
		t.Errorf("%d probes, record %+v", w.born("probe"), r)
	}
	w.verified("control")
	w.must(api.Patch(w.ctx, old.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node-ready/verified":null}}}`))))
	l.drive()
	if r := w.record(old.Name); r.Attempts != 2 || r.Held != decide.GuardNeverVerifiedOnly || w.deleting(old.Name) {
		t.Errorf("deleted %t, record %+v", w.deleting(old.Name), r)
	}
}
