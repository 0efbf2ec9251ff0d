// Package adoption begins the records of nodes that carry the verified label without one, and labels those that passed
// under another label. It has its own queue and handles one node after the other, so the rate is limited and no
// verification waits.
package adoption

import (
	"context"
	"fmt"
	"time"

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
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
)

// PerSecond is how many nodes are adopted in a second, each by one write: a fleet of 5000 takes about eight minutes.
const PerSecond = 10

// Reconciler adopts nodes; see decide.Adoptable. It is not for a dry run.
type Reconciler struct {
	View *controller.View
	// Writer writes our marks.
	Writer   client.Writer
	Counters *metrics.Counters
	// Limit is applied before each write.
	Limit flowcontrol.RateLimiter
}

// NewLimit makes the limit of PerSecond.
func NewLimit() flowcontrol.RateLimiter { return flowcontrol.NewTokenBucketRateLimiter(PerSecond, 1) }

// Setup registers the reconciler and its watch with the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	label := decide.LabelOf(r.View.Config)
	concerns := func(n *corev1.Node) bool {
		return (!marks.CarriesRecord(n) || !marks.RecordsLabel(n, label)) && decide.Adoptable(r.View.Observe(n))
	}
	return controller.OneAtATime(mgr, "adoption", concerns, r)
}

// Reconcile adopts one node, on condition that it is still as the cache has it.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	if err := r.Limit.Wait(ctx); err != nil {
		return ctrl.Result{}, err
	}
	n := &corev1.Node{}
	if err := r.View.Cache.Get(ctx, req.NamespacedName, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.View.Installed().IsZero() { // which nodes were born with the label is not known yet
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	in := r.View.Observe(n)
	if !decide.Adoptable(in) {
		return ctrl.Result{}, nil
	}
	patch := decide.Adopt(in, r.View.Tracker.Now()).Patch(n, r.View.Config.Vocabulary())
	err := r.Writer.Patch(ctx, controller.PatchTarget(n.Name), client.RawPatch(types.MergePatchType, patch))
	switch apierr.Of(err, apierr.Patch) {
	case apierr.None:
	case apierr.Conflict:
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case apierr.Gone: // another node of the name has an event of its own
		return ctrl.Result{}, nil
	default: // tried again with a backoff
		r.Counters.ReconcileError()
		return ctrl.Result{}, fmt.Errorf("adopt node %s: %w", n.Name, err)
	}
	log.FromContext(ctx).Info("adopted: the node carried the verified label and no record, or passed under another label",
		"node", n.Name)
	return ctrl.Result{}, nil
}
