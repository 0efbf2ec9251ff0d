package deletion_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// heldBy creates the given number of nodes whose deletion is held by the guard, with evidence that costs a list.
func heldBy(w *world.World, guard string, count int) {
	w.Helper()
	for i := range count {
		n := w.Exhausted(fmt.Sprint(i), world.Pooled)
		if guard != owner.Guard {
			w.Claim(n)
		}
		if guard == decide.GuardSparePods {
			w.OrdinaryPod(n)
		}
	}
}

// Looking again at a held node that has not changed sends no list request to the API server, whichever guard holds it.
// Ten looks at each of 20 nodes cost as much as the first look.
func TestHeldNodesCostNoLists(t *testing.T) {
	const nodes, looks = 20, 10
	for guard, settings := range map[string]string{
		decide.GuardSparePods: `{"nodeManagement": {` + world.Deletes + `}}`,
		owner.Guard:           `{"nodeManagement": {` + world.Deletes + `}}`,
		decide.GuardDryRun:    `{"nodeManagement": {` + world.Deletes + `, "remediation": {"dryRun": true}}}`,
	} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, settings)
			heldBy(w, guard, nodes)
			l := w.Lead()
			l.Deliver()
			l.ReconcileAll()
			for _, name := range w.NodeNames {
				if r := w.Record(name); r.Held != guard {
					t.Fatalf("record %+v", r)
				}
			}
			first := l.LiveLists()
			for range looks {
				l.Deliver()
				l.ReconcileAll()
			}
			if again := l.LiveLists(); len(again) > 0 {
				t.Errorf("%d lists for %d looks at each of %d nodes, after %d for the first: %v",
					len(again), looks, nodes, len(first), again[:3])
			}
		})
	}
}

// While nothing changes, the node reconciler leaves a held node to the deletion reconciler, which looks at all of them
// together, once in each interval. The next attempt is further away than the next turn of the sweep.
func TestHeldNodeIsLookedAtOnceAnInterval(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"dryRun": true}},
		"reconciliation": {"intervalSeconds": 30}}`)
	heldBy(w, decide.GuardDryRun, 2)
	l := w.Lead()
	l.Steps(5) // until their conditions say so
	var rounds []time.Time
	for _, name := range w.NodeNames {
		l.TakeConsidered()
		own, err := l.Nodes.Reconcile(w.Ctx, world.Request(name))
		if w.Must(err); own.RequeueAfter != 0 || len(l.TakeConsidered()) != 1 {
			t.Errorf("%s: the node reconciler looks again in %s", name, own.RequeueAfter)
		}
		held, err := l.Deletions.Reconcile(w.Ctx, world.Request(name))
		if w.Must(err); held.RequeueAfter <= 0 || held.RequeueAfter > 30*time.Second || *held.Priority >= 0 {
			t.Errorf("%s: the deletion reconciler returns %+v", name, held)
		}
		rounds = append(rounds, w.Clock.Now().Add(held.RequeueAfter))
		w.Clock.Advance(time.Second)
	}
	if !rounds[0].Equal(rounds[1]) {
		t.Errorf("looks at %v", rounds)
	}
}

// Evidence about a held node that only the API server has is read again at growing intervals, and at least every ten
// minutes. So a node that becomes deletable without a change to the Node object is deleted within that time.
func TestHeldNodeIsReadAgain(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"controlProbe": false}},
		"reconciliation": {"intervalSeconds": 30}}`)
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Exhausted("n", world.Pooled)
	w.Claim(n)
	w.OrdinaryPod(n)
	l := w.Lead()
	goOn := func(d time.Duration) (lists int) {
		for end := w.Clock.Now().Add(d); w.Clock.Now().Before(end) && !w.Deleting(n.Name); {
			if changed, wait := l.Step(); !changed {
				w.Clock.Advance(wait)
			}
		}
		for _, resource := range l.LiveLists() {
			if resource == "PodList" {
				lists++
			}
		}
		return lists
	}
	if lists := goOn(time.Hour); lists < 6 || lists > 20 {
		t.Errorf("%d lists of its pods in the first hour, at 120 looks", lists)
	}
	if w.Deleting(n.Name) {
		t.Fatal("it is deleted although it runs an ordinary pod")
	}
	ordinary := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ordinary-" + n.Name}}
	w.Must(world.API.Delete(w.Ctx, ordinary, client.GracePeriodSeconds(0)))
	began := w.Clock.Now()
	goOn(time.Hour)
	if took := w.Clock.Now().Sub(began); !w.Deleting(n.Name) || took > 11*time.Minute {
		t.Errorf("deleted: %t, after %s", w.Deleting(n.Name), took)
	}
}

// If a change concerns the guard, the next reconcile reads the evidence again. Here the node was cordoned, which starts
// a drain, or was tried again.
func TestHeldNodeIsReadWhenItChanges(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	heldBy(w, decide.GuardSparePods, 1)
	l := w.Lead()
	for range 3 {
		l.Deliver()
		l.ReconcileAll()
	}
	l.LiveLists()
	n, f := w.Get(w.NodeNames[0])
	n.Spec.Unschedulable = true
	w.Must(world.API.Update(w.Ctx, n))
	l.ReconcileAll()
	if lists := l.LiveLists(); len(lists) != 1 {
		t.Errorf("cordoned: %v", lists)
	}
	f.Record.Sequence++
	w.WriteRecord(n, f.Record)
	l.ReconcileAll()
	if lists := l.LiveLists(); len(lists) != 1 {
		t.Errorf("tried again: %v", lists)
	}
	l.ReconcileAll()
	if lists := l.LiveLists(); len(lists) != 0 {
		t.Errorf("and looked at once more: %v", lists)
	}
}
