package watch

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// dependency is something whose changes can end a node's wait.
type dependency struct {
	on *informer
	// index and value are those of an index of the informer, for the objects under that value.
	index, value string
}

// waiting enqueues the nodes that wait for a dependency. It is a hint: a node that was not enqueued is still looked at
// by the reconciler's interval.
type waiting struct {
	queue workqueue.TypedInterface[string] // enqueues a node once, and never blocks who adds
	out   chan event.GenericEvent

	mu    sync.Mutex
	on    map[string]map[dependency]struct{} // by node
	nodes map[dependency]map[string]struct{}
}

func newWaiting() *waiting {
	return &waiting{queue: workqueue.NewTyped[string](), out: make(chan event.GenericEvent),
		on: map[string]map[dependency]struct{}{}, nodes: map[dependency]map[string]struct{}{}}
}

// add has a node wait for a further dependency.
func (w *waiting) add(node string, d dependency) {
	w.mu.Lock()
	defer w.mu.Unlock()
	insert(w.on, node, d)
	insert(w.nodes, d, node)
}

// keep has a node wait for those of its dependencies alone; without any it no longer waits.
func (w *waiting) keep(node string, those map[dependency]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := range w.on[node] {
		if _, ok := those[d]; ok {
			continue
		}
		delete(w.nodes[d], node)
		if len(w.nodes[d]) == 0 {
			delete(w.nodes, d)
		}
	}
	w.on[node] = those
	if len(those) == 0 {
		delete(w.on, node)
	}
}

func insert[K, V comparable](sets map[K]map[V]struct{}, key K, value V) {
	if sets[key] == nil {
		sets[key] = map[V]struct{}{}
	}
	sets[key][value] = struct{}{}
}

// changed enqueues the nodes that wait for one of the dependencies, each once.
func (w *waiting) changed(dependencies ...dependency) {
	w.mu.Lock()
	defer w.mu.Unlock()
	nodes := map[string]struct{}{} // one that was added twice could be taken from the queue in between
	for _, d := range dependencies {
		maps.Copy(nodes, w.nodes[d])
	}
	for node := range nodes {
		w.queue.Add(node)
	}
}

// deliver hands the nodes to the controller until ctx is done.
func (w *waiting) deliver(ctx context.Context) {
	context.AfterFunc(ctx, w.queue.ShutDown)
	for {
		name, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		select {
		case w.out <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		case <-ctx.Done():
		}
		w.queue.Done(name)
	}
}
