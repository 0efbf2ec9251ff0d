package remediation_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// Another leader adds a deletion to the ledger between this leader's read and its own entry. That deletion counts.
func TestHourlyLimitHoldsBesideAnotherLeader(t *testing.T) {
	for before, entries := range map[string]int{"patch Node": 0, "update ConfigMap": 1} {
		t.Run(before, func(t *testing.T) {
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"maxDeletionsPerHour": 2}}}`)
			w.FillLedger(entries)
			a, b, c := w.Exhausted("a", world.Pooled), w.Exhausted("b", world.Pooled), w.Exhausted("c", world.Pooled)
			for _, n := range []*corev1.Node{a, b, c} {
				w.Claim(n)
			}
			first, second := w.Lead(), w.Lead()
			first.Deliver()
			second.Deliver()
			first.Once(before, func() {
				w.Must(second.ReconcileRemediation(b))
				if entries == 0 {
					w.Must(second.ReconcileRemediation(c))
				}
			})
			w.Must(first.ReconcileRemediation(a))
			if w.Deleting(a.Name) || !w.Deleting(b.Name) {
				t.Errorf("a deleted: %t, b deleted: %t", w.Deleting(a.Name), w.Deleting(b.Name))
			}
			if len(w.Ledger()) != 2 {
				t.Errorf("the ledger has %v", w.Ledger())
			}
			w.Must(first.ReconcileRemediation(a))
			if r := w.Record(a.Name); r.Held != decide.GuardMaxDeletionsPerHour || r.Deletion != nil {
				t.Errorf("looked at again it is held by %q, to be deleted: %v", r.Held, r.Deletion)
			}
		})
	}
}

// Deletions are paused between the decision and the entry in the ledger. Then nothing is deleted.
func TestPauseStopsWhatWasDecided(t *testing.T) {
	for _, before := range []string{"patch Node", "update ConfigMap"} {
		w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
		n := w.Exhausted("n", world.Pooled)
		w.Claim(n)
		l := w.Lead()
		l.Deliver()
		l.Once(before, func() {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: ledger.Name}}
			w.Must(w.API.Patch(w.Ctx, cm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"node-ready/paused":"ticket 7"}}}`))))
		})
		w.Must(l.ReconcileRemediation(n))
		l.Deliver()
		w.Must(l.ReconcileRemediation(n))
		if r := w.Record(n.Name); w.Deleting(n.Name) || len(w.Ledger()) > 0 || r.Held != decide.GuardPaused {
			t.Errorf("before %s: deleted %t, ledger %v, held by %q", before, w.Deleting(n.Name), w.Ledger(), r.Held)
		}
	}
}

// Two leaders that decide on the same ledger delete one node between them. The other node is deleted once the first
// Node is gone.
func TestMaxInFlightHoldsBesideAnotherLeader(t *testing.T) {
	for before, entries := range map[string]int{"patch Node": 0, "update ConfigMap": 1} {
		t.Run(before, func(t *testing.T) {
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"maxInFlight": 1}}}`)
			w.FillLedger(entries)
			a, b := w.Exhausted("a", world.Pooled), w.Exhausted("b", world.Pooled)
			w.Claim(a)
			w.Claim(b)
			// A node that is created in the second of a deletion, or after it, counts as the replacement of the deleted one.
			w.Clock.Advance(2 * time.Second)
			first, second := w.Lead(), w.Lead()
			first.Deliver()
			second.Deliver()
			first.Once(before, func() { w.Must(second.ReconcileRemediation(b)) })
			w.Must(first.ReconcileRemediation(a))
			for range 2 { // and whoever looks at them again
				for _, l := range []*world.Leader{first, second} {
					l.Deliver()
					w.Must(l.ReconcileRemediation(a))
					w.Must(l.ReconcileRemediation(b))
				}
			}
			gone, held := a, b
			if w.Deleting(b.Name) { // it saw no intent of the first, which then found its entry in the ledger
				gone, held = b, a
			}
			if !w.Deleting(gone.Name) || w.Deleting(held.Name) {
				t.Fatalf("a deleted: %t, b deleted: %t", w.Deleting(a.Name), w.Deleting(b.Name))
			}
			if r := w.Record(held.Name); r.Held != decide.GuardMaxInFlight || r.Deletion != nil || !strings.Contains(r.HeldMessage, gone.Name) {
				t.Errorf("held by %q (%s), to be deleted: %v", r.Held, r.HeldMessage, r.Deletion)
			}
			w.Must(w.API.Delete(w.Ctx, gone))
			if _, err := first.Nodes.Reconcile(w.Ctx, world.Request(gone.Name)); err != nil { // its watch has shown that it is gone
				t.Error(err)
			}
			w.Clock.Advance(2 * time.Second) // for which the counts of the fleet serve
			w.Must(first.ReconcileRemediation(held))
			if !w.Deleting(held.Name) {
				t.Errorf("it is still held: %+v", w.Record(held.Name))
			}
		})
	}
}

// An opt-out, or a pass that another leader recorded, comes between the evidence of a deletion and its intent. The API
// server refuses the intent, and nothing is deleted.
func TestDeletionIsOvertaken(t *testing.T) {
	passed := func(w *world.World, n *corev1.Node) {
		now := w.Clock.Now().UTC()
		w.WriteRecord(n, marks.Record{Sequence: 3, LastOutcome: "passed", LastTime: &now, VerifiedTime: &now})
	}
	for name, meanwhile := range map[string]func(*world.World, *corev1.Node){
		"opted out":               func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, marks.AnnotationDoNotDelete, "true") },
		"passed":                  passed,
		"opted out for Karpenter": func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, owner.AnnotationDoNotRepair, "true") },
		"not to be disrupted":     func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, owner.AnnotationDoNotDisrupt, "true") },
		"skipped":                 func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, marks.AnnotationSkip, "true") },
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
			n := w.Exhausted("n", world.Pooled)
			w.Claim(n)
			l := w.Lead()
			l.Deliver()
			refused := false
			l.Once("patch Node", func() {
				meanwhile(w, n)
				refused = true
			})
			r, err := l.Remediations.Reconcile(w.Ctx, world.Request(n.Name))
			if !refused || err != nil || r.RequeueAfter == 0 {
				t.Errorf("refused %t, then %v, %v", refused, r, err)
			}
			l.Before = nil
			l.Consider(n.Name)
			l.Drive()
			if w.Deleting(n.Name) || len(w.Ledger()) > 0 || len(w.Deleted()) > 0 || w.Record(n.Name).Deletion != nil {
				t.Errorf("NodeClaim deleted: %t, ledger %v, record %+v", w.Deleting(n.Name), w.Ledger(), w.Record(n.Name))
			}
			if slices.Contains(l.Writes, "update ConfigMap") {
				t.Errorf("it wrote %v", l.Writes)
			}
		})
	}
}

// The NodeClaim was replaced by another one of its name after the decision. The new one stays.
func TestAnotherNodeClaimOfTheNameStays(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	n := w.Exhausted("n", world.Pooled)
	c := w.Claim(n)
	l := w.Lead()
	l.Deliver()
	l.Once("delete NodeClaim", func() {
		c.Finalizers = nil
		w.Must(w.API.Update(w.Ctx, c))
		w.Must(w.API.Delete(w.Ctx, c))
		w.Claim(n)
	})
	if err := l.ReconcileRemediation(n); err != nil && !apierrors.IsConflict(err) {
		t.Error(err)
	}
	if w.Deleting(n.Name) || len(w.Deleted()) > 0 {
		t.Error("another NodeClaim was deleted")
	}
}
