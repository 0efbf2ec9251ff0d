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

// Store is the Nodes in the cache of a manager. All readers share them, so they must not be modified.
type Store struct{ nodes toolscache.Store }

// StoreOf returns the Nodes of a cache that has one informer for all of them. Unless an option says otherwise, it waits
// until that is synchronized.
func StoreOf(ctx context.Context, c cache.Cache, opts ...cache.InformerGetOption) (Store, error) {
	informer, err := c.GetInformer(ctx, &corev1.Node{}, opts...)
	if err != nil {
		return Store{}, err
	}
	shared, ok := informer.(toolscache.SharedInformer)
	if !ok {
		return Store{}, fmt.Errorf("the cache's informer of Nodes is a %T and shows no store", informer)
	}
	return Store{shared.GetStore()}, nil
}

// Names are the names of the Nodes.
func (s Store) Names() []string { return s.nodes.ListKeys() }

// Tainted are the names of the Nodes that have a taint which matches.
func (s Store) Tainted(match func(corev1.Taint) bool) (names []string) {
	for _, o := range s.nodes.List() {
		if n := o.(*corev1.Node); slices.ContainsFunc(n.Spec.Taints, match) {
			names = append(names, n.Name)
		}
	}
	return names
}

// all are the Nodes, sorted by name.
func (s Store) all() []*corev1.Node {
	stored := s.nodes.List()
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
		s, err := StoreOf(ctx, c)
		if err != nil {
			return nil, err
		}
		return slices.Values(s.all()), nil
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
