package effects

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// liveLists are the lists that a leader asked the API server for since the last call, each with its resource.
func (l *leader) liveLists() (lists []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.lists {
		if resource, live := strings.CutPrefix(list, "live "); live {
			lists = append(lists, resource)
		}
	}
	l.lists = nil
	return lists
}

// heldBy makes so many nodes whose deletion the guard holds, by the evidence that costs a list.
func (w *world) heldBy(guard string, count int) {
	w.Helper()
	for i := range count {
		n := w.exhausted(fmt.Sprint(i), pooled)
		if guard != owner.Guard {
			w.claim(n)
		}
		if guard == decide.GuardSparePods {
			w.ordinaryPod(n)
		}
	}
}

// A look at a held node that changes nothing asks the API server for no list, whichever guard holds it: 20 nodes and 10
// looks at each cost what the first look cost.
func TestHeldNodesCostNoLists(t *testing.T) {
	const nodes, looks = 20, 10
	for guard, settings := range map[string]string{
		decide.GuardSparePods: `{"nodeManagement": {` + deletes + `}}`,
		owner.Guard:           `{"nodeManagement": {` + deletes + `}}`,
		decide.GuardDryRun:    `{"nodeManagement": {` + deletes + `, "remediation": {"dryRun": true}}}`,
	} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			w := begin(t, settings)
			w.heldBy(guard, nodes)
			l := w.leads()
			l.show()
			l.pass()
			for _, name := range w.nodes {
				if r := w.record(name); r.Held != guard {
					t.Fatalf("record %+v", r)
				}
			}
			first := l.liveLists()
			for range looks {
				l.show()
				l.pass()
			}
			if again := l.liveLists(); len(again) > 0 {
				t.Errorf("%d lists for %d looks at each of %d nodes, after %d for the first: %v",
					len(again), looks, nodes, len(first), again[:3])
			}
		})
	}
}

// What only the API server knows of a held node is read again ever more seldom, and at the latest after ten minutes:
// a node that becomes deletable without any change of its own is deleted within that time.
func TestHeldNodeIsReadAgain(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"controlProbe": false}},
		"reconciliation": {"intervalSeconds": 30}}`)
	w.exit = func(*corev1.Pod) int { return 1 }
	n := w.exhausted("n", pooled)
	w.claim(n)
	w.ordinaryPod(n)
	l := w.leads()
	goOn := func(d time.Duration) (lists int) {
		for end := w.clock.Now().Add(d); w.clock.Now().Before(end) && !w.deleting(n.Name); {
			if changed, wait := l.turn(); !changed {
				w.clock.advance(wait)
			}
		}
		for _, resource := range l.liveLists() {
			if resource == "PodList" {
				lists++
			}
		}
		return lists
	}
	if lists := goOn(time.Hour); lists < 6 || lists > 20 {
		t.Errorf("%d lists of its pods in the first hour, at 120 looks", lists)
	}
	if w.deleting(n.Name) {
		t.Fatal("it is deleted although it runs an ordinary pod")
	}
	ordinary := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "ordinary-" + n.Name}}
	w.must(api.Delete(w.ctx, ordinary, client.GracePeriodSeconds(0)))
	began := w.clock.Now()
	goOn(time.Hour)
	if took := w.clock.Now().Sub(began); !w.deleting(n.Name) || took > 11*time.Minute {
		t.Errorf("deleted: %t, after %s", w.deleting(n.Name), took)
	}
}

// A change that concerns the guard has its evidence read at the next look: the node was cordoned, which begins a
// drain, or was tried again.
func TestHeldNodeIsReadWhenItChanges(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
	w.heldBy(decide.GuardSparePods, 1)
	l := w.leads()
	for range 3 {
		l.show()
		l.pass()
	}
	l.liveLists()
	n, f := w.get(w.nodes[0])
	n.Spec.Unschedulable = true
	w.must(api.Update(w.ctx, n))
	l.pass()
	if lists := l.liveLists(); len(lists) != 1 {
		t.Errorf("cordoned: %v", lists)
	}
	f.Record.Sequence++
	w.write(n, f.Record)
	l.pass()
	if lists := l.liveLists(); len(lists) != 1 {
		t.Errorf("tried again: %v", lists)
	}
	l.pass()
	if lists := l.liveLists(); len(lists) != 0 {
		t.Errorf("and looked at once more: %v", lists)
	}
}
