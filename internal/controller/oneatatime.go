package controller

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// OneAtATime registers a reconciler with a queue of its own, from which it takes one node after the other. A node is
// enqueued if it concerns the reconciler and is new to this process, was replaced under its name, or had its marks
// changed. After an error it is taken again in 100 milliseconds, and in 30 seconds at the latest.
func OneAtATime(mgr ctrl.Manager, name string, concerns func(*corev1.Node) bool, r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(changed(concerns))).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				100*time.Millisecond, 30*time.Second),
		}).
		Complete(untilStop(r))
}

// untilStop is the reconciler without the errors of the controller's stop, such as a wait for a rate limit that ends.
// Each node in the queue would have one, which is logged.
func untilStop(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if ctx.Err() != nil {
			return reconcile.Result{}, nil //nolint:nilerr // nothing is reconciled any more
		}
		return result, err
	})
}

// changed lets a node through if it concerns the reconciler and is new, replaces another node, or has other taints,
// labels or annotations than before.
func changed(concerns func(*corev1.Node) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return concerns(e.Object.(*corev1.Node)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			other := old.UID != now.UID || !equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints) ||
				!maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations)
			return other && concerns(now)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
