package kubectlplugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// byNode indexes worker pods by their node's UID.
const byNode = "node"

// changes are the names of nodes about which something changed, each once.
type changes struct {
	mu    sync.Mutex
	names map[string]bool
	some  chan struct{} // holds one
}

func (c *changes) add(name string) {
	if name == "" {
		return
	}
	c.mu.Lock()
	c.names[name] = true
	c.mu.Unlock()
	select {
	case c.some <- struct{}{}:
	default:
	}
}

func (c *changes) take() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = map[string]bool{}
	return names
}

// follow calls each with every node that was asked for, and again whenever it or its workers changed; with nil when it is gone.
// It ends when each returns false, or with ctx.
func (v *invocation) follow(ctx context.Context, each func(name string, s *subject) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := &changes{names: map[string]bool{}, some: make(chan struct{}, 1)}
	options := metav1.ListOptions{LabelSelector: v.selector}
	if len(v.args) == 1 {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", v.args[0]).String()
	}
	asked := map[string]bool{}
	for _, name := range v.args {
		asked[name] = true
	}
	handler := func(name func(any) string) cache.ResourceEventHandler {
		on := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			changed.add(name(o))
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: on, DeleteFunc: on, UpdateFunc: func(_, o any) { on(o) }}
	}
	failed := make(chan error, 2)
	core := v.cluster.core
	nodes, nodeInformer := v.informer(ctx, &corev1.Node{}, options, cache.Indexers{}, failed,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Nodes().List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.Nodes().Watch(ctx, o)
		},
		handler(func(o any) string {
			if n, ok := o.(*corev1.Node); ok && (len(asked) == 0 || asked[n.Name]) {
				return n.Name
			}
			return ""
		}))
	uid := func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Labels[workerpod.LabelNodeUID]}, nil }
	pods, podInformer := v.informer(ctx, &corev1.Pod{}, metav1.ListOptions{LabelSelector: labels.Set{workerpod.LabelComponent: workerpod.Component}.String()},
		cache.Indexers{byNode: uid}, failed,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Pods(v.cluster.namespace).List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.Pods(v.cluster.namespace).Watch(ctx, o)
		},
		handler(func(o any) string {
			p, ok := o.(*corev1.Pod)
			if name := p.Annotations[workerpod.AnnotationNode]; ok && (len(asked) == 0 || asked[name]) {
				return name
			}
			return ""
		}))
	for synced := time.NewTicker(20 * time.Millisecond); !nodeInformer.HasSynced() || !podInformer.HasSynced(); {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-synced.C:
		}
	}
	known := map[string]bool{}
	for {
		v.now = v.time.now()
		for name := range changed.take() {
			var s *subject
			if o, ok, _ := nodes.GetByKey(name); ok { // a store in memory has no errors
				n := o.(*corev1.Node)
				mine, _ := pods.ByIndex(byNode, string(n.UID))
				list := make([]corev1.Pod, 0, len(mine))
				for _, p := range mine {
					list = append(list, *p.(*corev1.Pod))
				}
				observed := observe(v.cluster.config, n, list)
				s = &observed
			} else if !known[name] {
				continue // a worker's, of a node that is gone or not selected
			}
			known[name] = s != nil
			if !each(name, s) {
				return nil
			}
		}
		select {
		case <-changed.some:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// informer lists and watches. What the API server refuses comes as an error, once.
func (v *invocation) informer(ctx context.Context, of runtime.Object, options metav1.ListOptions, indexers cache.Indexers, failed chan<- error,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), watches func(context.Context, metav1.ListOptions) (watch.Interface, error),
	handler cache.ResourceEventHandler) (cache.Indexer, cache.SharedIndexInformer) {
	with := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = options.LabelSelector, options.FieldSelector
		return o
	}
	i := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, with(o)) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return watches(ctx, with(o))
		},
	}, of, 0, indexers)
	_ = i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { // it has not been started
		select {
		case failed <- fmt.Errorf("watch: %w", err):
		default:
		}
	})
	_, _ = i.AddEventHandler(handler) // it has not been stopped
	go i.RunWithContext(ctx)
	return i.GetIndexer(), i
}
