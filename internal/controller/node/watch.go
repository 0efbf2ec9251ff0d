package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// workers is how many nodes are reconciled at once. A reconcile mostly waits for the API server.
const workers = 32

// Setup registers the reconciler and its watches with the manager. unmet delivers the nodes whose prerequisites
// changed; the first node is reconciled once known returns.
func (r *Reconciler) Setup(mgr ctrl.Manager, unmet <-chan event.GenericEvent, known func(context.Context) error) error {
	nodes := source.Kind(mgr.GetCache(), client.Object(&corev1.Node{}), r.nodeHandler(), r.nodeChanges())
	if err := ctrl.NewControllerManagedBy(mgr).
		Named("node").
		WatchesRawSource(heldFirst{nodes, r.enqueueHeld}).
		Watches(&corev1.Pod{}, r.podHandler()).
		WatchesRawSource(source.Channel(unmet, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Func(r.queue.set)).
		WatchesRawSource(synced(known)).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: workers,
			LogConstructor: func(req *reconcile.Request) logr.Logger {
				if req == nil {
					return mgr.GetLogger()
				}
				return mgr.GetLogger().WithValues("node", req.Name)
			},
			// Per node only: a limit over all nodes would make one node's conflicts slow the others.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				20*time.Millisecond, 30*time.Second),
		}).
		Complete(r); err != nil {
		return err
	}
	return errors.Join(mgr.Add(manager.RunnableFunc(r.sweep)), mgr.Add(manager.RunnableFunc(r.wake)))
}

// wake enqueues the nodes that a pass of their group makes due, ten a second. It ends with ctx.
func (r *Reconciler) wake(ctx context.Context) error {
	tick := time.NewTicker(controller.WakePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if name, ok := r.View.Tracker.NextWoken(); ok {
				r.queue.enqueue(name, failing)
			}
		}
	}
}

// sweep enqueues each node that does not rest, or has a pod of ours, once in settledRounds intervals, evenly. A timer
// for each settled node would take more memory than the node does in the cache. A process that begins to lead starts
// with a round. It ends with ctx.
func (r *Reconciler) sweep(ctx context.Context) error {
	round := r.round()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var names []string
	for began, done := (time.Time{}), 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			due := int(float64(len(names)) * min(1, now.Sub(began).Seconds()/round.Seconds()))
			for ; done < due; done++ {
				if !r.skips(ctx, names[done]) {
					r.queue.enqueue(names[done], tidy)
				}
			}
			if now.Sub(began) >= round {
				names, began, done = r.Cached.Names(), now, 0
			}
		}
	}
}

// heldFirst is the source of nodes. A process that begins to lead does not wait until the source has shown it all of
// them, which takes a second for 50,000 nodes. It begins with those that held enqueues.
type heldFirst struct {
	source.Source
	held func(context.Context, queue)
}

// Start begins to show nodes. The manager has filled the cache before.
func (s heldFirst) Start(ctx context.Context, q queue) error {
	err := s.Source.Start(ctx, q)
	if err == nil {
		s.held(ctx, q)
	}
	return err
}

// enqueueHeld enqueues the nodes that a taint of ours keeps workloads off.
func (r *Reconciler) enqueueHeld(ctx context.Context, q queue) {
	gates := r.View.Config.Vocabulary().Gates
	names := r.Cached.Tainted(func(t corev1.Taint) bool {
		_, _, ruled := marks.CutRulePrefix(t.Key)
		return ruled || gates(t)
	})
	for _, name := range names {
		n := &corev1.Node{}
		if err := r.View.Cache.Get(ctx, client.ObjectKey{Name: name}, n); err == nil { // else it is gone
			enqueue(q, name, r.priority(n, r.View.Observe(n)))
		}
	}
}

// priority is the one at which a node that changed is reconciled.
func (r *Reconciler) priority(n *corev1.Node, in decide.Input) int {
	if p := urgency(in.Node); p != tidy || !marks.HasRuleTaint(n, r.View.Config.Vocabulary()) {
		return p
	}
	return 0
}

// synced is a source without events, which the reconciler waits for on start.
type synced func(context.Context) error

func (synced) Start(context.Context, queue) error { return nil }

func (s synced) WaitForSync(ctx context.Context) error { return s(ctx) }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueuer is the reconciler's queue, for what enqueues nodes outside a watch; empty until it runs.
type enqueuer struct{ queue atomic.Pointer[queue] }

func (w *enqueuer) set(_ context.Context, q queue) error {
	w.queue.Store(&q)
	return nil
}

func (w *enqueuer) enqueue(name string, priority int) {
	if q := w.queue.Load(); q != nil {
		enqueue(*q, name, priority)
	}
}

// Enqueue has the reconciler look at a node. It never blocks.
func (r *Reconciler) Enqueue(name string) { r.queue.enqueue(name, 0) }

// Priorities in the queue, between which a node that was never tried has 0. In a burst of nodes, releases go first and
// cleanup goes last. Nodes that fail go after new nodes, which must not wait for an outage.
const (
	release = 10
	failing = -5
	tidy    = -10
)

// urgency is the priority of a node about which nothing more is known.
func urgency(f marks.Facts) int {
	switch {
	case !f.Gated:
		return tidy
	case f.Record.LastOutcome != "" && f.Record.LastOutcome != attempt.Passed:
		return failing
	}
	return 0
}

func enqueue(q queue, name string, priority int) {
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	if pq, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		pq.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req)
		return
	}
	q.Add(req)
}

// round is how often the sweep comes to a node.
func (r *Reconciler) round() time.Duration {
	return r.View.Config.Reconciliation.Interval() * settledRounds
}

// rests reports whether neither verification nor a rule has anything to do for the node until a watch shows a change or
// the sweep comes to it again.
func (r *Reconciler) rests(n *corev1.Node, in decide.Input) bool {
	look, quiet := decide.Quiet(in, r.View.Tracker.Now())
	return quiet && (look == 0 || look > r.round()) && len(marks.OwnedOn(n)) == 0 &&
		!marks.HasRuleTaint(n, r.View.Config.Vocabulary()) && (r.Rules == nil || !r.Rules.Concern(n))
}

// skips reports whether the sweep leaves the node of that name out. It rests and has none of our pods: the end of a
// control probe may have to be awaited, and its pod deleted, on a node that rests.
func (r *Reconciler) skips(ctx context.Context, name string) bool {
	n := &corev1.Node{}
	if err := r.View.Cache.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return false
	}
	hosts, err := r.View.Hosts(ctx, n)
	return err == nil && !hosts && r.rests(n, r.View.Observe(n))
}

// nodeHandler enqueues a node that changed, and records it in the fleet.
func (r *Reconciler) nodeHandler() handler.EventHandler {
	see := func(o client.Object, initial bool, q queue) {
		n := o.(*corev1.Node)
		in := r.View.Observe(n)
		r.Fleet.Observe(in)
		if initial && r.rests(n, in) {
			return // a process that begins to lead need not reconcile tens of thousands
		}
		enqueue(q, in.Node.Name, r.priority(n, in))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList { // else it was there before this process led
				r.View.Tracker.NodeCreated(r.View.Observe(e.Object.(*corev1.Node)))
			}
			see(e.Object, e.IsInInitialList, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			r.View.Changed(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node))
			see(e.ObjectNew, false, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object.GetName(), tidy) },
	}
}

// nodeChanges lets through what a decision can depend on.
func (r *Reconciler) nodeChanges() predicate.Predicate {
	suspects := r.View.Config.SuspectTypes()
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return old.UID != now.UID || !equality.Semantic.DeepEqual(old.Spec, now.Spec) ||
			!maps.Equal(old.Labels, now.Labels) ||
			!maps.Equal(old.Annotations, now.Annotations) ||
			!equality.Semantic.DeepEqual(old.DeletionTimestamp, now.DeletionTimestamp) ||
			!equality.Semantic.DeepEqual(old.OwnerReferences, now.OwnerReferences) ||
			!slices.Equal(old.Finalizers, now.Finalizers) ||
			// What a prerequisite asks for: the cache drops the rest.
			!equality.Semantic.DeepEqual(old.Status.Allocatable, now.Status.Allocatable) ||
			old.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID ||
			conditionsChanged(old, now, suspects) || pastDeadline(old) != pastDeadline(now)
	}}
}

// conditionsChanged compares types, statuses, and whether the reason asks a repairer to act, in both directions. Of
// those that make a node suspect it compares the transition too. Our own condition does not count: we wrote it.
func conditionsChanged(old, now *corev1.Node, suspects map[corev1.NodeConditionType]bool) bool {
	return !statusesWithin(old, now, suspects) || !statusesWithin(now, old, suspects)
}

// statusesWithin reports whether every condition of a, but for ours, is one of b with the same status.
func statusesWithin(a, b *corev1.Node, suspects map[corev1.NodeConditionType]bool) bool {
	for _, c := range a.Status.Conditions {
		if c.Type != marks.ConditionType && !slices.ContainsFunc(b.Status.Conditions, func(o corev1.NodeCondition) bool {
			return o.Type == c.Type && o.Status == c.Status &&
				(o.Reason == marks.ReasonVerificationFailed) == (c.Reason == marks.ReasonVerificationFailed) &&
				(!suspects[c.Type] || o.LastTransitionTime.Equal(&c.LastTransitionTime))
		}) {
			return false
		}
	}
	return true
}

// pastDeadline reports whether our condition marks the node as past its deadline, which counts in the fleet.
func pastDeadline(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == marks.ConditionType && c.Reason == marks.ReasonDeadlineExceeded
	})
}

// podHandler enqueues the node that a worker pod's change can concern. A pod that is not ours takes no slot, and
// enqueues nothing but the host of a control probe that was changed.
func (r *Reconciler) podHandler() handler.EventHandler {
	created := func(pod *corev1.Pod, q queue) {
		if r.View.Ours(pod) {
			r.enqueueNode(r.View.Tracker.ObservePod(pod), q)
		} else if host, altered := r.View.AlteredProbe(pod); altered {
			enqueue(q, host, tidy)
		}
	}
	gone := func(ctx context.Context, pod *corev1.Pod, q queue) {
		if !r.View.Ours(pod) {
			return
		}
		o := r.podGone(pod)
		if o.Attempt.Result == nil || o.Occupies {
			r.enqueueNode(o, q)
		}
		after := o
		after.Occupies = false
		r.ended(ctx, o, after, q)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { created(e.Object.(*corev1.Pod), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			old, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if old.UID != now.UID {
				// A relist found another pod under the name. Informers report that as an update (k8s.io/client-go tools/cache).
				gone(ctx, old, q)
				created(now, q)
				return
			}
			if !r.View.Ours(now) {
				if r.View.Ours(old) { // somebody took its labels
					r.enqueueNode(r.podGone(old), q)
				}
				return
			}
			before, after := workerpod.Observe(old), r.View.Tracker.ObservePod(now)
			if !relevant(before, after) {
				return
			}
			r.enqueueNode(after, q)
			r.ended(ctx, before, after, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { gone(ctx, e.Object.(*corev1.Pod), q) },
	}
}

// podGone records the end of one of our pods.
func (r *Reconciler) podGone(pod *corev1.Pod) workerpod.Observation {
	o := workerpod.Observe(pod)
	r.View.Tracker.PodGone(o, pod)
	return o
}

// relevant reports whether a decision can depend on a pod's change. Our own writes bring no new one.
func relevant(before, after workerpod.Observation) bool {
	return before.State != after.State || before.Occupies != after.Occupies ||
		before.Unschedulable != after.Unschedulable ||
		(before.Attempt.Result == nil) != (after.Attempt.Result == nil) ||
		after.Terminating && !before.Terminating && (before.Attempt.Result == nil || after.Occupies)
}

// enqueueNode enqueues the node that the pod runs on.
func (r *Reconciler) enqueueNode(o workerpod.Observation, q queue) {
	priority := tidy // a worker that begins only sets a timer
	switch {
	case o.Passed():
		priority = release
	case o.Attempt.Result != nil || !o.Occupies:
		priority = failing
	}
	enqueue(q, o.Node, priority)
}

// ended enqueues what waited for a pod: nodes that wait for a slot and, after a probe, those with a failure to be
// attributed.
func (r *Reconciler) ended(ctx context.Context, before, after workerpod.Observation, q queue) {
	if before.Occupies && !after.Occupies {
		r.enqueueWaiting(ctx)
	}
	sameEnd := (before.Attempt.Result == nil) == (after.Attempt.Result == nil) && before.Occupies == after.Occupies
	if after.Purpose != workerpod.PurposeProbe || sameEnd {
		return
	}
	var list corev1.PodList
	err := r.View.Cache.List(ctx, &list, client.InNamespace(r.Pods.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return // the cache; a node that waits for a probe also looks again by itself
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify ||
			p.Annotations[workerpod.AnnotationRecorded] == "true" || !r.View.Ours(p) {
			continue
		}
		if o := workerpod.Observe(p); o.Attempt.Result != nil {
			r.enqueueNode(o, q)
		}
	}
}
