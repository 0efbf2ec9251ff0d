package adoption_test

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
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// adopt runs the adoption reconciler on a node twice.
func adopt(l *world.Leader, node string) {
	l.W.Helper()
	r := &adoption.Reconciler{View: l.Nodes.View, Writer: l.Versions.Writer(l.Writer()), Counters: metrics.NewCounters(nil, nil), Limit: flowcontrol.NewFakeAlwaysRateLimiter()}
	for range 2 {
		if _, err := r.Reconcile(l.W.Ctx, world.Request(node)); err != nil {
			l.W.Error(err)
		}
	}
}

// labelled is a node that another program verified.
func labelled(w *world.World, suffix string) *corev1.Node {
	return w.Node(suffix, world.Untainted, world.Pooled, func(n *corev1.Node) { n.Labels["node-ready/verified"] = "true" })
}

// A node that another program verified gets a record, once. That does not cause a verification. A lost label or a
// reboot does, later.
func TestAdoption(t *testing.T) {
	for name, again := range map[string]string{
		"its label is removed": `{"metadata":{"labels":{"node-ready/verified":null}}}`,
		"it reboots":           `{"status":{"nodeInfo":{"bootID":"another"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, "")
			n := labelled(w, "n")
			l := w.Lead()
			adopt(l, n.Name)
			l.Drive()
			_, f := w.Get(n.Name)
			if r := f.Record; l.WriteCount() != 1 || r.LastReason != attempt.ReasonAdopted || r.NodeUID != string(n.UID) || r.BootID != "boot" || !r.MayHaveVerified() || w.Created("verify") != 0 {
				t.Fatalf("%d writes %v, record %+v", l.WriteCount(), l.Writes, r)
			}
			w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(again))))
			w.Must(w.API.Status().Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(again))))
			l.Drive()
			if _, f := w.Get(n.Name); !f.Labelled || f.Record.LastOutcome != attempt.Passed || f.Record.VerifiedTime == nil || f.Record.HistoryLost || w.Created("verify") != 1 {
				t.Errorf("then: labelled %t, record %+v, %d workers", f.Labelled, f.Record, w.Created("verify"))
			}
		})
	}
}

// An adopted node hosts no control probe, and is not deleted when it fails later.
func TestAnAdoptedNodeProvesNothingOfOthers(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"controlProbe": true}}}`)
	w.Exit = func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe {
			return 0
		}
		return 1
	}
	old, n := labelled(w, "old"), w.Node("n", world.Pooled)
	w.Claim(old)
	w.Claim(n)
	l := w.Lead()
	adopt(l, old.Name)
	l.Steps(6)
	if r := w.Record(n.Name); w.Created("probe") != 0 || r.Held != decide.GuardControlProbe || r.Attempts != 0 {
		t.Errorf("%d probes, record %+v", w.Created("probe"), r)
	}
	w.Verified("control", world.Pooled)
	w.Must(w.API.Patch(w.Ctx, old.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node-ready/verified":null}}}`))))
	l.Drive()
	if r := w.Record(old.Name); r.Attempts != 2 || r.Held != decide.GuardNeverVerifiedOnly || w.Deleting(old.Name) {
		t.Errorf("deleted %t, record %+v", w.Deleting(old.Name), r)
	}
}
