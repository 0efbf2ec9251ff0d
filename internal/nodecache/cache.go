package nodecache

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keep is what the cache keeps of a Node in addition to what it always keeps. That is its identity, labels,
// annotations, owners, taints, schedulability and boot ID, and the types, statuses and transitions of its conditions.
type Keep struct {
	// Allocatable are the resources of status.allocatable.
	Allocatable map[corev1.ResourceName]bool
	// Heartbeats keeps lastHeartbeatTime of conditions. Without them, a status that a kubelet renews is no event.
	Heartbeats bool
}

// Cache is a cache of controller-runtime whose Nodes are packed.
type Cache struct {
	cache.Cache
	last atomic.Pointer[update]
}

// New returns what makes the Cache of a manager.
func New(k Keep) cache.NewCacheFunc {
	return func(rc *rest.Config, o cache.Options) (cache.Cache, error) {
		byObject := map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: transform(k)}}
		for object, options := range o.ByObject {
			if _, ok := object.(*corev1.Node); ok {
				return nil, fmt.Errorf("the options of a %T are those of package nodecache", object)
			}
			byObject[object] = options
		}
		o.ByObject = byObject
		c, err := cache.New(rc, o)
		if err != nil {
			return nil, err
		}
		return &Cache{Cache: c}, nil
	}
}

// transform packs each Node that the API server sends. An informer may transform an object twice.
func transform(k Keep) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			return pack(n, k), nil
		}
		return o, nil
	}
}

// Get implements client.Reader.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	n, ok := o.(*corev1.Node)
	if !ok {
		return c.Cache.Get(ctx, key, o, opts...)
	}
	store, err := c.store(ctx)
	if err != nil {
		return err
	}
	stored, found, err := store.GetByKey(key.Name)
	if err != nil {
		return err
	}
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
	}
	stored.(*packed).into(n)
	return nil
}

// List implements client.Reader. Of the options for Nodes it knows label selectors.
func (c *Cache) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	nodes, ok := l.(*corev1.NodeList)
	if !ok {
		return c.Cache.List(ctx, l, opts...)
	}
	all, err := c.each(ctx, opts)
	if err != nil {
		return err
	}
	nodes.Items = nil
	for n := range all {
		nodes.Items = append(nodes.Items, *n.DeepCopy())
	}
	return nil
}

func (c *Cache) each(ctx context.Context, opts []client.ListOption) (iter.Seq[*corev1.Node], error) {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.FieldSelector != nil || options.Limit != 0 || options.Continue != "" {
		return nil, fmt.Errorf("the cache lists Nodes by label alone")
	}
	store, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(*corev1.Node) bool) {
		for n := range unpacked(store.List()) {
			if options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(n.Labels)) {
				continue
			}
			if !yield(n) {
				return
			}
		}
	}, nil
}

// unpacked yields the Nodes that a store holds, sorted by name, each in the same Node.
func unpacked(stored []any) iter.Seq[*corev1.Node] {
	all := make([]*packed, 0, len(stored))
	for _, o := range stored {
		all = append(all, o.(*packed))
	}
	slices.SortFunc(all, byName)
	return func(yield func(*corev1.Node) bool) {
		n := &corev1.Node{}
		for _, p := range all {
			p.fill(n)
			if !yield(n) {
				return
			}
		}
	}
}

func (c *Cache) store(ctx context.Context) (toolscache.Store, error) {
	i, err := c.Cache.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return nil, err
	}
	n, err := wrap(i, &c.last)
	if err != nil {
		return nil, err
	}
	return n.shared.GetStore(), nil
}

// GetInformer implements cache.Informers.
func (c *Cache) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (
	cache.Informer, error) {
	i, err := c.Cache.GetInformer(ctx, o, opts...)
	if _, ok := o.(*corev1.Node); ok && err == nil {
		return wrap(i, &c.last)
	}
	return i, err
}

// GetInformerForKind implements cache.Informers.
func (c *Cache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind,
	opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformerForKind(ctx, kind, opts...)
	if kind == corev1.SchemeGroupVersion.WithKind("Node") && err == nil {
		return wrap(i, &c.last)
	}
	return i, err
}

// IndexField implements client.FieldIndexer. It refuses Nodes, which nobody looks up by a field.
func (c *Cache) IndexField(ctx context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	if _, ok := o.(*corev1.Node); ok {
		return fmt.Errorf("the cache has no index of Nodes by %s: package nodecache makes none", field)
	}
	return c.Cache.IndexField(ctx, o, field, extract)
}
