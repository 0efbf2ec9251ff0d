package prerequisite

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// topic is something whose changes can end a node's wait.
type topic struct {
	feed *feed
	// index and value are those of an index of the feed, for the objects under that value.
	index, value string
}

// wakes wakes the nodes that wait for a topic. It is a hint: a node that was not woken is still looked at by the
// reconciler's interval.
type wakes struct {
	queue workqueue.TypedInterface[string] // collapses repeated wakes of one node, and never blocks who adds
	out   chan event.GenericEvent

	mu     sync.Mutex
	topics map[string][]topic // by node
	nodes  map[topic]map[string]struct{}
}

func newWakes() *wakes {
	return &wakes{queue: workqueue.NewTyped[string](), out: make(chan event.GenericEvent), topics: map[string][]topic{}, nodes: map[topic]map[string]struct{}{}}
}

// await replaces the topics that a node waits for; without any it no longer waits.
func (w *wakes) await(node string, topics []topic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.topics[node] {
		delete(w.nodes[t], node)
		if len(w.nodes[t]) == 0 {
			delete(w.nodes, t)
		}
	}
	if len(topics) == 0 {
		delete(w.topics, node)
		return
	}
	w.topics[node] = topics
	for _, t := range topics {
		if w.nodes[t] == nil {
			w.nodes[t] = map[string]struct{}{}
		}
		w.nodes[t][node] = struct{}{}
	}
}

// publish wakes the nodes that wait for one of the topics, each once.
func (w *wakes) publish(topics ...topic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	woken := map[string]struct{}{} // a node may already be taken from the queue when its next topic is looked at
	for _, t := range topics {
		for node := range w.nodes[t] {
			if _, ok := woken[node]; !ok {
				woken[node] = struct{}{}
				w.queue.Add(node)
			}
		}
	}
}

// deliver hands the woken nodes to the controller until ctx is done.
func (w *wakes) deliver(ctx context.Context) {
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
