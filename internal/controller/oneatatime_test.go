package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A node is taken if it is new, replaces another one under its name, or has other marks. A change of its status alone
// is ignored.
func TestChangedNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*corev1.Node)
		concerned bool
		want      bool
	}{
		"nothing":           {func(*corev1.Node) {}, true, false},
		"its status":        {func(n *corev1.Node) { n.Status.Conditions = nil }, true, false},
		"its taints":        {func(n *corev1.Node) { n.Spec.Taints = nil }, true, true},
		"its labels":        {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true, true},
		"its annotations":   {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, true, true},
		"another, the same": {func(n *corev1.Node) { n.UID = "another" }, true, true},
		"none of ours":      {func(n *corev1.Node) { n.UID, n.Spec.Taints = "another", nil }, false, false},
	} {
		old, now := node("n"), node("n")
		old.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		now.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		tc.change(now)
		p := changed(func(n *corev1.Node) bool { return tc.concerned && n == now })
		if got := p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != tc.want {
			t.Errorf("%s: taken %t", name, got)
		}
		if got := p.Create(event.CreateEvent{Object: now}); got != tc.concerned {
			t.Errorf("%s, new: taken %t", name, got)
		}
		if p.Delete(event.DeleteEvent{Object: now}) {
			t.Errorf("%s: taken once it is gone", name)
		}
	}
}

// TestAStopIsNoError checks nodes that wait for a rate limit, or for the API server, when the controller stops: an error
// would be a line of the log for each.
func TestAStopIsNoError(t *testing.T) {
	broken := errors.New("the API server is broken")
	limit := flowcontrol.NewTokenBucketRateLimiter(0.01, 1)
	limit.Accept()
	for name, c := range map[string]struct {
		stops     bool
		reconcile func(context.Context) error
		want      error
	}{
		"waits for the limit": {true, limit.Wait, nil},
		"writes": {true, func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(broken, ctx.Err())
		}, nil},
		"does not stop": {false, func(context.Context) error { return broken }, broken},
		"does not stop, a request was cancelled": {false, func(context.Context) error { return context.Canceled },
			context.Canceled},
	} {
		ctx, stop := context.WithCancel(t.Context())
		if c.stops {
			time.AfterFunc(10*time.Millisecond, stop)
		}
		r := untilStop(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, c.reconcile(ctx)
		}))
		if _, err := r.Reconcile(ctx, reconcile.Request{}); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v", name, err)
		}
		stop()
	}
}
