package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// slotted is Slots with a limit.
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

// shows is a pod that the cache shows, and its event.
func shows(s *Slots, c *cache, p *corev1.Pod) {
	c.show(p)
	s.view.Tracker.ObservePod(p)
}

// creates is a pod that is created with a node's slot.
func creates(s *Slots, n string, p *corev1.Pod) {
	s.Asks(n, p)
	s.view.Tracker.Answered(p, nil)
	s.GiveBack(n)
}

// A slot is that of a node, then that of the pod that was asked for, then that of the pod in the cache.
func TestSlots(t *testing.T) {
	s, v, c, _ := slotted(t, 2)
	p1, p2 := worker(v, node("n1"), 1), worker(v, node("n2"), 1)
	if !take(t, s, "n1") || !take(t, s, "n2") || take(t, s, "n3") || take(t, s, "n4") {
		t.Fatal("two of four nodes have a slot")
	}
	if !take(t, s, "n1") {
		t.Error("the same node needs a second slot")
	}
	creates(s, "n1", p1)
	creates(s, "n2", p2)
	c.show(p1)
	if take(t, s, "n3") {
		t.Error("a pod lost its slot as it came into the cache")
	}
	shows(s, c, p1)
	if take(t, s, "n3") {
		t.Error("a pod lost its slot as its event came")
	}
	running(p1)
	if shows(s, c, p1); s.Next(t.Context()) != nil {
		t.Error("a pod that runs gave its slot away")
	}
	exited(1)(p1)
	shows(s, c, p1)
	if got := s.Next(t.Context()); !slices.Equal(got, []string{"n3"}) {
		t.Errorf("the next node is %v, want the first that waited, once", got)
	}
	if !take(t, s, "n3") {
		t.Error("no slot after a pod ended")
	}
	s.Forget("n4")
	if got := s.Next(t.Context()); got != nil {
		t.Errorf("a node that is gone is woken: %v", got)
	}
	if v.Tracker.NodeGone("n2"); !take(t, s, "n5") || take(t, s, "n6") {
		t.Error("the unshown pod of a node that is gone keeps its slot")
	}
}

// Every pod that occupies a node has a slot, also if it is terminating or has a result.
func TestASlotIsTakenForAsLongAsAPodOccupies(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"pending":             func(*corev1.Pod) {},
		"running":             running,
		"no image":            imageMissing,
		"in its grace period": func(p *corev1.Pod) { running(p); p.DeletionTimestamp = &p.CreationTimestamp },
	} {
		s, v, c, _ := slotted(t, 1)
		p := worker(v, node("n1"), 1)
		change(p)
		if shows(s, c, p); take(t, s, "n2") {
			t.Errorf("%s: another node has its slot", name)
		}
		exited(0)(p)
		if shows(s, c, p); !take(t, s, "n2") {
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

// Workers on nodes whose kubelet is gone must not delay the other nodes. They count again when the kubelet is back.
func TestAPodOnALostNodeHoldsNoSlot(t *testing.T) {
	s, v, c, _ := slotted(t, 2)
	for _, name := range []string{"dead1", "dead2"} {
		v.Observe(ready(name, corev1.ConditionTrue))
		shows(s, c, worker(v, node(name), 1, running))
	}
	if take(t, s, "n") {
		t.Fatal("there is no slot")
	}
	for _, name := range []string{"dead1", "dead2"} {
		v.Observe(ready(name, corev1.ConditionUnknown))
	}
	if got := s.Next(t.Context()); !slices.Equal(got, []string{"n"}) || !take(t, s, "n") || !take(t, s, "m") || take(t, s, "o") {
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

// A pod that should have ended long ago may never end.
func TestAPodThatDoesNotEndHoldsNoSlot(t *testing.T) {
	s, v, c, at := slotted(t, 1)
	p := worker(v, node("n1"), 1, running)
	shows(s, c, p)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &p.CreationTimestamp, ptr.To[int64](5)
	shows(s, c, p)
	if at.pass(65*time.Second - 1); take(t, s, "n2") {
		t.Error("a pod that still may end has no slot")
	}
	if at.pass(1); !slices.Equal(s.Next(t.Context()), []string{"n2"}) || !take(t, s, "n2") {
		t.Error("a pod that does not end keeps its slot")
	}
}

// In the minute before a pod that does not end loses its slot, the controller reports which pod holds it, and why.
func TestOverdueSlots(t *testing.T) {
	s, v, c, at := slotted(t, 2)
	ends, refused := worker(v, node("n1"), 1, running), worker(v, node("n2"), 1, imageMissing)
	shows(s, c, ends)
	shows(s, c, refused)
	ends.DeletionTimestamp, ends.DeletionGracePeriodSeconds = &ends.CreationTimestamp, ptr.To[int64](5)
	shows(s, c, ends)
	v.Tracker.Refused(of("n2", string(node("n2").UID)), RefusedEnd, "pods is forbidden")
	if at.pass(5*time.Second - 1); take(t, s, "n3") || len(s.PastEnd()) > 0 {
		t.Errorf("in their grace period: %+v", s.PastEnd())
	}
	at.pass(1)
	if take(t, s, "n3") {
		t.Fatal("there is no slot")
	}
	got := s.PastEnd()
	if len(got) != 2 || got[0].Pod == got[1].Pod {
		t.Fatalf("overdue: %+v", got)
	}
	for _, h := range got {
		if h.Until.Sub(h.Due) != time.Minute || h.Terminating != (h.Node == "n1") || (h.Refused != "") != (h.Node == "n2") {
			t.Errorf("%+v", h)
		}
	}
	if at.pass(time.Minute); !take(t, s, "n3") || len(s.PastEnd()) > 0 {
		t.Errorf("without slots: %+v", s.PastEnd())
	}
}

// If the API server refuses to delete a pod whose time is over, other nodes need not wait for that pod.
func TestAPodThatCannotBeDeletedHoldsNoSlot(t *testing.T) {
	const slack = 65 * time.Second // the grace period and a minute
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		after  func(config.Effective) time.Duration
	}{
		"it never started":       {func(*corev1.Pod) {}, func(p config.Effective) time.Duration { return time.Duration(p.StartTimeoutSeconds) * time.Second }},
		"it runs past its time":  {running, func(p config.Effective) time.Duration { return time.Duration(p.TimeoutSeconds) * time.Second }},
		"its image never comes":  {imageMissing, func(config.Effective) time.Duration { return 0 }},
		"it has no time to keep": {func(p *corev1.Pod) { running(p); delete(p.Annotations, workerpod.AnnotationTimeout) }, nil},
	} {
		s, v, c, at := slotted(t, 1)
		p := worker(v, node("n1"), 1)
		tc.change(p)
		shows(s, c, p)
		if tc.after == nil {
			if at.pass(1000 * time.Hour); take(t, s, "n2") {
				t.Errorf("%s: its slot is given away", name)
			}
			continue
		}
		if at.pass(tc.after(v.Config.For(nil)) + slack - 1); take(t, s, "n2") {
			t.Errorf("%s: it may still be deleted and has no slot", name)
		}
		if at.pass(1); !slices.Equal(s.Next(t.Context()), []string{"n2"}) || !take(t, s, "n2") {
			t.Errorf("%s: it keeps its slot", name)
		}
	}
}

// A new leader counts the pods from before its term, and only ours. The events that it has received by then show which
// nodes are lost. A terminating pod gets its time.
func TestSlotsOfASuccessor(t *testing.T) {
	s, v, c, at := slotted(t, 2)
	foreign := worker(v, node("x"), 1)
	foreign.OwnerReferences = nil
	c.pods = []corev1.Pod{*worker(v, node("dead"), 1, running), *worker(v, node("n1"), 1, running, func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at.at.Add(-time.Hour)}, ptr.To[int64](5)
	}), *worker(v, node("n9"), 2, exited(1)), *foreign}
	v.Observe(ready("dead", corev1.ConditionUnknown))
	for i := range c.pods[:2] {
		v.Tracker.ObservePod(&c.pods[i])
	}
	if !take(t, s, "n2") || take(t, s, "n3") {
		t.Error("of two slots one is taken")
	}
	if at.pass(65 * time.Second); !take(t, s, "n3") {
		t.Error("a pod that does not end keeps its slot")
	}
}

func TestASlotIsGivenBack(t *testing.T) {
	s, _, _, _ := slotted(t, 1)
	if !take(t, s, "n1") || take(t, s, "n2") {
		t.Fatal("one of two nodes has a slot")
	}
	s.GiveBack("n1")
	if got := s.Next(t.Context()); !slices.Equal(got, []string{"n2"}) || !take(t, s, "n2") {
		t.Errorf("then %v", got)
	}
}

// Without a limit, nothing is counted and no node waits.
func TestNoLimit(t *testing.T) {
	s, v, c, _ := slotted(t, 0)
	for range 100 {
		if !take(t, s, "n") {
			t.Fatal("a limit of 0 is none")
		}
	}
	shows(s, c, worker(v, node("n"), 1))
	if s.Next(t.Context()) != nil || c.lists != 0 {
		t.Error("without a limit there is nothing to count")
	}
}

// Nodes are enqueued in the order in which they began to wait, as many as there are slots.
func TestNodesAreWokenInOrder(t *testing.T) {
	s, v, c, _ := slotted(t, 2)
	p1, p2 := worker(v, node("p1"), 1), worker(v, node("p2"), 1)
	shows(s, c, p1)
	shows(s, c, p2)
	for _, n := range []string{"a", "b", "c", "a"} {
		if take(t, s, n) {
			t.Fatal("there is no slot")
		}
	}
	c.hide(p1)
	c.hide(p2)
	if got := s.Next(t.Context()); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("woken: %v", got)
	}
	if got := s.Next(t.Context()); !slices.Equal(got, []string{"c"}) {
		t.Errorf("a and b took none: %v", got)
	}
}
