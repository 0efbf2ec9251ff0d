package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Priorities in the queue. In a burst of nodes what releases one goes first, and what only tidies up goes last.
const (
	release = 10
	tidy    = -10
)

func enqueue(q queue, name string, priority int) {
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	if pq, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		pq.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req)
		return
	}
	q.Add(req)
}

// nodeHandler wakes a node that changed.
func (r *Reconciler) nodeHandler() handler.EventHandler {
	add := func(o client.Object, q queue) {
		priority := 0
		if in := observe(context.Background(), r.Config, o.(*corev1.Node)); !in.Node.Gated {
			priority = tidy
		}
		enqueue(q, o.GetName(), priority)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

func isWorker(o client.Object) bool {
	l := o.GetLabels()
	return l[workerpod.LabelName] == workerpod.Name && l[workerpod.LabelComponent] == workerpod.Component
}

// concerns tells whether there can be anything to do about a node. Of all others not even the prerequisites are looked at.
func (r *Reconciler) concerns(ctx context.Context, n *corev1.Node) bool {
	in := observe(ctx, r.Config, n)
	if in.Node.Gated || in.Node.HasRecord || in.Selected && r.Config.NodeManagement.VerifyUntainted {
		return true
	}
	pods, err := PodsOf(ctx, r.Client, r.Builder.Namespace, in.Node) // of a node whose taint somebody took away
	return err != nil || len(pods) > 0
}

// nodeChanges lets through what a decision can depend on, and not a kubelet's heartbeat.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		if old.ResourceVersion == now.ResourceVersion {
			return false // the informer's resync; ours is RequeueAfter
		}
		return !equality.Semantic.DeepEqual(old.Spec, now.Spec) ||
			!equality.Semantic.DeepEqual(old.Labels, now.Labels) ||
			!equality.Semantic.DeepEqual(old.Annotations, now.Annotations) ||
			!equality.Semantic.DeepEqual(old.DeletionTimestamp, now.DeletionTimestamp) ||
			old.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID ||
			conditionsChanged(old, now)
	}}
}

// conditionsChanged compares types and statuses. Our own condition does not count: we wrote it.
func conditionsChanged(old, now *corev1.Node) bool {
	before := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range old.Status.Conditions {
		before[c.Type] = c.Status
	}
	for _, c := range now.Status.Conditions {
		if c.Type != node.ConditionType && before[c.Type] != c.Status {
			return true
		}
	}
	return false
}

// podHandler wakes the node that a worker pod's change can concern.
func (r *Reconciler) podHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			pod := e.Object.(*corev1.Pod)
			r.slots.seen(pod.Name)
			r.probing.seen(pod.Name)
			r.wake(pod, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			old, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			before, after := workerpod.Observe(old), workerpod.Observe(now)
			before.Report, after.Report = nil, nil
			if before == after {
				return
			}
			if before.Recorded != after.Recorded && before.State == after.State || after.Terminating && before.State == workerpod.Finished {
				return // our own write
			}
			r.wake(now, q)
			if before.Alive() && !after.Alive() {
				r.finished(after, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			pod := e.Object.(*corev1.Pod)
			r.slots.seen(pod.Name)
			o := workerpod.Observe(pod)
			if o.State == workerpod.Finished && !o.Terminating {
				return // it had its outcome, which was an event already
			}
			if o.Purpose == workerpod.PurposeVerify && workerpod.Ours(pod, r.Builder.Namespace, workerpod.Target{Name: o.Node, UID: pod.Labels[workerpod.LabelNodeUID]}) {
				r.lost.add(pod.Labels[workerpod.LabelNodeUID], o.Attempt)
			}
			r.wake(pod, q)
			r.finished(o, q)
		},
	}
}

// wake enqueues the node that the pod says it runs on. Whether it is ours is for gather to tell.
func (r *Reconciler) wake(pod *corev1.Pod, q queue) {
	if name := pod.Annotations[workerpod.AnnotationNode]; name != "" {
		priority := tidy // a worker that begins only sets a timer
		if !workerpod.Observe(pod).Alive() {
			priority = release
		}
		enqueue(q, name, priority)
	}
}

// finished lets what waited for the end of a pod go on: nodes that wait for a slot, and after a probe those with a
// failure to be attributed.
func (r *Reconciler) finished(o workerpod.Observation, q queue) {
	for _, name := range r.slots.next() {
		enqueue(q, name, 0)
	}
	if o.Purpose != workerpod.PurposeProbe {
		return
	}
	var list corev1.PodList
	if err := r.Client.List(context.Background(), &list, client.InNamespace(r.Builder.Namespace)); err != nil {
		return // the cache; a node that waits for a probe also looks again by itself
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify && !workerpod.Observe(p).Alive() {
			r.wake(p, q)
		}
	}
}
