// Package autoscaler reports the gating taints that Karpenter does not know. Karpenter then launches more nodes than
// are needed, and nothing on a node shows why.
package autoscaler

import (
	"context"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
)

// Poller reads the NodePools from time to time. It runs only on the leader.
type Poller struct {
	Gating []marks.Taint
	// Live reads NodePools from the API server.
	Live client.Reader
	// Unsettled yields the nodes of the cache that are not verified, the gated ones among them.
	Unsettled func(ctx context.Context, also map[string]bool) (nodes iter.Seq[*corev1.Node], settled int, err error)
	Every     time.Duration
	// Emit emits an event on a NodePool. Count sets the metric: of the taints that nodes of a NodePool carry, for which
	// alone Karpenter launches nodes in vain.
	Emit  func(decide.NodePool, decide.Event)
	Count func([]decide.UnknownTaint)

	reported []decide.UnknownTaint
}

// Start polls until ctx is done.
func (r *Poller) Start(ctx context.Context) error {
	for tick := time.NewTicker(r.Every); ; {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "cannot read NodePools")
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

func (r *Poller) look(ctx context.Context) error {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(nodepool.Kind)
	err := r.Live.List(ctx, &list)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) { // Karpenter is not there
		return err
	}
	carried := nodepool.Carried{}
	if len(list.Items) > 0 {
		nodes, _, err := r.Unsettled(ctx, nil)
		if err != nil {
			return err
		}
		for n := range nodes {
			carried.Add(n, r.Gating)
		}
	}
	var pools []decide.NodePool
	for i := range list.Items {
		p := nodepool.Of(&list.Items[i])
		p.Carried = carried[p.Name]
		pools = append(pools, p)
	}
	unknown := decide.UnknownTaints(r.Gating, pools)
	r.Count(slices.DeleteFunc(slices.Clone(unknown), func(u decide.UnknownTaint) bool { return u.Pool == "" }))
	for _, u := range unknown {
		if slices.Contains(r.reported, u) {
			continue
		}
		for _, p := range pools {
			if u.Pool == "" || u.Pool == p.Name {
				r.Emit(p, u.Event())
			}
		}
	}
	r.reported = unknown
	return nil
}
