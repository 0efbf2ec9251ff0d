package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
