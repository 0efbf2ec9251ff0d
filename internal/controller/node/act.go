package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// act carries a plan out: the step first, since all the rest follows from what it leaves behind and is repaired by the
// next reconcile if this one is cut short.
func (r *Reconciler) act(ctx context.Context, d decision) (wait time.Duration, err error) {
	if d.plan.Step != decide.StepRecord { // else it goes along with that
		if err := r.enact(ctx, d); err != nil {
			return 0, err
		}
		if !d.rules.Change.Empty() && !r.View.Sights.Rehearsing {
			return d.plan.Wait, nil // the node is another one now, and comes back as an event
		}
	}
	switch d.plan.Step {
	case decide.StepStart:
		err = r.start(ctx, d)
	case decide.StepProbe:
		err = r.probe(ctx, d)
	case decide.StepRecord:
		return d.plan.Wait, r.record(ctx, d, d.plan) // the condition and the pods follow from what was recorded
	}
	if err != nil {
		return 0, err
	}
	wait = d.plan.Wait
	if later, err := r.say(ctx, d); err != nil {
		return 0, err
	} else if later > 0 && (wait == 0 || later < wait) {
		wait = later
	}
	for _, p := range d.plan.Keep {
		if err := r.Pods.Keep(ctx, p); err != nil {
			return 0, err
		}
	}
	for _, p := range d.plan.Delete {
		if err := r.Pods.Delete(ctx, d.in, p); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// start creates the pod of an attempt.
func (r *Reconciler) start(ctx context.Context, d decision) error {
	t := workerpod.Target{Name: d.in.Node.Name, UID: d.in.Node.UID, BootID: d.in.Node.BootID, Gated: d.in.Node.Gated}
	if unseen, err := r.endUnseen(ctx, d, t); unseen || err != nil {
		return err // its end is a watch event
	}
	pod := r.View.Builder.Verify(t, d.in.Profile, d.plan.Number, d.plan.Via)
	r.View.Sights.Creating(pod)
	err := r.create(ctx, pod)
	switch {
	case err == nil:
		log.FromContext(ctx).Info("worker created", "pod", pod.Name, "attempt", d.plan.Number)
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.existing(ctx, d, pod.Name, t)
	case refused(err):
		return r.record(ctx, d, decide.Refused(d.in, d.plan.Number, attempt.ReasonPodRefused, "the API server did not take the worker pod: "+err.Error(), r.View.Sights.Now()))
	}
	return err
}

// create creates a pod of which Sights.Creating knows.
func (r *Reconciler) create(ctx context.Context, pod *corev1.Pod) error {
	if err := r.Pods.Create(ctx, pod); err != nil {
		r.View.Sights.Shown(pod.Name)
		return err
	}
	r.View.Sights.Created(pod)
	return nil
}

// endUnseen ends the worker of a last attempt that is recorded as refused, where it was made all the same and the cache may not show
// it yet: two workers of one node would disturb each other. It reports whether it is there.
func (r *Reconciler) endUnseen(ctx context.Context, d decision, t workerpod.Target) (bool, error) {
	if d.in.Node.Record.LastReason != attempt.ReasonPodRefused {
		return false, nil
	}
	have := &corev1.Pod{}
	key := client.ObjectKey{Namespace: r.Pods.Namespace, Name: workerpod.VerifyName(t, d.in.Node.Record.Sequence)}
	if err := r.Live.Get(ctx, key, have); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	o := workerpod.Observe(have)
	if !workerpod.Ours(have, r.Pods.Namespace, t) || !o.Occupies {
		return false, nil
	}
	if o.Terminating {
		return true, nil
	}
	return true, r.Pods.Delete(ctx, d.in, o)
}

// refused reports whether the API server answered that it does not take a write: a quota, an admission policy or its webhook
// being down, a namespace or service account that is missing, a pod that is too large, too much load. The pod of an answer
// that came after it was stored is ended like any other of a recorded attempt.
func refused(err error) bool {
	return apierrors.ReasonForError(err) != "" && !errors.Is(err, leader.ErrNotLeading)
}

// existing handles a pod that already has the attempt's name.
func (r *Reconciler) existing(ctx context.Context, d decision, name string, t workerpod.Target) error {
	have := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Pods.Namespace, Name: name}, have); err != nil {
		if apierrors.IsNotFound(err) {
			return errDecideAgain
		}
		return err
	}
	if !workerpod.Ours(have, r.Pods.Namespace, t) {
		return r.record(ctx, d, decide.Refused(d.in, d.plan.Number, attempt.ReasonNameTaken, fmt.Sprintf("pod %s/%s exists and is not ours", have.Namespace, have.Name), r.View.Sights.Now()))
	}
	if o := workerpod.Observe(have); o.Recorded { // left from before somebody removed the record
		if err := r.Pods.Delete(ctx, d.in, o); err != nil {
			return err
		}
		return errDecideAgain
	}
	return nil // created a moment ago; its events will come
}

// record writes a change of our marks, the one write that decides, and emits its events.
func (r *Reconciler) record(ctx context.Context, d decision, plan decide.Plan) error {
	l := log.FromContext(ctx)
	if d.in.Node.RecordProblem != "" {
		l.Info("the record is replaced", "fault", d.in.Node.RecordProblem)
	}
	if err := r.write(ctx, d, plan.Change); err != nil {
		return err
	}
	rec := plan.Change.Record
	if done := plan.Recorded; done != nil {
		l.Info("verification "+string(done.Result.Outcome), "attempt", done.Number, "check", rec.LastCheck,
			"reason", rec.LastReason, "message", rec.LastMessage, "duration", done.Result.Duration.Seconds())
		r.Counters.Recorded(*done, d.in.Node.Created, r.View.Sights.Now())
	}
	if rec.Held != "" && rec.Held != d.in.Node.Record.Held {
		r.Counters.Remediation(plan.Target.Kind, metrics.RemediationHeld)
	}
	r.emit(d, plan.Events)
	if r.View.Sights.Rehearsing {
		return r.rehearsed(ctx, d)
	}
	if plan.Releases() {
		r.Counters.Released(r.View.Sights.Released(d.in), d.in.Node.Karpenter.Pool)
	}
	return nil
}

// write writes a change of our marks together with what the rules ask for, in one patch.
func (r *Reconciler) write(ctx context.Context, d decision, c marks.Change) error {
	c.Rules = d.rules.Change
	err := r.Nodes.Patch(ctx, named(d.node), client.RawPatch(types.MergePatchType, c.Patch(d.node, r.View.Config.Vocabulary())))
	if err != nil {
		// A conflict, also by another node of the name, is decided again at once.
		if r.Rules != nil && !c.Rules.Empty() && refused(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			r.Rules.Failed(d.node, d.rules, err)
		}
		return err
	}
	if r.Rules != nil {
		r.Rules.Wrote(d.node, d.rules)
	}
	return nil
}

// enact writes what the rules ask for where nothing else is written.
func (r *Reconciler) enact(ctx context.Context, d decision) error {
	if r.Rules == nil {
		return nil
	}
	if d.rules.Change.Empty() {
		r.Rules.Wrote(d.node, d.rules)
		return nil
	}
	if err := r.write(ctx, d, marks.Change{KeepRecord: true}); err != nil {
		return err
	}
	l := log.FromContext(ctx)
	for _, a := range d.rules.Acts {
		l.Info("rule: "+string(a.Operation), "rule", a.Rule.Name, "taint", a.Rule.Taint.ID().String(), "dryRun", r.View.Sights.Rehearsing)
	}
	return nil
}

// rehearsed ends a dry run's attempt: the node was not changed, so its pod has to say that it is done.
func (r *Reconciler) rehearsed(ctx context.Context, d decision) error {
	log.FromContext(ctx).Info("dry run: the node stays as it is")
	r.View.Sights.Rehearse(d.in)
	if pod := decide.Current(d.in.Node.Record, d.in.Pods); pod != nil {
		return r.Pods.Keep(ctx, *pod)
	}
	return nil
}

// say writes the condition if it is time to, and returns when it is.
func (r *Reconciler) say(ctx context.Context, d decision) (wait time.Duration, err error) {
	write, wait := r.View.Sights.Quiet(d.in, d.plan)
	patch := []byte(nil)
	switch {
	case d.plan.ClearCondition:
		patch = marks.RemoveCondition(d.in.Node.UID)
	case write:
		patch = d.plan.Condition.Patch(d.in.Node.UID, d.in.Node.Condition)
	}
	if patch != nil {
		err := r.Nodes.Status().Patch(ctx, named(d.node), client.RawPatch(types.StrategicMergePatchType, patch))
		if apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
			return 0, nil // another node has the name by now, and an event of its own
		}
		if err != nil {
			return 0, fmt.Errorf("condition %s: %w", marks.ConditionType, err)
		}
	}
	for _, e := range d.plan.Events {
		if d.plan.Step == decide.StepNone && r.View.Sights.Once(d.in, e.Key) {
			if e.Reason == decide.EventStuck {
				log.FromContext(ctx).Info("the node waits for what does not come by itself", "message", e.Message)
			}
			r.emit(d, []decide.Event{e})
		}
	}
	return wait, nil
}

func (r *Reconciler) emit(d decision, events []decide.Event) {
	for _, e := range events {
		r.Events.Emit(d.node, r.View.Sights.Now(), e)
	}
}

// named is a node to patch, without the contents of the cache's.
func named(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{}
	out.Name = n.Name
	return out
}
