package controller

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Snapshotter reads all nodes and our pods on them, for a scrape.
type Snapshotter struct {
	View *View
	// Nodes is the store of the cache's informer: a list by way of View.Cache would copy each node.
	Nodes interface{ List() []any }

	// read are the records that the last Snapshot found.
	read atomic.Pointer[marks.RecordCache]
}

// Snapshot is every node with our pods on it, sorted by name: the series have to be sorted in the end, which is
// faster if they come in order. A node is observed when it is asked for, so that thousands of observations are not
// held at once.
func (s *Snapshotter) Snapshot(ctx context.Context) (iter.Seq[decide.Input], error) {
	v := s.View
	var pods corev1.PodList
	if err := v.Cache.List(ctx, &pods, client.InNamespace(v.Builder.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byNode := map[string][]workerpod.Observation{}
	for i := range pods.Items {
		if p := &pods.Items[i]; v.Ours(p) {
			uid := p.Labels[workerpod.LabelNodeUID]
			byNode[uid] = append(byNode[uid], workerpod.Observe(p))
		}
	}
	stored := s.Nodes.List()
	nodes := make([]*corev1.Node, 0, len(stored))
	for _, o := range stored {
		n, ok := o.(*corev1.Node)
		if !ok {
			return nil, fmt.Errorf("the cache of nodes holds a %T", o)
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return func(yield func(decide.Input) bool) {
		before, now := marks.RecordCache{}, make(marks.RecordCache, len(nodes))
		if last := s.read.Load(); last != nil {
			before = *last
		}
		for _, n := range nodes {
			in := v.input(n, before.Observe(n, v.Config.Vocabulary(), now))
			in.Pods = byNode[in.Node.UID]
			if !yield(in) {
				return
			}
		}
		s.read.Store(&now)
	}, nil
}
