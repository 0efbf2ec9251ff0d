package controller

import (
	"context"
	"iter"
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
	// Nodes yields the nodes of the cache, sorted by name, without those that skip names, and the number of these.
	Nodes func(skip func(name, uid string) bool) (rest iter.Seq[*corev1.Node], skipped int)
	// Settled reports whether a node is verified, and remains so until it changes. With nil, all nodes are observed.
	Settled func(name, uid string) bool

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
	byNode := map[string][]workerpod.Observation{}
	for i := range pods.Items {
		if p := &pods.Items[i]; v.Ours(p) {
			uid := p.Labels[workerpod.LabelNodeUID]
			byNode[uid] = append(byNode[uid], workerpod.Observe(p))
		}
	}
	nodes, settled := s.Nodes(func(name, uid string) bool {
		return s.Settled != nil && len(byNode[uid]) == 0 && s.Settled(name, uid)
	})
	return func(yield func(decide.Input) bool) {
		before := marks.RecordCache{}
		if last := s.read.Load(); last != nil {
			before = *last
		}
		now := make(marks.RecordCache, len(before))
		for n := range nodes {
			in := v.input(n, before.Observe(n, v.Config.Vocabulary(), now))
			in.Pods = byNode[in.Node.UID]
			if s.Settled != nil && decide.Settled(in) { // it is only counted once the fleet has seen it
				delete(now, n.UID)
			}
			if !yield(in) {
				return
			}
		}
		s.read.Store(&now)
	}, settled, nil
}
