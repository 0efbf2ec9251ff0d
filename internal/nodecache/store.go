// Package nodecache reads all Nodes in a cache without copies of them: a cluster has tens of thousands.
package nodecache

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StoreOf returns the store in which a cache keeps the objects of a type. The cache must have one informer for all of
// them. Unless an option says otherwise, StoreOf waits until that is synchronized.
func StoreOf(ctx context.Context, c cache.Cache, o client.Object, opts ...cache.InformerGetOption) (
	toolscache.Store, error) {
	informer, err := c.GetInformer(ctx, o, opts...)
	if err != nil {
		return nil, err
	}
	shared, ok := informer.(toolscache.SharedInformer)
	if !ok {
		return nil, fmt.Errorf("the cache's informer of a %T is a %T and shows no store", o, informer)
	}
	return shared.GetStore(), nil
}

// Nodes are the Nodes in the cache of a manager. All readers share them, so they must not be modified.
type Nodes struct{ Store toolscache.Store }

// Names are the names of the Nodes.
func (n Nodes) Names() []string { return n.Store.ListKeys() }

// Tainted are the names of the Nodes that have a taint which matches.
func (n Nodes) Tainted(match func(corev1.Taint) bool) (names []string) {
	for _, o := range n.Store.List() {
		if n := o.(*corev1.Node); slices.ContainsFunc(n.Spec.Taints, match) {
			names = append(names, n.Name)
		}
	}
	return names
}

// all are the Nodes, sorted by name.
func (n Nodes) all() []*corev1.Node {
	stored := n.Store.List()
	all := make([]*corev1.Node, 0, len(stored))
	for _, o := range stored {
		all = append(all, o.(*corev1.Node))
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Each yields all Nodes. They must not be modified. Those of a cache are the ones in its store, sorted by name: as
// copies, tens of thousands would take more memory than the cache does. Other readers list them.
func Each(ctx context.Context, r client.Reader) (iter.Seq[*corev1.Node], error) {
	if c, ok := r.(cache.Cache); ok {
		store, err := StoreOf(ctx, c, &corev1.Node{})
		if err != nil {
			return nil, err
		}
		return slices.Values(Nodes{store}.all()), nil
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, err
	}
	return func(yield func(*corev1.Node) bool) {
		for i := range nodes.Items {
			if !yield(&nodes.Items[i]) {
				return
			}
		}
	}, nil
}
