// Package backfill taints nodes that admission missed: those that were created while no policy or webhook tainted
// nodes. It has its own queue and handles one node after the other, so the rate is limited and no verification waits.
package backfill

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
)

// PerSecond is how many nodes are examined per second, and the burst. Each costs a read, a list of its pods and at most
// one write. An autoscaler's burst of some hundred nodes is done before its nodes are Ready and can take pods. A wrong
// configuration is noticed before it has tainted a fleet.
const PerSecond = 10

// Reconciler taints nodes that admission missed. It is not for a dry run.
type Reconciler struct {
	View *controller.View
	// Live reads from the API server.
	Live client.Reader
	// Writer writes our marks.
	Writer client.Writer
	// Workloads lists the ordinary pods on a node, from the API server.
	Workloads func(ctx context.Context, node string) (decide.Workloads, error)
	Counters  *metrics.Counters
	Events    controller.Emitter
	// Limit is applied before a node is read from the API server.
	Limit flowcontrol.RateLimiter
}

// NewLimit makes the limit of PerSecond.
func NewLimit() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(PerSecond, PerSecond)
}

// Setup registers the reconciler and its watch with the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	missed := func(n *corev1.Node) bool {
		return len(decide.MissedTaints(n, r.View.Observe(n), r.View.Tracker.Now())) > 0
	}
	return controller.OneAtATime(mgr, "backfill", missed, r)
}

// Reconcile examines one node. A node that runs ordinary pods is in service: it is examined again only when its marks
// change, or by a new leader.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := r.View.Cache.Get(ctx, req.NamespacedName, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if len(decide.MissedTaints(n, r.View.Observe(n), r.View.Tracker.Now())) == 0 {
		return ctrl.Result{}, nil // the queue was long
	}
	if err := r.Limit.Wait(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var err error
	for range controller.ConflictRetries {
		if err = r.backfill(ctx, req.Name); apierr.Of(err, apierr.Patch) != apierr.Conflict {
			break
		}
	}
	if apierr.Of(err, apierr.Patch) == apierr.Gone { // another node of the name has an event of its own
		err = nil
	}
	if err != nil {
		r.Counters.ReconcileError()
	}
	return ctrl.Result{}, err
}

// backfill decides on a fresh read of the node and then of its pods. It writes on condition that the node has not
// changed since.
func (r *Reconciler) backfill(ctx context.Context, name string) error {
	n := &corev1.Node{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return err
	}
	in := r.View.Observe(n)
	if len(decide.MissedTaints(n, in, r.View.Tracker.Now())) == 0 {
		return nil
	}
	workloads, err := r.Workloads(ctx, name)
	if err != nil {
		return err
	}
	change, e, ok := decide.Backfill(n, in, workloads, r.View.Tracker.Now())
	l := log.FromContext(ctx).WithValues("node", name)
	if !ok {
		l.Info("admission missed the node; it stays untainted because it runs ordinary pods", "pods", workloads.Names)
		r.Counters.Backfill(metrics.BackfillOccupied)
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, change.Patch(n, r.View.Config.Vocabulary()))
	if err := r.Writer.Patch(ctx, controller.PatchTarget(name), patch); err != nil {
		return fmt.Errorf("taint node %s, which admission missed: %w", name, err)
	}
	l.Info("tainted a node that admission missed", "taints", change.GateTaints)
	r.Counters.Backfill(metrics.BackfillTainted)
	r.Events.Emit(n, r.View.Tracker.Now(), e)
	return nil
}
