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

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// recreated replaces a node by another of its name.
func (w *world) recreated(n *corev1.Node) *corev1.Node {
	w.Helper()
	w.must(api.Delete(w.ctx, n.DeepCopy()))
	next := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{worldLabel: w.ns}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{gating}}}
	w.create(next)
	return next
}

// What the API server answers to a patch of a node's status that carries another UID: it does not take it.
func TestStatusPatchCarriesTheUID(t *testing.T) {
	w := begin(t, "")
	old := w.node("n")
	n := w.recreated(old)
	for name, patch := range map[string][]byte{
		"condition": marks.Condition{Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed}.Patch(string(old.UID), nil),
		"removal":   marks.RemoveCondition(string(old.UID)),
	} {
		target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		err := api.Status().Patch(w.ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v", name, err)
	}
	if got, f := w.get(n.Name); f.Condition != nil || got.ResourceVersion != n.ResourceVersion {
		t.Errorf("the node was changed: %+v", f.Condition)
	}
}

// A node that was re-created under its name gets nothing of its predecessor's, whatever the cache says.
func TestRecreatedNodeStartsAfresh(t *testing.T) {
	for name, old := range map[string]func(*world) *corev1.Node{
		"passed": func(w *world) *corev1.Node {
			now := w.clock.Now().UTC()
			n := w.node("n", untainted, func(n *corev1.Node) { n.Labels["node-ready/verified"] = "true" })
			w.write(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed, LastTime: &now, VerifiedTime: &now})
			return n
		},
		"exhausted": func(w *world) *corev1.Node { return w.exhausted("n") },
		"skipped, with a condition": func(w *world) *corev1.Node {
			return w.node("n", func(n *corev1.Node) {
				n.Annotations = map[string]string{marks.AnnotationSkip: "true"}
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
			before, _ := w.get(old(w).Name)
			l := w.leads()
			l.stale[before.Name] = before
			n := w.recreated(before)
			l.show()
			l.pass()
			l.pass()
			got, f := w.get(n.Name)
			if got == nil || f.Condition != nil || f.Record.Sequence != 0 || !f.Gated || f.Labelled || len(w.gone()) > 0 {
				t.Errorf("condition %+v, record %+v, deleted %v", f.Condition, f.Record, w.gone())
			}
			delete(l.stale, before.Name)
			l.drive()
			if _, f := w.get(n.Name); !f.Labelled || f.Gated || f.Record.Sequence != 1 || f.Record.NodeUID != string(n.UID) || len(l.errs) > 0 {
				t.Errorf("record %+v, errors %v", f.Record, l.errs)
			}
		})
	}
}

// A worker that began while the gate was open does not open the gate that was closed meanwhile.
func TestPassFromBeforeTheTaintCameBack(t *testing.T) {
	w := begin(t, "")
	running := true
	w.exit = func(*corev1.Pod) int {
		if running {
			return stays
		}
		return 0
	}
	n := w.node("n", untainted)
	w.write(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed}) // whose label somebody has removed
	l := w.leads()
	l.turns(3)
	first := w.pods(n.Name)
	patch := `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoSchedule"}]}}`
	w.must(api.Patch(w.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	running = false
	w.kubelets()
	successor := w.leads() // which knows no more than the API server
	successor.show()
	successor.pass()
	if r := w.record(n.Name); len(first) != 1 || r.Sequence != 2 || r.LastReason != attempt.ReasonGateReturned {
		t.Errorf("%d pods, record %+v", len(first), r)
	}
	successor.drive()
	if _, f := w.get(n.Name); f.Gated || f.Record.Sequence != 3 || f.Record.LastOutcome != attempt.Passed {
		t.Errorf("%+v", f.Record)
	}
}

// To a leader with an old cache the node is verified, or waits for its next attempt: the worker that has ended meanwhile,
// and whose result nobody has recorded, stays.
func TestUnrecordedWorkerStays(t *testing.T) {
	for name, record := range map[string]func(*world) marks.Record{
		"verified": func(w *world) marks.Record {
			now := w.clock.Now().UTC()
			return marks.Record{Sequence: 1, LastOutcome: attempt.Passed, LastTime: &now, VerifiedTime: &now}
		},
		"waiting": func(w *world) marks.Record { return w.failures(1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, "")
			n := w.node("n", func(n *corev1.Node) {
				if name == "verified" {
					untainted(n)
					n.Labels["node-ready/verified"] = "true"
				}
			})
			w.write(n, record(w))
			before, _ := w.get(n.Name)
			later := w.failures(2) // which the old leader does not know of
			later.LastTime = nil
			w.write(n, later)
			w.must(api.Patch(w.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node-ready/verified":null}}}`))))
			w.cfg.Reconciliation.MaxRetries = 5
			l, old := w.leads(), w.leads()
			l.turns(1) // attempt 3 is made, and ends
			pods := w.pods(n.Name)
			old.stale[n.Name] = before
			old.show()
			old.nodes.View.Tracker.Now = func() time.Time { return before.CreationTimestamp.Time }
			old.pass()
			if left := w.pods(n.Name); len(pods) != 1 || len(left) != 1 {
				t.Errorf("%d workers, then %d", len(pods), len(left))
			}
		})
	}
}

// A dry run changes nothing on nodes, deletes nothing but its own workers, and makes one attempt, its successor included.
func TestDryRun(t *testing.T) {
	for name, code := range map[string]int{"passes": 0, "fails": 1, "is refused": stays} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, `{"worker": {"keepFailedSeconds": 600}, "nodeManagement": {`+deletes+`, "remediation": {"controlProbe": false}}}`)
			w.exit = func(*corev1.Pod) int { return code }
			n, broken := w.node("n"), w.exhausted("broken", pooled)
			w.claim(broken)
			before := map[string]string{}
			for _, name := range w.nodes {
				got, _ := w.get(name)
				before[name] = got.ResourceVersion
			}
			for range 2 {
				l := w.leads(func(l *leader) { l.dry = true })
				if code == stays {
					l.refuse = func(o client.Object) error {
						if strings.Contains(o.GetName(), "verify") {
							return refusal(403, "create Pod")
						}
						return nil
					}
				}
				l.drive()
				if len(l.errs) > 0 {
					t.Error(l.errs)
				}
				tried := slices.DeleteFunc(l.writes, func(what string) bool { return what != "delete NodeClaim" })
				if len(tried) != 1 {
					t.Errorf("the deletion was tried %d times", len(tried))
				}
			}
			for name, version := range before {
				if got, _ := w.get(name); got == nil || got.ResourceVersion != version {
					t.Errorf("%s was changed", name)
				}
			}
			if w.deleting(broken.Name) || len(w.gone()) > 0 || len(w.ledger()) > 0 {
				t.Errorf("deleted %v, ledger %v", w.gone(), w.ledger())
			}
			want := 1
			if code == stays {
				want = 0
			}
			if got := w.born("verify-" + n.Name); got != want {
				t.Errorf("%d workers, want %d", got, want)
			}
			if e := w.emitted(broken.Name, decide.EventDeleted("NodeClaim")); e != 1 {
				t.Errorf("%d events about the deletion", e)
			}
			reason := map[int]decide.Reason{0: decide.EventPassed, 1: decide.EventFailed, stays: decide.EventInconclusive}[code]
			// One is enough: the pod says to a successor that it is done. Where there is none, nothing does.
			if e := w.emitted(n.Name, reason); e != 1 && (code != stays || e == 0) {
				t.Errorf("%d events %s", e, reason.Name)
			}
		})
	}
}

// A worker that passed, or is gone, while the watch of pods lags is not taken for one that ran out of time.
func TestNoTimeoutByAStaleCache(t *testing.T) {
	for name, end := range map[string]func(*world, *corev1.Pod){
		"it passed":  func(w *world, p *corev1.Pod) { w.terminate(p, 0) },
		"it is gone": func(w *world, p *corev1.Pod) { w.must(api.Delete(w.ctx, p, client.GracePeriodSeconds(0))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, "")
			w.exit = func(*corev1.Pod) int { return stays }
			n := w.node("n")
			l := w.leads()
			l.turns(2)
			w.status(&w.pods(n.Name)[0], `{"status":{"phase":"Running","containerStatuses":[{"name":"worker","image":"i","imageID":"i","ready":true,"restartCount":0,
				"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}`)
			l.show()
			pods := w.pods(n.Name)
			l.stalePods = &corev1.PodList{Items: pods}
			end(w, pods[0].DeepCopy())
			w.clock.advance(time.Hour)
			l.pass()
			if r := w.record(n.Name); r.Attempts != 0 || r.LastOutcome == attempt.Failed || name == "it passed" && r.LastOutcome != attempt.Passed {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// Nodes that failed while the watch of nodes lags count against a deletion: in an outage it would begin beside a fleet that looks healthy.
func TestDeletionCountsTheFleetAnew(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"maxUnhealthy": 1}}}`)
	n, other := w.exhausted("n", pooled), w.node("other", pooled)
	w.claim(n)
	l := w.leads()
	l.show()
	if _, err := l.fleet.Summaries(w.ctx); err != nil { // the cache is filled
		t.Fatal(err)
	}
	w.write(other, w.failures(1))
	if _, err := l.deletions.Reconcile(w.ctx, request(n.Name)); err != nil {
		t.Fatal(err)
	}
	if r := w.record(n.Name); w.deleting(n.Name) || r.Deletion != nil || r.Held != decide.GuardMaxUnhealthy {
		t.Errorf("deleting %t, record %+v", w.deleting(n.Name), r)
	}
	w.write(other, marks.Record{}) // else it was another guard
	l.show()
	w.clock.advance(2 * time.Second) // for which the counts of the fleet serve
	if _, err := l.deletions.Reconcile(w.ctx, request(n.Name)); err != nil {
		t.Fatal(err)
	}
	if r := w.record(n.Name); r.Deletion == nil {
		t.Errorf("record %+v", r)
	}
}

// What a deletion is decided on gets old while an API server answers slowly: it is read again, and not acted on.
func TestDeletionOnOldEvidence(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
	n := w.exhausted("n", pooled)
	w.claim(n)
	l := w.leads()
	l.show()
	l.deletions.EvidenceFor = time.Nanosecond
	_, err := l.deletions.Reconcile(w.ctx, request(n.Name))
	if r := w.record(n.Name); err == nil || !strings.Contains(err.Error(), "too old") || r.Deletion != nil || r.Held != "" || w.deleting(n.Name) {
		t.Errorf("error %v, record %+v", err, r)
	}
	l.deletions.EvidenceFor = time.Minute
	if _, err := l.deletions.Reconcile(w.ctx, request(n.Name)); err != nil || !w.deleting(n.Name) {
		t.Errorf("the next time: %v, record %+v", err, w.record(n.Name))
	}
}
