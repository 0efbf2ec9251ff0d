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
	informers "k8s.io/client-go/informers/core/v1"
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
	asked := map[string]bool{}
	for _, name := range v.args {
		asked[name] = true
	}
	handler := func(name func(any) string) cache.ResourceEventHandler {
		on := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if name := name(o); len(asked) == 0 || asked[name] {
				changed.add(name)
			}
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: on, DeleteFunc: on, UpdateFunc: func(_, o any) { on(o) }}
	}
	failed := make(chan error, 2)
	run := func(i cache.SharedIndexInformer, name func(any) string) {
		_ = i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { // it has not been started
			select {
			case failed <- fmt.Errorf("watch: %w", err):
			default:
			}
		})
		_, _ = i.AddEventHandler(handler(name)) // it has not been stopped
		go i.RunWithContext(ctx)
	}
	nodes := informers.NewFilteredNodeInformer(v.cluster.client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = v.selector
		if len(v.args) == 1 {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, v.args[0]).String()
		}
	})
	run(nodes, func(o any) string { return o.(*corev1.Node).Name })
	uid := func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Labels[workerpod.LabelNodeUID]}, nil }
	pods := informers.NewFilteredPodInformer(v.cluster.client, v.cluster.namespace, 0, cache.Indexers{byNode: uid},
		func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{workerpod.LabelComponent: workerpod.Component}.String()
		})
	run(pods, func(o any) string { return o.(*corev1.Pod).Annotations[workerpod.AnnotationNode] })
	for synced := time.NewTicker(20 * time.Millisecond); !nodes.HasSynced() || !pods.HasSynced(); {
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
			if o, ok, _ := nodes.GetStore().GetByKey(name); ok { // a store in memory has no errors
				n := o.(*corev1.Node)
				mine, _ := pods.GetIndexer().ByIndex(byNode, string(n.UID))
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
