// Package controller gathers what is observed of a node, lets decide say what to do, and does it. It is the only
// package that sequences effects.
package controller

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// workers is how many nodes are reconciled at once. A reconcile mostly waits for the API server.
const workers = 32

// conflictRetries is how often a write that another writer overtook is decided again at once, on a fresh read, before
// the node goes back into the queue.
const conflictRetries = 8

// Reconciler verifies nodes. It keeps no verification state: all of it is on the nodes and their worker pods.
type Reconciler struct {
	Config *config.Config
	// Client reads from the informers and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Builder makes the worker pods.
	Builder workerpod.Builder
	// Prerequisites tells what a node waits for.
	Prerequisites *prerequisite.Watches
	// Ledger remembers deletions.
	Ledger remediation.Ledger
	// Counters are told of every outcome.
	Counters *metrics.Counters
	// Events tells of transitions.
	Events *Events
	// DryRun runs workers and changes nothing on nodes.
	DryRun bool
	// Now is the clock.
	Now func() time.Time

	slots   slots
	lost    lost
	probing inflight
	serial  chan struct{} // held while a deletion is decided and done: guards count what the one before did
}

// Setup registers the controller and its watches with the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.serial = make(chan struct{}, 1)
	r.slots.limit = int(r.Config.Reconciliation.MaxConcurrentVerifications)
	if err := index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		Watches(&corev1.Node{}, r.nodeHandler(), builder.WithPredicates(nodeChanges())).
		Watches(&corev1.Pod{}, r.podHandler(), builder.WithPredicates(predicate.NewPredicateFuncs(isWorker))).
		WatchesRawSource(source.Channel(r.Prerequisites.Events(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			LogConstructor: func(req *reconcile.Request) logr.Logger {
				if req == nil {
					return mgr.GetLogger()
				}
				return mgr.GetLogger().WithValues("node", req.Name)
			},
			// Per node only: a limit over all nodes would make one node's conflicts slow the others.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}

// Reconcile brings one node a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	n := &corev1.Node{}
	err := r.Client.Get(ctx, req.NamespacedName, n)
	if apierrors.IsNotFound(err) {
		r.Prerequisites.Forget(req.Name)
		r.slots.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return r.failed(err)
	}
	if !r.concerns(ctx, n) {
		return reconcile.Result{}, nil
	}
	live := false
	for try := 0; ; try++ {
		wait, priority, err := r.step(ctx, n, live)
		var again *decideAgain
		switch {
		case err == nil:
			if interval := time.Duration(r.Config.Reconciliation.IntervalSeconds) * time.Second; wait <= 0 || wait > interval {
				wait = interval
			}
			// Without a priority the queue would keep the one that this reconcile had.
			return reconcile.Result{RequeueAfter: wait, Priority: &priority}, nil
		case !errors.As(err, &again) && !apierrors.IsConflict(err), try >= conflictRetries:
			return r.failed(err)
		}
		fresh := &corev1.Node{}
		if err := r.Live.Get(ctx, req.NamespacedName, fresh); err != nil {
			if apierrors.IsNotFound(err) {
				return reconcile.Result{}, nil
			}
			return r.failed(err)
		}
		n, live = fresh, true
	}
}

// failed counts an error on its way to the queue, which tries again with backoff.
func (r *Reconciler) failed(err error) (reconcile.Result, error) {
	r.Counters.ReconcileError()
	return reconcile.Result{}, err
}

// decideAgain asks for the same decision on a fresh read of the node, before what must not be done on a stale one.
type decideAgain struct{ before string }

func (d *decideAgain) Error() string { return "read the node fresh before " + d.before }

// step gathers, decides and acts once. live tells that n was read from the API server just now. It returns when to look again, and
// how urgent that is.
func (r *Reconciler) step(ctx context.Context, n *corev1.Node, live bool) (wait time.Duration, priority int, err error) {
	now := r.Now()
	in, err := r.gather(ctx, n)
	if err != nil {
		return 0, 0, err
	}
	if !in.Node.Gated {
		priority = tidy
	}
	if r.DryRun && rehearsed(in.Pods) {
		return 0, tidy, nil
	}
	plan := decide.Verify(in, now)
	if plan.Step == decide.StepStart && !live {
		// A cache that missed the last record would start an attempt that was had already.
		return 0, 0, &decideAgain{before: "a worker is created"}
	}
	switch plan.Step {
	case decide.StepAttribute:
		if plan, err = r.attribute(ctx, in, plan, now); err != nil {
			return 0, 0, err
		}
	case decide.StepRemediate:
		if !live {
			return 0, 0, &decideAgain{before: "a deletion"}
		}
		if plan, err = r.remediate(ctx, n, in, plan, now); err != nil {
			return 0, 0, err
		}
	}
	if wait, err = r.act(ctx, n, in, plan); err != nil {
		return 0, 0, err
	}
	if plan.Step == decide.StepRecord {
		priority = tidy // what follows is the condition and the pod's end
	}
	r.lost.forget(in.Node.UID, in.Lost)
	return wait, priority, nil
}

// rehearsed tells whether a dry run has had its attempt.
func rehearsed(pods []workerpod.Observation) bool {
	for _, p := range pods {
		if p.Recorded {
			return true
		}
	}
	return false
}
