package remediation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	backends "github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A node that a guard without a cost holds never causes a list of pods or NodeClaims, a read of the ledger or a pass
// over the fleet.
func TestHeldNodeCostsNothing(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	n := w.Exhausted("n", world.Pooled, func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationDoNotDelete: "true"} })
	l := w.Lead()
	l.Drive()
	if r := w.Record(n.Name); r.Held != decide.GuardDoNotDelete {
		t.Fatalf("record %+v", r)
	}
	successor := w.Lead() // which has not read the fleet yet
	for range 20 {
		if _, err := successor.Nodes.Reconcile(w.Ctx, world.Request(n.Name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range successor.Lists {
		if list != "cached PodList" { // of our pods on the node, by an index
			t.Errorf("%s", list)
		}
	}
	if considered := successor.TakeConsidered(); len(considered) > 0 || successor.WriteCount() > 0 {
		t.Errorf("considered: %v, written: %v", considered, successor.Writes)
	}
}

// A look at a node that carries the condition lists neither all nodes nor, within ten seconds of such a list, all
// NodeClaims. It lists the node's own pods each time, so the condition goes within one look once an ordinary pod is there.
func TestConditionCostsNoListOfTheFleet(t *testing.T) {
	w := world.Begin(t, asks)
	w.Exit = func(*corev1.Pod) int { return 1 }
	nodes := []*corev1.Node{w.Node("a"), w.Node("b"), w.Node("c")}
	l := w.Lead()
	if _, ok := l.Until(time.Minute, func() bool { return required(w, nodes[0]) && required(w, nodes[1]) && required(w, nodes[2]) }); !ok {
		t.Fatal("the conditions are not set")
	}
	l.RunFor(time.Minute)
	look := func() (latest, inMemory []string) {
		l.LiveLists()
		l.Reads = nil
		for _, n := range nodes {
			if err := l.ReconcileRemediation(n); err != nil {
				t.Fatal(err)
			}
		}
		return l.LiveLists()
	}
	for range 3 {
		w.Clock.Advance(time.Minute)
		latest, inMemory := look()
		if len(latest) > 0 || !slices.Equal(inMemory, []string{"PodList", "PodList", "PodList"}) || len(l.Reads) > 0 {
			t.Errorf("a look at three nodes reads nodes %v, lists %v and, from memory, %v", l.Reads, latest, inMemory)
		}
	}
	w.OrdinaryPod(nodes[1])
	if look(); !required(w, nodes[0]) || required(w, nodes[1]) || !required(w, nodes[2]) {
		t.Errorf("after an ordinary pod came to the second: %t %t %t", required(w, nodes[0]), required(w, nodes[1]), required(w, nodes[2]))
	}
}

// The owner of a node that carries the condition is read by its name at each look: a list of all owners from a moment ago
// does not keep the condition on a node whose owner opted out since.
func TestConditionOfAnOwnerThatOptsOut(t *testing.T) {
	w := world.Begin(t, asks)
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Node("n", world.Pooled)
	claim := w.Claim(n)
	w.Patch(n, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":%q,"uid":%q}]}}`, claim.Name, claim.UID))
	l := w.Lead()
	if _, ok := l.Until(time.Minute, func() bool { return required(w, n) }); !ok {
		t.Fatal("the condition is not set")
	}
	l.RunFor(time.Minute)
	l.Remediations.Owners.Find(w.Ctx, n, backends.Latest) // what another node's deletion reads
	l.LiveLists()
	if err := l.ReconcileRemediation(n); err != nil {
		t.Fatal(err)
	}
	if latest, inMemory := l.LiveLists(); !required(w, n) || !slices.Equal(latest, []string{"NodeClaimList"}) || !slices.Equal(inMemory, []string{"PodList"}) {
		t.Errorf("it carries the condition: %t; a look lists %v and, from memory, %v", required(w, n), latest, inMemory)
	}
	claim.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
	w.Must(w.API.Update(w.Ctx, claim))
	if err := l.ReconcileRemediation(n); err != nil || required(w, n) {
		t.Errorf("it still carries the condition after its owner opted out (%v)", err)
	}
}

// memory answers reads of one node and its pods without an API server, so that the test measures only the controller.
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

// A reconcile of a held node looks at no other node. A look at 50,000 takes at least ten times as long as a reconcile, so
// a busy machine does not hide one, and does not look like one either.
func TestHeldNodeInALargeFleet(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	n := w.Exhausted("n", world.Pooled, func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationDoNotDelete: "true"} })
	l := w.Lead()
	l.Drive()
	l.Nodes.View.Cache = memory{Client: w.API}
	held, _ := w.Get(n.Name)
	l.Nodes.View.Cache = memory{Client: w.API, node: held}
	written := l.WriteCount()
	// look returns how long a reconcile takes. It is the least of several means, because other tests run on this machine.
	look := func() time.Duration {
		const batches, looks = 10, 50
		least := time.Hour
		for range batches {
			began := time.Now()
			for i := range looks {
				other := held.DeepCopy() // the fleet changes between any two looks
				other.Name, other.Spec.Unschedulable = "other-1", i%2 == 0
				other.Labels["node-ready/verified"] = fmt.Sprint(i%2 == 0)
				l.Fleet.Observe(l.Nodes.View.Observe(other))
				if _, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name)); err != nil {
					t.Fatal(err)
				}
			}
			least = min(least, time.Since(began)/looks)
		}
		return least
	}
	few := look()
	for i := range 50_000 {
		other := held.DeepCopy()
		other.Name, other.UID = fmt.Sprintf("other-%d", i), held.UID+"x"
		l.Fleet.Observe(l.Nodes.View.Observe(other))
	}
	if many := look(); many > 10*few {
		t.Errorf("a look takes %s, and %s with few nodes", many, few)
	} else {
		t.Logf("a look takes %s, and %s with few nodes", many, few)
	}
	if l.WriteCount() > written {
		t.Errorf("it wrote %v", l.Writes[written:])
	}
}

// A deletion that waits for the API server delays no verification. That includes nodes that wait in the remediation
// queue.
func TestDeletionThatHangs(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	stuck := w.Exhausted("stuck", world.Pooled)
	w.Claim(stuck)
	w.Exhausted("next", world.Pooled)
	l := w.Lead(func(l *world.Leader) { l.Hang = make(chan struct{}) })
	l.Deliver()
	done := make(chan error)
	go func() { done <- l.ReconcileRemediation(stuck) }()
	fresh := w.Node("fresh")
	for range 12 {
		l.Deliver()
		for _, name := range w.NodeNames {
			if _, err := l.Nodes.Reconcile(w.Ctx, world.Request(name)); err != nil {
				t.Error(err)
			}
		}
		w.Kubelets(l)
	}
	if _, f := w.Get(fresh.Name); !f.Labelled || f.Gated {
		t.Errorf("the new node is not released: %+v", f.Record)
	}
	select {
	case err := <-done:
		t.Errorf("the deletion did not hang: %v", err)
	default:
	}
	close(l.Hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !w.Deleting(stuck.Name) {
		t.Error("it is not deleted once the API server answers")
	}
}

// A guard that keeps holding a node is recorded and reported once. A failure that is too old for a deletion is
// confirmed first.
func TestHeldForLong(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"controlProbe": false}}}`)
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Exhausted("n")
	w.OrdinaryPod(n)
	l := w.Lead()
	began := w.Clock.Now()
	for pass := 0; w.Clock.Now().Sub(began) < 65*time.Minute; pass++ {
		if pass > 2000 {
			t.Fatalf("the last writes: %v", l.Writes[len(l.Writes)-20:])
		}
		if changed, wait := l.Step(); !changed {
			w.Clock.Advance(wait)
		}
	}
	r := w.Record(n.Name)
	if r.Held != decide.GuardSparePods || r.Sequence < 8 || r.Sequence > 12 || r.Attempts != 2 {
		t.Errorf("record %+v", r)
	}
	if e := w.EventCount(n.Name, decide.EventHeld) + w.EventCount(n.Name, decide.EventFailed) + w.EventCount(n.Name, decide.EventExhausted); e != 1 {
		t.Errorf("%d events: %v", e, w.Events)
	}
	if attempts := int(r.Sequence) - 2; l.WriteCount() > 8*attempts+3 {
		t.Errorf("%d writes for %d attempts: %v", l.WriteCount(), attempts, l.Writes)
	}
	w.OncePerTransition()
}
