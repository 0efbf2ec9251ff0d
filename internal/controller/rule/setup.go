package rule

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Setup registers the room with the manager.
func (r *Room) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("rule").
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.queue.Store(&q)
			return nil
		})).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: 1,
			LogConstructor: func(req *reconcile.Request) logr.Logger {
				if req == nil {
					return mgr.GetLogger()
				}
				return mgr.GetLogger().WithValues("rule", req.Name)
			},
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}

// Wake has the room look at a rule. It never blocks.
func (r *Room) Wake(name string) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}
