package remediation

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Consider puts a node into the queue, only once for any number of calls.
func (r *Reconciler) Consider(name string) { r.queue.add(name) }

// intake is the reconciler's queue. It keeps what is added before the queue exists, because the node reconciler may run
// first, and nothing asks again soon for a node that is held. The zero value is ready for use.
type intake struct {
	mu    sync.Mutex
	queue queue
	early []string
}

func (i *intake) set(_ context.Context, q queue) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.queue = q
	for _, name := range i.early {
		q.Add(requestFor(name))
	}
	i.early = nil
	return nil
}

func (i *intake) add(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queue == nil {
		i.early = append(i.early, name)
		return
	}
	i.queue.Add(requestFor(name))
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
