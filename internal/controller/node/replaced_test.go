package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// podCache is an informer's cache that holds these pods.
type podCache struct {
	client.Reader
	pods []corev1.Pod
}

func (c *podCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PodList).Items = c.pods
	return nil
}

// reconciler is one on a cache without nodes, with the default configuration.
func reconciler(t *testing.T) (*Reconciler, *podCache) {
	t.Helper()
	cfg := &config.Config{}
	cfg.SetDefaults()
	builder, err := workerpod.NewBuilder(cfg, "ns", "img:1")
	if err != nil {
		t.Fatal(err)
	}
	cache := &podCache{}
	view := &controller.View{Config: cfg, Cache: cache, Builder: builder, Tracker: controller.NewTracker(time.Now, false),
		OwnerTerminating: func(*corev1.Node, marks.Facts) string { return "" }}
	return &Reconciler{View: view, Slots: controller.NewSlots(view), Fleet: controller.NewFleet(view)}, cache
}

// A relist that finds another pod under the name of one that is gone reports both in one update. The controller must
// not wait for the pod that is gone, and it knows the result of that pod's attempt.
func TestPodReplacedUnderItsName(t *testing.T) {
	r, cache := reconciler(t)
	view := r.View
	n := &corev1.Node{}
	n.Name, n.UID = "n", "uid-n"
	n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
	pod := func(uid string) *corev1.Pod {
		p := view.Builder.Verify(workerpod.Target{Name: "n", UID: "uid-n", Gated: true}, view.Config.For(nil), 1, config.SchedulingDirect)
		p.UID, p.Status.Phase = types.UID(uid), corev1.PodPending
		return p
	}
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	first, second := pod("first"), pod("second")
	handler := r.podHandler()
	handler.Create(t.Context(), event.CreateEvent{Object: first}, q)
	cache.pods = []corev1.Pod{*second}
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: first, ObjectNew: second}, q)
	in, err := view.Gather(t.Context(), n)
	if err != nil || len(in.Pods) != 1 || in.Pods[0].UID != "second" || in.Vanished.Number != 1 {
		t.Errorf("%v, pods %v, vanished %d", err, in.Pods, in.Vanished.Number)
	}
	handler.Delete(t.Context(), event.DeleteEvent{Object: second}, q)
	cache.pods = nil
	if _, err := view.Gather(t.Context(), n); errors.Is(err, controller.ErrNotShown) {
		t.Error("a pod that is gone is waited for")
	}
}

// A gate that opens and closes between two reconciles of its node is noticed.
func TestAGateThatOpensForAMomentIsSeen(t *testing.T) {
	r, _ := reconciler(t)
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	gated := &corev1.Node{}
	gated.Name, gated.UID = "n", "uid-n"
	gated.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
	open := gated.DeepCopy()
	open.Spec.Taints = nil
	handler := r.nodeHandler()
	opened := func() bool {
		in, err := r.View.Gather(t.Context(), gated)
		if err != nil {
			t.Fatal(err)
		}
		return !in.GateOpenSeen.IsZero()
	}
	handler.Create(t.Context(), event.CreateEvent{Object: gated}, q)
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: gated, ObjectNew: gated}, q)
	if opened() {
		t.Error("it did not open")
	}
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: gated, ObjectNew: open}, q)
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: open, ObjectNew: gated}, q)
	if !opened() {
		t.Error("it opened")
	}
	gated = gated.DeepCopy()
	gated.UID = "another"
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: open, ObjectNew: gated}, q)
	if opened() {
		t.Error("the gate of an earlier node of the name opened")
	}
}

// A node that was replaced under its name by an identical one is reconciled.
func TestNodeReplacedUnderItsName(t *testing.T) {
	r := Reconciler{View: &controller.View{Config: &config.Config{}}}
	before, after := &corev1.Node{}, &corev1.Node{}
	before.UID, before.ResourceVersion, after.UID, after.ResourceVersion = "first", "1", "second", "2"
	if !r.nodeChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("it is not looked at")
	}
}
