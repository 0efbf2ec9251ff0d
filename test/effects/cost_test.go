package effects

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A node that a free guard holds costs no list of pods or NodeClaims, no reading of the ledger and no pass over the fleet,
// at no look.
func TestHeldNodeCostsNothing(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
	n := w.exhausted("n", pooled, func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationDoNotDelete: "true"} })
	l := w.leads()
	l.drive()
	if r := w.record(n.Name); r.Held != decide.GuardDoNotDelete {
		t.Fatalf("record %+v", r)
	}
	successor := w.leads() // which has not read the fleet yet
	for range 20 {
		if _, err := successor.nodes.Reconcile(w.ctx, request(n.Name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range successor.lists {
		if list != "cached PodList" { // of our pods on the node, by an index
			t.Errorf("%s", list)
		}
	}
	if considered := successor.takeConsidered(); len(considered) > 0 || successor.written() > 0 {
		t.Errorf("considered: %v, written: %v", considered, successor.writes)
	}
}

// memory answers for one node and its pods without an API server, so that what is measured is the controller.
type memory struct {
	client.Client
	node *corev1.Node
}

func (m memory) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	m.node.DeepCopyInto(o.(*corev1.Node))
	return nil
}

func (memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return nil
	}
	return fmt.Errorf("a list of %T", list)
}

// With 5000 nodes a look at a node that is held takes no longer than it does with one.
func TestHeldNodeInALargeFleet(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
	n := w.exhausted("n", pooled, func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationDoNotDelete: "true"} })
	l := w.leads()
	l.drive()
	l.nodes.View.Cache = memory{Client: api}
	held, _ := w.get(n.Name)
	l.nodes.View.Cache = memory{Client: api, node: held}
	for i := range 5000 {
		other := held.DeepCopy()
		other.Name, other.UID = fmt.Sprintf("other-%d", i), held.UID+"x"
		l.fleet.See(l.nodes.View.Observe(other))
	}
	written := l.written()
	const looks = 500
	began := time.Now()
	for i := range looks {
		other := held.DeepCopy() // the fleet changes between any two looks
		other.Name, other.Spec.Unschedulable = "other-1", i%2 == 0
		other.Labels["node-ready/verified"] = fmt.Sprint(i%2 == 0)
		l.fleet.See(l.nodes.View.Observe(other))
		if _, err := l.nodes.Reconcile(w.ctx, request(n.Name)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began) / looks; took > time.Millisecond {
		t.Errorf("a look takes %s", took)
	} else {
		t.Logf("a look takes %s", took)
	}
	if l.written() > written {
		t.Errorf("it wrote %v", l.writes[written:])
	}
}

// A deletion that waits for the API server delays no verification, not even that of nodes that wait to be considered.
func TestDeletionThatHangs(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`}}`)
	stuck := w.exhausted("stuck", pooled)
	w.claim(stuck)
	w.exhausted("next", pooled)
	l := w.leads(func(l *leader) { l.hang = make(chan struct{}) })
	l.show()
	done := make(chan error)
	go func() { done <- l.consider(stuck) }()
	fresh := w.node("fresh")
	for range 12 {
		l.show()
		for _, name := range w.nodes {
			if _, err := l.nodes.Reconcile(w.ctx, request(name)); err != nil {
				t.Error(err)
			}
		}
		w.kubelets(l)
	}
	if _, f := w.get(fresh.Name); !f.Labelled || f.Gated {
		t.Errorf("the new node is not released: %+v", f.Record)
	}
	select {
	case err := <-done:
		t.Errorf("the deletion did not hang: %v", err)
	default:
	}
	close(l.hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !w.deleting(stuck.Name) {
		t.Error("it is not deleted once the API server answers")
	}
}

// A guard that goes on holding is written, and said, once; a failure that is too old to delete on is confirmed first.
func TestHeldForLong(t *testing.T) {
	w := begin(t, `{"nodeManagement": {`+deletes+`, "remediation": {"controlProbe": false}}}`)
	w.exit = func(*corev1.Pod) int { return 1 }
	n := w.exhausted("n")
	w.ordinaryPod(n)
	l := w.leads()
	began := w.clock.Now()
	for pass := 0; w.clock.Now().Sub(began) < 65*time.Minute; pass++ {
		if pass > 2000 {
			t.Fatalf("the last writes: %v", l.writes[len(l.writes)-20:])
		}
		if changed, wait := l.turn(); !changed {
			w.clock.advance(wait)
		}
	}
	r := w.record(n.Name)
	if r.Held != decide.GuardSparePods || r.Sequence < 8 || r.Sequence > 12 || r.Attempts != 2 {
		t.Errorf("record %+v", r)
	}
	if e := w.emitted(n.Name, decide.EventHeld) + w.emitted(n.Name, decide.EventFailed) + w.emitted(n.Name, decide.EventExhausted); e != 1 {
		t.Errorf("%d events: %v", e, w.events)
	}
	if attempts := int(r.Sequence) - 2; l.written() > 8*attempts+3 {
		t.Errorf("%d writes for %d attempts: %v", l.written(), attempts, l.writes)
	}
	w.oncePerTransition()
}
