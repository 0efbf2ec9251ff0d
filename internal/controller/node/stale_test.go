package node_test

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
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The API server refuses a patch of a node's status that carries another UID.
func TestStatusPatchCarriesTheUID(t *testing.T) {
	w := world.Begin(t, "")
	old := w.Node("n")
	n := w.Recreate(old)
	for name, patch := range map[string][]byte{
		"condition": marks.Condition{Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed}.Patch(string(old.UID), nil),
		"removal":   marks.RemoveCondition(string(old.UID)),
	} {
		target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		err := w.API.Status().Patch(w.Ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v", name, err)
	}
	if got, f := w.Get(n.Name); f.Condition != nil || got.ResourceVersion != n.ResourceVersion {
		t.Errorf("the node was changed: %+v", f.Condition)
	}
}

// A node that was re-created under its name gets nothing of its predecessor's, whatever the cache shows.
func TestRecreatedNodeStartsAfresh(t *testing.T) {
	for name, old := range map[string]func(*world.World) *corev1.Node{
		"passed": func(w *world.World) *corev1.Node {
			now := w.Clock.Now().UTC()
			n := w.Node("n", world.Untainted, func(n *corev1.Node) { n.Labels["node-ready/verified"] = "true" })
			w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed, LastTime: &now, VerifiedTime: &now})
			return n
		},
		"exhausted": func(w *world.World) *corev1.Node { return w.Exhausted("n") },
		"skipped, with a condition": func(w *world.World) *corev1.Node {
			return w.Node("n", func(n *corev1.Node) {
				n.Annotations = map[string]string{marks.AnnotationSkip: "true"}
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
			before, _ := w.Get(old(w).Name)
			l := w.Lead()
			l.StaleNodes[before.Name] = before
			n := w.Recreate(before)
			l.Deliver()
			l.ReconcileAll()
			l.ReconcileAll()
			got, f := w.Get(n.Name)
			if got == nil || f.Condition != nil || f.Record.Sequence != 0 || !f.Gated || f.Labelled || len(w.Deleted()) > 0 {
				t.Errorf("condition %+v, record %+v, deleted %v", f.Condition, f.Record, w.Deleted())
			}
			delete(l.StaleNodes, before.Name)
			l.Drive()
			if _, f := w.Get(n.Name); !f.Labelled || f.Gated || f.Record.Sequence != 1 || f.Record.NodeUID != string(n.UID) || len(l.Errs) > 0 {
				t.Errorf("record %+v, errors %v", f.Record, l.Errs)
			}
		})
	}
}

// A worker that started while the gate was open does not open a gate that was closed later.
func TestPassFromBeforeTheTaintCameBack(t *testing.T) {
	w := world.Begin(t, "")
	running := true
	w.Exit = func(*corev1.Pod) int {
		if running {
			return world.Stays
		}
		return 0
	}
	n := w.Node("n", world.Untainted)
	w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed}) // whose label somebody has removed
	l := w.Lead()
	l.Steps(3)
	first := w.Pods(n.Name)
	patch := `{"spec":{"taints":[{"key":"node-ready/unverified","effect":"NoSchedule"}]}}`
	w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	running = false
	w.Kubelets()
	successor := w.Lead() // which knows no more than the API server
	successor.Deliver()
	successor.ReconcileAll()
	if r := w.Record(n.Name); len(first) != 1 || r.Sequence != 2 || r.LastReason != attempt.ReasonGateReturned {
		t.Errorf("%d pods, record %+v", len(first), r)
	}
	successor.Drive()
	if _, f := w.Get(n.Name); f.Gated || f.Record.Sequence != 3 || f.Record.LastOutcome != attempt.Passed {
		t.Errorf("%+v", f.Record)
	}
}

// For a leader with an old cache, the node is verified or waits for its next attempt. The worker that has ended since,
// and whose result is not recorded, stays.
func TestUnrecordedWorkerStays(t *testing.T) {
	for name, record := range map[string]func(*world.World) marks.Record{
		"verified": func(w *world.World) marks.Record {
			now := w.Clock.Now().UTC()
			return marks.Record{Sequence: 1, LastOutcome: attempt.Passed, LastTime: &now, VerifiedTime: &now}
		},
		"waiting": func(w *world.World) marks.Record { return w.Failures(1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, "")
			n := w.Node("n", func(n *corev1.Node) {
				if name == "verified" {
					world.Untainted(n)
					n.Labels["node-ready/verified"] = "true"
				}
			})
			w.WriteRecord(n, record(w))
			before, _ := w.Get(n.Name)
			later := w.Failures(2) // which the old leader does not know of
			later.LastTime = nil
			w.WriteRecord(n, later)
			w.Must(w.API.Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node-ready/verified":null}}}`))))
			w.Config.Reconciliation.MaxRetries = 5
			l, old := w.Lead(), w.Lead()
			l.Steps(1) // attempt 3 is made, and ends
			pods := w.Pods(n.Name)
			old.StaleNodes[n.Name] = before
			old.Deliver()
			old.Nodes.View.Tracker.Now = func() time.Time { return before.CreationTimestamp.Time }
			old.ReconcileAll()
			if left := w.Pods(n.Name); len(pods) != 1 || len(left) != 1 {
				t.Errorf("%d workers, then %d", len(pods), len(left))
			}
		})
	}
}

// A dry run changes nothing on nodes, and deletes only its own workers. It makes one attempt, and its successor makes
// no other one.
func TestDryRun(t *testing.T) {
	for name, code := range map[string]int{"passes": 0, "fails": 1, "is refused": world.Stays} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"worker": {"keepFailedSeconds": 600}, "nodeManagement": {`+world.Deletes+`, "remediation": {"controlProbe": false}}}`)
			w.Exit = func(*corev1.Pod) int { return code }
			n, broken := w.Node("n"), w.Exhausted("broken", world.Pooled)
			w.Claim(broken)
			before := map[string]string{}
			for _, name := range w.NodeNames {
				got, _ := w.Get(name)
				before[name] = got.ResourceVersion
			}
			for range 2 {
				l := w.Lead(func(l *world.Leader) { l.DryRun = true })
				if code == world.Stays {
					l.Refuse = func(o client.Object) error {
						if strings.Contains(o.GetName(), "verify") {
							return world.Refusal(403, "create Pod")
						}
						return nil
					}
				}
				l.Drive()
				if len(l.Errs) > 0 {
					t.Error(l.Errs)
				}
				tried := slices.DeleteFunc(l.Writes, func(what string) bool { return what != "delete NodeClaim" })
				if len(tried) != 1 {
					t.Errorf("the deletion was tried %d times", len(tried))
				}
			}
			for name, version := range before {
				if got, _ := w.Get(name); got == nil || got.ResourceVersion != version {
					t.Errorf("%s was changed", name)
				}
			}
			if w.Deleting(broken.Name) || len(w.Deleted()) > 0 || len(w.Ledger()) > 0 {
				t.Errorf("deleted %v, ledger %v", w.Deleted(), w.Ledger())
			}
			want := 1
			if code == world.Stays {
				want = 0
			}
			if got := w.Created("verify-" + n.Name); got != want {
				t.Errorf("%d workers, want %d", got, want)
			}
			if e := w.EventCount(broken.Name, decide.EventDeleted("NodeClaim")); e != 1 {
				t.Errorf("%d events about the deletion", e)
			}
			reason := map[int]decide.Reason{0: decide.EventPassed, 1: decide.EventFailed, world.Stays: decide.EventInconclusive}[code]
			// One is enough: the pod says to a successor that it is done. Where there is none, nothing does.
			if e := w.EventCount(n.Name, reason); e != 1 && (code != world.Stays || e == 0) {
				t.Errorf("%d events %s", e, reason.Name)
			}
		})
	}
}

// A worker that passed, or is gone, while the watch of pods lags does not count as one that ran out of time.
func TestNoTimeoutByAStaleCache(t *testing.T) {
	for name, end := range map[string]func(*world.World, *corev1.Pod){
		"it passed":  func(w *world.World, p *corev1.Pod) { w.Terminate(p, 0) },
		"it is gone": func(w *world.World, p *corev1.Pod) { w.Must(w.API.Delete(w.Ctx, p, client.GracePeriodSeconds(0))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			w.Exit = func(*corev1.Pod) int { return world.Stays }
			n := w.Node("n")
			l := w.Lead()
			l.Steps(2)
			w.Status(&w.Pods(n.Name)[0], `{"status":{"phase":"Running","containerStatuses":[{"name":"worker","image":"i","imageID":"i","ready":true,"restartCount":0,
				"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}`)
			l.Deliver()
			pods := w.Pods(n.Name)
			l.StalePods = &corev1.PodList{Items: pods}
			end(w, pods[0].DeepCopy())
			w.Clock.Advance(time.Hour)
			l.ReconcileAll()
			if r := w.Record(n.Name); r.Attempts != 0 || r.LastOutcome == attempt.Failed || name == "it passed" && r.LastOutcome != attempt.Passed {
				t.Errorf("record %+v", r)
			}
		})
	}
}
