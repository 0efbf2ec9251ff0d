package node

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// A device plugin that registers late ends a wait for what is allocatable, without a change of anything else.
func TestAllocatableWakesItsNode(t *testing.T) {
	offers := func(version, gpus string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse(gpus)}}}
		n.ResourceVersion = version
		return n
	}
	r := Reconciler{Versions: controller.NewVersions(time.Now, nil), View: &controller.View{Config: &config.Config{}}}
	for _, test := range []struct {
		old, now *corev1.Node
		want     bool
	}{
		{offers("1", "0"), offers("2", "1"), true},
		{offers("1", "1"), offers("2", "1"), false},
	} {
		if got := r.nodeChanges().Update(event.UpdateEvent{ObjectOld: test.old, ObjectNew: test.now}); got != test.want {
			t.Errorf("%v to %v: woken %v", test.old.Status.Allocatable, test.now.Status.Allocatable, got)
		}
	}
}

// In an outage nodes that come must not queue behind those that fail, whatever enqueues those.
func TestNodesThatFailGoLast(t *testing.T) {
	gated := marks.Facts{Gated: true}
	failed, passed := gated, gated
	failed.Record.LastOutcome, passed.Record.LastOutcome = attempt.Failed, attempt.Passed
	unclear := gated
	unclear.Record.LastOutcome = attempt.Inconclusive
	for name, test := range map[string]struct {
		facts marks.Facts
		want  int
	}{
		"new": {gated, 0}, "passed before, gated again": {passed, 0}, "failed": {failed, failing}, "inconclusive": {unclear, failing}, "released": {marks.Facts{}, tidy},
	} {
		if got := urgency(test.facts); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}

	result := func(o attempt.Outcome) *attempt.Result { return &attempt.Result{Outcome: o} }
	for name, test := range map[string]struct {
		pod  workerpod.Observation
		want int
	}{
		"passed":           {workerpod.Observation{Attempt: attempt.Attempt{Result: result(attempt.Passed)}}, release},
		"failed":           {workerpod.Observation{Attempt: attempt.Attempt{Result: result(attempt.Failed)}}, failing},
		"cannot be pulled": {workerpod.Observation{Attempt: attempt.Attempt{Result: result(attempt.Inconclusive)}, Occupies: true}, failing},
		"vanished":         {workerpod.Observation{}, failing},
		"began":            {workerpod.Observation{Occupies: true}, tidy},
	} {
		q := priorityqueue.New[reconcile.Request]("test")
		(&Reconciler{}).enqueueNode(test.pod, q)
		if _, got, _ := q.GetWithPriority(); got != test.want {
			t.Errorf("a pod that %s: %d, want %d", name, got, test.want)
		}
		q.ShutDown()
	}
}

// Each node is enqueued once in ten intervals, evenly: none is forgotten where a watch has missed it, and none has a timer.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &config.Config{}
		cfg.SetDefaults() // intervals of 30 s
		all := []string{}
		for i := range 600 {
			all = append(all, strconv.Itoa(i))
		}
		var mu sync.Mutex
		names := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return all
		}
		r := Reconciler{View: &controller.View{Config: cfg}, Names: names}
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		if err := r.queue.set(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.sweep(ctx) }()
		const round = 300 * time.Second
		time.Sleep(round + time.Millisecond) // the start has enqueued all nodes
		for rest, want := 2, []int{300, 600}; rest > 0; rest-- {
			time.Sleep(round / 2)
			if got := q.Len(); got != want[2-rest] {
				t.Errorf("%d nodes are enqueued, want %d", got, want[2-rest])
			}
		}
		for q.Len() > 0 {
			req, _ := q.Get()
			q.Done(req)
		}
		mu.Lock()
		all = append(all, "late")
		mu.Unlock()
		time.Sleep(2 * round)
		if got := q.Len(); got != 601 {
			t.Errorf("%d nodes are enqueued in a later round, want 601", got)
		}
	})
}
