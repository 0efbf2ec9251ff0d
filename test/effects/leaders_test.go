package effects

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
)

// consider lets the deletion reconciler consider one node.
func (l *leader) consider(n *corev1.Node) error {
	_, err := l.deletions.Reconcile(l.w.ctx, request(n.Name))
	return err
}

// once runs do before the first write of that name.
func (l *leader) once(write string, do func()) {
	done := false
	l.before = func(w string) {
		if !done && w == write {
			done = true
			do()
		}
	}
}

// A deletion that another leader enters between the reading of the ledger and the entry is counted.
func TestHourlyLimitHoldsBesideAnotherLeader(t *testing.T) {
	for before, entries := range map[string]int{"patch Node": 0, "update ConfigMap": 1} {
		t.Run(before, func(t *testing.T) {
			w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"maxDeletionsPerHour": 2}}}`)
			w.fill(entries)
			a, b, c := w.exhausted("a", pooled), w.exhausted("b", pooled), w.exhausted("c", pooled)
			for _, n := range []*corev1.Node{a, b, c} {
				w.claim(n)
			}
			first, second := w.leads(), w.leads()
			first.show()
			second.show()
			first.once(before, func() {
				w.must(second.consider(b))
				if entries == 0 {
					w.must(second.consider(c))
				}
			})
			w.must(first.consider(a))
			if w.deleting(a.Name) || !w.deleting(b.Name) {
				t.Errorf("a deleted: %t, b deleted: %t", w.deleting(a.Name), w.deleting(b.Name))
			}
			if len(w.ledger()) != 2 {
				t.Errorf("the ledger has %v", w.ledger())
			}
			w.must(first.consider(a))
			if r := w.record(a.Name); r.Held != decide.GuardMaxDeletionsPerHour || r.Deletion != nil {
				t.Errorf("looked at again it is held by %q, to be deleted: %v", r.Held, r.Deletion)
			}
		})
	}
}

// Deletions are paused between the decision and the entry in the ledger: nothing is deleted.
func TestPauseStopsWhatWasDecided(t *testing.T) {
	for _, before := range []string{"patch Node", "update ConfigMap"} {
		w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
		n := w.exhausted("n", pooled)
		w.claim(n)
		l := w.leads()
		l.show()
		l.once(before, func() {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: ledger.Name}}
			w.must(api.Patch(w.ctx, cm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"node-ready/paused":"ticket 7"}}}`))))
		})
		w.must(l.consider(n))
		l.show()
		w.must(l.consider(n))
		if r := w.record(n.Name); w.deleting(n.Name) || len(w.ledger()) > 0 || r.Held != decide.GuardPaused {
			t.Errorf("before %s: deleted %t, ledger %v, held by %q", before, w.deleting(n.Name), w.ledger(), r.Held)
		}
	}
}

// Two leaders that decide on the same ledger delete one node between them; the other goes once the Node of the first is gone.
func TestMaxInFlightHoldsBesideAnotherLeader(t *testing.T) {
	for before, entries := range map[string]int{"patch Node": 0, "update ConfigMap": 1} {
		t.Run(before, func(t *testing.T) {
			w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"maxInFlight": 1}}}`)
			w.fill(entries)
			a, b := w.exhausted("a", pooled), w.exhausted("b", pooled)
			w.claim(a)
			w.claim(b)
			// A node that is created in the second of a deletion, or after it, counts as the replacement of the deleted one.
			w.clock.advance(2 * time.Second)
			first, second := w.leads(), w.leads()
			first.show()
			second.show()
			first.once(before, func() { w.must(second.consider(b)) })
			w.must(first.consider(a))
			for range 2 { // and whoever looks at them again
				for _, l := range []*leader{first, second} {
					l.show()
					w.must(l.consider(a))
					w.must(l.consider(b))
				}
			}
			gone, held := a, b
			if w.deleting(b.Name) { // it saw no intent of the first, which then found its entry in the ledger
				gone, held = b, a
			}
			if !w.deleting(gone.Name) || w.deleting(held.Name) {
				t.Fatalf("a deleted: %t, b deleted: %t", w.deleting(a.Name), w.deleting(b.Name))
			}
			if r := w.record(held.Name); r.Held != decide.GuardMaxInFlight || r.Deletion != nil || !strings.Contains(r.HeldMessage, gone.Name) {
				t.Errorf("held by %q (%s), to be deleted: %v", r.Held, r.HeldMessage, r.Deletion)
			}
			w.must(api.Delete(w.ctx, gone))
			if _, err := first.nodes.Reconcile(w.ctx, request(gone.Name)); err != nil { // its watch has shown that it is gone
				t.Error(err)
			}
			w.clock.advance(2 * time.Second) // for which the counts of the fleet serve
			w.must(first.consider(held))
			if !w.deleting(held.Name) {
				t.Errorf("it is still held: %+v", w.record(held.Name))
			}
		})
	}
}

// An opt-out, or a pass that another leader recorded, between what a deletion was decided on and its intent: the intent is
// refused, and nothing is deleted.
func TestDeletionIsOvertaken(t *testing.T) {
	passed := func(w *world, n *corev1.Node) {
		now := w.clock.Now().UTC()
		w.write(n, marks.Record{Sequence: 3, LastOutcome: "passed", LastTime: &now, VerifiedTime: &now})
	}
	for name, meanwhile := range map[string]func(*world, *corev1.Node){
		"opted out":               func(w *world, n *corev1.Node) { w.annotate(n.Name, marks.AnnotationDoNotDelete, "true") },
		"passed":                  passed,
		"opted out for Karpenter": func(w *world, n *corev1.Node) { w.annotate(n.Name, owner.AnnotationDoNotRepair, "true") },
		"not to be disrupted":     func(w *world, n *corev1.Node) { w.annotate(n.Name, owner.AnnotationDoNotDisrupt, "true") },
		"skipped":                 func(w *world, n *corev1.Node) { w.annotate(n.Name, marks.AnnotationSkip, "true") },
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
			n := w.exhausted("n", pooled)
			w.claim(n)
			l := w.leads()
			l.show()
			refused := false
			l.once("patch Node", func() {
				meanwhile(w, n)
				refused = true
			})
			r, err := l.deletions.Reconcile(w.ctx, request(n.Name))
			if !refused || err != nil || r.RequeueAfter == 0 {
				t.Errorf("refused %t, then %v, %v", refused, r, err)
			}
			l.before = nil
			l.Consider(n.Name)
			l.drive()
			if w.deleting(n.Name) || len(w.ledger()) > 0 || len(w.gone()) > 0 || w.record(n.Name).Deletion != nil {
				t.Errorf("NodeClaim deleted: %t, ledger %v, record %+v", w.deleting(n.Name), w.ledger(), w.record(n.Name))
			}
			if slices.Contains(l.writes, "update ConfigMap") {
				t.Errorf("it wrote %v", l.writes)
			}
		})
	}
}

// The NodeClaim was replaced by another of its name after it was decided on: that one stays.
func TestAnotherNodeClaimOfTheNameStays(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
	n := w.exhausted("n", pooled)
	c := w.claim(n)
	l := w.leads()
	l.show()
	l.once("delete NodeClaim", func() {
		c.Finalizers = nil
		w.must(api.Update(w.ctx, c))
		w.must(api.Delete(w.ctx, c))
		w.claim(n)
	})
	if err := l.consider(n); err != nil && !apierrors.IsConflict(err) {
		t.Error(err)
	}
	if w.deleting(n.Name) || len(w.gone()) > 0 {
		t.Error("another NodeClaim was deleted")
	}
}
