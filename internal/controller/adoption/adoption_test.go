package adoption_test

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/adoption"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// adopt runs the adoption reconciler on a node twice.
func adopt(l *world.Leader, node string) {
	l.W.Helper()
	r := &adoption.Reconciler{View: l.Nodes.View, Writer: l.Writer(), Counters: metrics.NewCounters(nil, nil), Limit: flowcontrol.NewFakeAlwaysRateLimiter()}
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
			if _, f := w.Get(n.Name); !f.Labelled || f.Record.LastOutcome != attempt.Passed || f.Record.VerifiedTime == nil || w.Created("verify") != 1 {
				t.Errorf("then: labelled %t, record %+v, %d workers", f.Labelled, f.Record, w.Created("verify"))
			}
		})
	}
}

// The verified label gets another name. The nodes that passed get it, and are not verified again until somebody removes it.
func TestARenamedLabel(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {"verifiedLabel": {"key": "own/ready", "value": "yes"}}}`)
	n := w.Node("n")
	w.Lead().Drive()
	r := w.Record(n.Name)
	r.Label = "" // it passed under the default
	before, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{"own/ready": nil, "node-ready/verified": "true"},
		"annotations": map[string]any{marks.AnnotationRecord: r.Encode()}}})
	w.Must(err)
	w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, before)))
	l := w.Lead()
	l.Drive()
	adopt(l, n.Name)
	l.Drive()
	if have, f := w.Get(n.Name); have.Labels["own/ready"] != "yes" || f.Record.Label != "own/ready=yes" || w.Created("verify") != 1 || l.WriteCount() != 1 {
		t.Errorf("labels %v, record %+v, %d workers, writes %v", have.Labels, f.Record, w.Created("verify"), l.Writes)
	}
	w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"own/ready":null}}}`))))
	l.Drive()
	if have, _ := w.Get(n.Name); have.Labels["own/ready"] != "yes" || w.Created("verify") != 2 {
		t.Errorf("then: labels %v, %d workers", have.Labels, w.Created("verify"))
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

// A node that is younger than the installation and carries the label was born with it, by its NodePool's template or
// its kubelet. The label proves nothing, so the node is verified, and an event says so.
func TestBornVerified(t *testing.T) {
	before := func(*world.World, *corev1.Node) {}
	for name, tc := range map[string]struct {
		settings string
		born     func(*world.World, *corev1.Node)
		exit     int
		workers  int
	}{
		"by its template": {born: before, workers: 1},
		"with the record of the node before": {workers: 1, born: func(w *world.World, n *corev1.Node) {
			w.Annotate(n.Name, marks.AnnotationRecord, marks.Record{NodeUID: "before", BootID: "boot", Sequence: 3, LastOutcome: attempt.Passed}.Encode())
		}},
		"asked to be verified": {workers: 1, born: func(w *world.World, n *corev1.Node) {
			w.Annotate(n.Name, marks.AnnotationVerifyRequested, "now")
		}},
		"and its checks fail": {born: before, exit: 1, workers: 2},
		"with a deadline":     {settings: `{"reconciliation": {"verificationDeadlineSeconds": 600}}`, born: before, workers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, tc.settings)
			w.Installed = w.Clock.Now().Add(-time.Hour)
			w.Exit = func(*corev1.Pod) int { return tc.exit }
			n := labelled(w, "n")
			tc.born(w, n)
			l := w.Lead()
			adopt(l, n.Name)
			l.Drive()
			_, f := w.Get(n.Name)
			if w.Created("verify") != tc.workers || f.Labelled != (tc.exit == 0) || f.Gated == (tc.exit == 0) {
				t.Errorf("%d workers, labelled %t, gated %t, record %+v", w.Created("verify"), f.Labelled, f.Gated, f.Record)
			}
			if got := w.EventCount(n.Name, decide.EventBornVerified); got != 1 {
				t.Errorf("%d events, want 1", got)
			}
		})
	}
}

// A refused adoption is an error, which is logged, counted and tried again with a backoff. Only a node that changed
// meanwhile, or that another one replaced, is none.
func TestRefusedAdoption(t *testing.T) {
	for code, failed := range map[int]bool{403: true, 422: true, 500: true, 409: false, 404: false} {
		w := world.Begin(t, "")
		n := labelled(w, "n")
		l := w.Lead(func(l *world.Leader) { l.Fault = world.Fault{At: 1, Code: code} })
		r := &adoption.Reconciler{View: l.Nodes.View, Writer: l.Writer(), Counters: metrics.NewCounters(nil, nil), Limit: flowcontrol.NewFakeAlwaysRateLimiter()}
		if got, err := r.Reconcile(l.W.Ctx, world.Request(n.Name)); (err != nil) != failed || failed && got.RequeueAfter != 0 {
			t.Errorf("%d: %v, again in %s", code, err, got.RequeueAfter)
		}
	}
}
