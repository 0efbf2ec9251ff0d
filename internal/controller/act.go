package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// act carries a plan out: the step first, since all the rest follows from what it leaves behind and is repaired by the
// next reconcile if this one is cut short.
func (r *Reconciler) act(ctx context.Context, n *corev1.Node, in decide.Input, plan decide.Plan) (time.Duration, error) {
	wait := plan.Wait
	switch plan.Step {
	case decide.StepStart:
		started, err := r.start(ctx, n, in, plan)
		if err != nil {
			return 0, err
		}
		if !started {
			return slotRetry, nil
		}
	case decide.StepRecord:
		if err := r.record(ctx, n, in, plan); err != nil {
			return 0, err
		}
	}
	if r.DryRun {
		return wait, nil
	}
	if c := plan.Condition; c != nil && plan.Step != decide.StepRecord && !c.Same(in.Node.Condition) {
		if err := r.Client.Status().Patch(ctx, n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, c.Patch(in.Node.Condition))); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("condition %s: %w", node.ConditionType, err)
		}
	}
	for _, name := range plan.Keep {
		if err := r.keep(ctx, name); err != nil {
			return 0, err
		}
	}
	for _, p := range in.Pods {
		for _, name := range plan.Delete {
			if p.Name == name {
				if err := r.remove(ctx, p); err != nil {
					return 0, err
				}
			}
		}
	}
	return wait, nil
}

// slotRetry is how soon a node without a slot looks again if it missed the end of another's pod.
const slotRetry = 5 * time.Second

// start creates the pod of an attempt. started is false when there is no slot for it.
func (r *Reconciler) start(ctx context.Context, n *corev1.Node, in decide.Input, plan decide.Plan) (started bool, err error) {
	t := workerpod.Target{Name: n.Name, UID: in.Node.UID, BootID: in.Node.BootID}
	pod, err := r.Builder.Verify(t, in.Profile, plan.Attempt, plan.Via)
	if err != nil {
		return false, err
	}
	if !r.slots.take(pod.Name, n.Name, r.alive(ctx), r.Now()) {
		return false, nil
	}
	err = r.Client.Create(ctx, pod)
	if err != nil {
		r.slots.seen(pod.Name)
	}
	switch {
	case err == nil:
		log.FromContext(ctx).Info("worker created", "pod", pod.Name, "attempt", plan.Attempt)
		r.tell(ctx, n, plan.Events)
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return true, r.meet(ctx, n, in, plan.Attempt, pod.Name, t)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		// A quota, an admission policy, a missing service account or a bad pod setting: an operator has to see it,
		// and the node has no part in it.
		return true, r.record(ctx, n, in, decide.Skip(in, plan.Attempt, workerpod.ReasonPodRefused, "the API server refused the worker pod: "+err.Error(), r.Now()))
	}
	return false, err
}

// meet deals with a pod that already has the attempt's name.
func (r *Reconciler) meet(ctx context.Context, n *corev1.Node, in decide.Input, attempt int32, name string, t workerpod.Target) error {
	have := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Builder.Namespace, Name: name}, have); err != nil {
		if apierrors.IsNotFound(err) {
			return &decideAgain{before: "a worker is created"}
		}
		return err
	}
	if !workerpod.Ours(have, r.Builder.Namespace, t) {
		return r.record(ctx, n, in, decide.Skip(in, attempt, workerpod.ReasonNameTaken, fmt.Sprintf("pod %s/%s exists and is not ours", have.Namespace, have.Name), r.Now()))
	}
	if o := workerpod.Observe(have); o.Recorded {
		return r.remove(ctx, o) // left from before somebody removed the record
	}
	return nil // created by us a moment ago; its events will come
}

// alive counts the worker pods that the cache holds alive.
func (r *Reconciler) alive(ctx context.Context) func() int {
	return func() int {
		var list corev1.PodList
		if err := r.Client.List(ctx, &list, client.InNamespace(r.Builder.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return r.slots.limit // the cache; better none than too many
		}
		n := 0
		for i := range list.Items {
			if workerpod.Observe(&list.Items[i]).Alive() {
				n++
			}
		}
		return n
	}
}

// record writes a change of our marks, the one write that decides, and tells of it.
func (r *Reconciler) record(ctx context.Context, n *corev1.Node, in decide.Input, plan decide.Plan) error {
	l := log.FromContext(ctx)
	rec := plan.Change.Record
	if r.DryRun {
		l.Info("dry run: the node stays as it is", "outcome", rec.LastOutcome, "check", rec.LastCheck, "reason", rec.LastReason, "message", rec.LastMessage)
		if plan.Pod != nil && plan.Pod.UID != "" {
			return r.keep(ctx, plan.Pod.Name)
		}
		return nil
	}
	patch := plan.Change.Patch(n, in.Profile.Taints, r.Config.NodeManagement.VerifiedLabel)
	if err := r.Client.Patch(ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if plan.Pod != nil {
		l.Info("verification "+string(rec.LastOutcome), "pod", plan.Pod.Name, "attempt", rec.Sequence, "check", rec.LastCheck,
			"reason", rec.LastReason, "message", rec.LastMessage, "duration", plan.Pod.Duration().Seconds())
		r.Counters.Verdict(in, plan.Pod, rec, n.CreationTimestamp.Time, r.Now())
	}
	r.tell(ctx, n, plan.Events)
	return nil
}

// keep marks a failed pod that only stays for its logs.
func (r *Reconciler) keep(ctx context.Context, name string) error {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = r.Builder.Namespace, name
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, workerpod.AnnotationRecorded)
	if err := r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark pod %s: %w", name, err)
	}
	return nil
}

// remove deletes a pod, on condition that it is still the one observed.
func (r *Reconciler) remove(ctx context.Context, o workerpod.Observation) error {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = r.Builder.Namespace, o.Name
	uid := types.UID(o.UID)
	opts := []client.DeleteOption{client.Preconditions{UID: &uid}}
	if !o.Started.IsZero() && o.State == workerpod.Finished {
		opts = append(opts, client.GracePeriodSeconds(0)) // its processes have ended: there is nothing to wait for
	}
	err := r.Client.Delete(ctx, pod, opts...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one by now
	}
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", o.Name, err)
	}
	return nil
}
