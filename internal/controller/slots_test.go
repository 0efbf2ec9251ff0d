package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// slotted is an account with a limit.
func slotted(t *testing.T, limit int32) (*Slots, *View, *cache, *clock) {
	v, c, at := view(t, func(c *config.Config) { c.Reconciliation.MaxConcurrentVerifications = limit })
	return NewSlots(v), v, c, at
}

func take(t *testing.T, s *Slots, name string) bool {
	t.Helper()
	ok, err := s.Take(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// seen is what the reconciler does with what a watch has shown.
func seen(s *Slots, p *corev1.Pod) {
	s.SeePod(s.view.Tracker.SeePod(p))
	s.view.Tracker.Shown(p.Name)
}

// creates is what the reconciler does with the slot of a node.
func creates(s *Slots, n string, p *corev1.Pod) {
	s.view.Tracker.Creating(p)
	s.GiveBack(n)
}

func TestSlots(t *testing.T) {
	s, v, _, at := slotted(t, 2)
	p1, p2 := worker(v, node("n1"), 1), worker(v, node("n2"), 1)
	if !take(t, s, "n1") || !take(t, s, "n2") || take(t, s, "n3") || take(t, s, "n4") {
		t.Fatal("two of four nodes have a slot")
	}
	if !take(t, s, "n1") {
		t.Error("the same node needs a second slot")
	}
	creates(s, "n1", p1)
	creates(s, "n2", p2)
	seen(s, p1)
	if take(t, s, "n3") {
		t.Error("a pod lost its slot as it came into the cache")
	}
	running(p1)
	if seen(s, p1); s.Next() != nil {
		t.Error("a pod that runs gave its slot away")
	}
	exited(1)(p1)
	seen(s, p1)
	if got := s.Next(); !slices.Equal(got, []string{"n3"}) {
		t.Errorf("the next node is %v, want the first that waited, once", got)
	}
	if !take(t, s, "n3") {
		t.Error("no slot after a pod ended")
	}
	s.Forget("n4")
	v.Tracker.Shown(p2.Name)
	s.PodGone(p2.Name)
	if got := s.Next(); got != nil {
		t.Errorf("a node that is gone is woken: %v", got)
	}
	if !take(t, s, "n5") || take(t, s, "n6") {
		t.Error("of two slots one is taken")
	}
	creates(s, "n5", worker(v, node("n5"), 1))
	at.pass(unseenFor + 1)
	if !take(t, s, "n6") || take(t, s, "n7") {
		t.Error("a pod that never reached the cache keeps its slot for as long as we live")
	}
}

// An API server that takes its time over a pod must not make room for another.
func TestAReservationLastsUntilThePodIsCreated(t *testing.T) {
	s, v, _, at := slotted(t, 1)
	if !take(t, s, "n1") {
		t.Fatal("no slot")
	}
	at.pass(time.Minute)
	if take(t, s, "n2") {
		t.Error("another node has it while the pod is being created")
	}
	creates(s, "n1", worker(v, node("n1"), 1))
	if at.pass(unseenFor); take(t, s, "n2") {
		t.Error("another node has it before the pod can be in the cache")
	}
	if at.pass(1); !take(t, s, "n2") {
		t.Error("a pod that never reached the cache keeps its slot")
	}
}

// What occupies a node has a slot, on its way out and with a result too.
func TestASlotIsTakenForAsLongAsAPodOccupies(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"pending":             func(*corev1.Pod) {},
		"running":             running,
		"no image":            imageMissing,
		"in its grace period": func(p *corev1.Pod) { running(p); p.DeletionTimestamp = &p.CreationTimestamp },
	} {
		s, v, _, _ := slotted(t, 1)
		p := worker(v, node("n1"), 1)
		change(p)
		if seen(s, p); take(t, s, "n2") {
			t.Errorf("%s: another node has its slot", name)
		}
		exited(0)(p)
		if seen(s, p); !take(t, s, "n2") {
			t.Errorf("%s, then ended: no slot", name)
		}
	}
}

// ready is a node whose condition Ready has the status.
func ready(name string, status corev1.ConditionStatus) *corev1.Node {
	return node(name, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	})
}

// Workers on nodes whose kubelet is gone must not hold up the rest. They count again when it is back.
func TestAPodOnALostNodeHoldsNoSlot(t *testing.T) {
	s, v, _, _ := slotted(t, 2)
	for _, name := range []string{"dead1", "dead2"} {
		v.Observe(ready(name, corev1.ConditionTrue))
		seen(s, worker(v, node(name), 1, running))
	}
	if take(t, s, "n") {
		t.Fatal("there is no slot")
	}
	for _, name := range []string{"dead1", "dead2"} {
		v.Observe(ready(name, corev1.ConditionUnknown))
	}
	if got := s.Next(); !slices.Equal(got, []string{"n"}) || !take(t, s, "n") || !take(t, s, "m") || take(t, s, "o") {
		t.Errorf("woken: %v", got)
	}
	s.GiveBack("n")
	s.GiveBack("m")
	v.Observe(ready("dead1", corev1.ConditionTrue))
	v.Observe(ready("dead2", corev1.ConditionFalse))
	if take(t, s, "n") {
		t.Error("nodes that are back have no slots")
	}
}

// What should have ended long ago may never end.
func TestAPodThatDoesNotEndHoldsNoSlot(t *testing.T) {
	s, v, _, at := slotted(t, 1)
	p := worker(v, node("n1"), 1, running)
	seen(s, p)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &p.CreationTimestamp, ptr.To[int64](5)
	seen(s, p)
	if at.pass(65*time.Second - 1); take(t, s, "n2") {
		t.Error("a pod that still may end has no slot")
	}
	if at.pass(1); !slices.Equal(s.Next(), []string{"n2"}) || !take(t, s, "n2") {
		t.Error("a pod that does not end keeps its slot")
	}
}

// A leader that takes over sees at once which nodes are lost, and grants a terminating pod its time.
func TestSlotsOfASuccessor(t *testing.T) {
	s, v, c, at := slotted(t, 2)
	c.nodes = []corev1.Node{*ready("dead", corev1.ConditionUnknown), *ready("n1", corev1.ConditionTrue)}
	c.pods = []corev1.Pod{*worker(v, node("dead"), 1, running), *worker(v, node("n1"), 1, running, func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at.at.Add(-time.Hour)}, ptr.To[int64](5)
	})}
	if !take(t, s, "n2") || take(t, s, "n3") {
		t.Error("of two slots one is taken")
	}
	if at.pass(65 * time.Second); !take(t, s, "n3") {
		t.Error("a pod that does not end keeps its slot")
	}
}

// A leader that takes over counts the pods of before its time, and only ours.
func TestSlotsAreSeededOnce(t *testing.T) {
	s, v, c, _ := slotted(t, 2)
	foreign := worker(v, node("x"), 1)
	foreign.OwnerReferences = nil
	c.pods = []corev1.Pod{*worker(v, node("n1"), 1, running), *worker(v, node("n2"), 1, exited(1)), *foreign}
	if !take(t, s, "n3") || take(t, s, "n4") {
		t.Error("of two slots one is taken by the worker that runs")
	}
	if c.lists != 1 {
		t.Errorf("%d lists", c.lists)
	}
}

func TestASlotIsGivenBack(t *testing.T) {
	s, _, _, _ := slotted(t, 1)
	if !take(t, s, "n1") || take(t, s, "n2") {
		t.Fatal("one of two nodes has a slot")
	}
	s.GiveBack("n1")
	if got := s.Next(); !slices.Equal(got, []string{"n2"}) || !take(t, s, "n2") {
		t.Errorf("then %v", got)
	}
}

// Without a limit nothing is counted, and nobody waits.
func TestNoLimit(t *testing.T) {
	s, v, c, _ := slotted(t, 0)
	for range 100 {
		if !take(t, s, "n") {
			t.Fatal("a limit of 0 is none")
		}
	}
	seen(s, worker(v, node("n"), 1))
	if s.Next() != nil || c.lists != 0 || len(s.occupying) != 0 {
		t.Error("without a limit there is nothing to account for")
	}
}

// Nodes are woken in the order in which they began to wait, as many as there are slots.
func TestNodesAreWokenInOrder(t *testing.T) {
	s, v, _, _ := slotted(t, 2)
	p1, p2 := worker(v, node("p1"), 1), worker(v, node("p2"), 1)
	seen(s, p1)
	seen(s, p2)
	for _, n := range []string{"a", "b", "c", "a"} {
		if take(t, s, n) {
			t.Fatal("there is no slot")
		}
	}
	s.PodGone(p1.Name)
	s.PodGone(p2.Name)
	if got := s.Next(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("woken: %v", got)
	}
	if got := s.Next(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("a and b took none: %v", got)
	}
}
