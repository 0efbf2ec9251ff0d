package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kube-node-ready/kube-node-ready/internal/controller"
)

// A device plugin that registers late ends a wait for what is allocatable, without a change of anything else.
func TestAllocatableWakesItsNode(t *testing.T) {
	offers := func(version, gpus string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse(gpus)}}}
		n.ResourceVersion = version
		return n
	}
	r := Reconciler{Versions: controller.NewVersions(time.Now)}
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
