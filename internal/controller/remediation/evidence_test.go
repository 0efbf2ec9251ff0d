package remediation_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// Nodes that failed while the watch of nodes lags count against a deletion. Otherwise a deletion would start in an
// outage, because the cached fleet looks healthy.
func TestDeletionCountsTheFleetAnew(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"maxUnhealthy": 1}}}`)
	n, other := w.Exhausted("n", world.Pooled), w.Node("other", world.Pooled)
	w.Claim(n)
	l := w.Lead()
	l.Deliver()
	if _, err := l.Fleet.Summaries(w.Ctx); err != nil { // the cache is filled
		t.Fatal(err)
	}
	w.WriteRecord(other, w.Failures(1))
	if _, err := l.Remediations.Reconcile(w.Ctx, world.Request(n.Name)); err != nil {
		t.Fatal(err)
	}
	if r := w.Record(n.Name); w.Deleting(n.Name) || r.Deletion != nil || r.Held != decide.GuardMaxUnhealthy {
		t.Errorf("deleting %t, record %+v", w.Deleting(n.Name), r)
	}
	w.WriteRecord(other, marks.Record{}) // else it was another guard
	l.Deliver()
	w.Clock.Advance(2 * time.Second) // for which the counts of the fleet serve
	if _, err := l.Remediations.Reconcile(w.Ctx, world.Request(n.Name)); err != nil {
		t.Fatal(err)
	}
	if r := w.Record(n.Name); r.Deletion == nil {
		t.Errorf("record %+v", r)
	}
}

// The evidence of a deletion becomes too old while an API server answers slowly. The controller reads it again and does
// not act on it.
func TestDeletionOnOldEvidence(t *testing.T) {
	w := world.OnServer(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	n := w.Exhausted("n", world.Pooled)
	w.Claim(n)
	l := w.Lead()
	l.Deliver()
	l.Remediations.EvidenceFor = time.Nanosecond
	_, err := l.Remediations.Reconcile(w.Ctx, world.Request(n.Name))
	if r := w.Record(n.Name); err == nil || !strings.Contains(err.Error(), "too old") || r.Deletion != nil || r.Held != "" || w.Deleting(n.Name) {
		t.Errorf("error %v, record %+v", err, r)
	}
	l.Remediations.EvidenceFor = time.Minute
	if _, err := l.Remediations.Reconcile(w.Ctx, world.Request(n.Name)); err != nil || !w.Deleting(n.Name) {
		t.Errorf("the next time: %v, record %+v", err, w.Record(n.Name))
	}
}

// The controller lacks the permission to delete a node that is to be deleted. The node's condition says so, and then
// stays the same.
func TestForbiddenDeletion(t *testing.T) {
	t.Parallel()
	for _, write := range []string{"delete NodeClaim", "update ConfigMap", "patch Node"} {
		t.Run(write, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement":{"deleteFailedNodes":true}}`)
			w.Verified("control")
			n := w.Exhausted("n", world.Pooled)
			w.Claim(n)
			l := w.Lead(func(l *world.Leader) { l.Forbid = func(what string) bool { return what == write } })
			l.RunFor(time.Minute)
			said := w.ConditionText(n.Name)
			if !strings.Contains(said, `remediation failed: things is forbidden: user "controller" may not `+write) {
				t.Errorf("it says %q", said)
			}
			if w.Deleting(n.Name) {
				t.Error("it is deleted")
			}
			l.RunFor(5 * time.Minute)
			if again := w.ConditionText(n.Name); again != said {
				t.Errorf("then it says %q", again)
			}
		})
	}
}

// The API server refuses to create the ledger, in whatever way. The node is held and says what a person has to fix, in
// a text that stays the same.
func TestRefusedLedger(t *testing.T) {
	t.Parallel()
	for code, says := range map[int]string{
		http.StatusForbidden:           "create the ledger: the service account lacks a permission",
		http.StatusUnprocessableEntity: "create the ledger: the server rejected our request due to an error in our request",
		http.StatusBadRequest:          "create the ledger: the server rejected our request for an unknown reason",
		http.StatusMethodNotAllowed:    "create the ledger: the server does not allow this method on the requested resource",
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement":{"deleteFailedNodes":true}}`)
			w.Verified("control")
			n := w.Exhausted("n", world.Pooled)
			w.Claim(n)
			cm := &corev1.ConfigMap{}
			cm.Namespace, cm.Name = w.Namespace, ledger.Name
			w.Must(client.IgnoreNotFound(w.API.Delete(w.Ctx, cm)))
			l := w.Lead(func(l *world.Leader) {
				l.Refuse = func(o client.Object) error {
					if _, ok := o.(*corev1.ConfigMap); !ok {
						return nil
					}
					return world.Refusal(code, "create ConfigMap")
				}
			})
			l.RunFor(2 * time.Minute)
			said := w.ConditionText(n.Name)
			if !strings.HasPrefix(said, "Unknown RemediationHeld: ") || !strings.Contains(said, says) {
				t.Errorf("it says %q", said)
			}
			if l.RunFor(5 * time.Minute); w.Deleting(n.Name) || w.ConditionText(n.Name) != said || w.EventCount(n.Name, decide.EventHeld) != 1 {
				t.Errorf("then it says %q, %d events", w.ConditionText(n.Name), w.EventCount(n.Name, decide.EventHeld))
			}
		})
	}
}
