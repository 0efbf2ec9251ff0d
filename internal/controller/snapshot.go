package controller

import (
	"context"
	"iter"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodecache"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Snapshotter reads all nodes and our pods on them, for a scrape.
type Snapshotter struct {
	View *View
	// Unsettled is the function of the Fleet. With nil, all nodes of the cache are observed.
	Unsettled func(ctx context.Context, also map[string]bool) (iter.Seq[*corev1.Node], int, error)

	// read are the records that the last Snapshot found.
	read atomic.Pointer[marks.RecordCache]
}

// Snapshot is every node with our pods on it, sorted by name, because the series must be sorted, which is faster if
// they come in order. Nodes are observed one by one, so that thousands of observations are not in memory at once. Nodes
// that are settled and have no pods are only counted.
func (s *Snapshotter) Snapshot(ctx context.Context) (seen iter.Seq[decide.Input], settled int, err error) {
	v := s.View
	var pods corev1.PodList
	if err := v.Cache.List(ctx, &pods, client.InNamespace(v.Builder.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, err
	}
	byNode, occupied := map[string][]workerpod.Observation{}, map[string]bool{}
	for i := range pods.Items {
		if p := &pods.Items[i]; v.Ours(p) {
			t := workerpod.TargetOf(p)
			byNode[t.UID], occupied[t.Name] = append(byNode[t.UID], workerpod.Observe(p)), true
		}
	}
	var nodes iter.Seq[*corev1.Node]
	if s.Unsettled != nil {
		nodes, settled, err = s.Unsettled(ctx, occupied)
	} else {
		nodes, err = nodecache.Each(ctx, v.Cache)
	}
	if err != nil {
		return nil, 0, err
	}
	return func(yield func(decide.Input) bool) {
		before := marks.RecordCache{}
		if last := s.read.Load(); last != nil {
			before = *last
		}
		now := make(marks.RecordCache, len(before))
		for n := range nodes {
			in := v.input(n, before.Observe(n, v.Config.Vocabulary(), now))
			in.Pods = byNode[in.Node.UID]
			if s.Unsettled != nil && decide.Settled(in) { // it is only counted once it has no pods
				delete(now, n.UID)
			}
			if !yield(in) {
				return
			}
		}
		s.read.Store(&now)
	}, settled, nil
}
