package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// act carries out a plan, the step first. Everything else follows from the step. If this reconcile is interrupted, the
// next one repairs what is missing.
func (r *Reconciler) act(ctx context.Context, d decision) (wait time.Duration, err error) {
	if d.plan.Step != decide.StepRecord { // else it goes along with that
		if err := r.applyRules(ctx, d); err != nil {
			return 0, err
		}
		if !d.rules.Change.Empty() && !r.View.Tracker.DryRun {
			return d.plan.RequeueAfter, nil // the node is another one now, and comes back as an event
		}
	}
	switch d.plan.Step {
	case decide.StepStart:
		err = r.start(ctx, d)
	case decide.StepProbe:
		err = r.probe(ctx, d)
	case decide.StepRecord:
		return d.plan.RequeueAfter, r.record(ctx, d, d.plan) // the condition and the pods follow from what was recorded
	}
	if err != nil {
		if later := (controller.RetryLater{}); errors.As(err, &later) { // until then the condition is that between attempts
			if later.For >= decide.ConditionDelay {
				d.plan.Condition = decide.PodDelayed(d.in, later.Why, r.View.Tracker.Now()).Condition
			}
			if _, failed := r.setCondition(ctx, d); failed != nil {
				return 0, failed
			}
		}
		return 0, err
	}
	wait = d.plan.RequeueAfter
	d.plan.Condition = r.View.Tracker.WithRefused(d.in, d.plan.Condition)
	if later, err := r.setCondition(ctx, d); err != nil {
		return 0, err
	} else if later > 0 && (wait == 0 || later < wait) {
		wait = later
	}
	return wait, r.endPods(ctx, d)
}

// endPods marks and deletes the pods of the plan. A request that the API server refuses blocks nothing else. It is sent
// again at the next reconcile, and the node's condition reports it.
func (r *Reconciler) endPods(ctx context.Context, d decision) error {
	why := ""
	end := func(err error) error {
		if refusal := apierr.Refusal(err, apierr.Patch); refusal != "" {
			why = refusal
			r.noteRefusal(ctx, err)
			return nil
		}
		return err
	}
	var errs []error
	for _, p := range d.plan.Keep {
		errs = append(errs, end(r.Pods.Keep(ctx, p)))
	}
	for _, p := range d.plan.Delete {
		errs = append(errs, end(r.Pods.Delete(ctx, d.in, p)))
	}
	for _, p := range d.plan.ForceDelete {
		log.FromContext(ctx).Info("deleted a worker that never started, without a grace period", "pod", p.Name,
			"attempt", p.Attempt.Number)
		errs = append(errs, end(r.Pods.Force(ctx, p)))
	}
	r.View.Tracker.Refused(d.in, controller.RefusedEnd, why)
	return errors.Join(errs...)
}

// noteRefusal records a request that the API server refuses. The request is sent again at the next reconcile.
func (r *Reconciler) noteRefusal(ctx context.Context, err error) {
	r.Counters.ReconcileError()
	log.FromContext(ctx).Error(err, "the API server refuses a request of the controller")
}

// reportRefusal sets the condition of a node that cannot be verified because the API server refuses a request.
func (r *Reconciler) reportRefusal(ctx context.Context, n *corev1.Node, err error) {
	why := apierr.Refusal(err, apierr.Patch)
	if why == "" {
		return
	}
	in, unseen := r.View.Gather(ctx, n)
	if unseen != nil {
		return // the watch is behind, and the request is tried again
	}
	refused := decide.RequestRefused
	if errors.As(err, &releaseError{}) {
		refused = decide.ReleaseRefused
	}
	plan := refused(in, why, r.View.Tracker.Now())
	if _, err := r.setCondition(ctx, decision{node: n, in: in, plan: plan}); err != nil {
		log.FromContext(ctx).Error(err, "cannot write the condition that shows why the node is not verified")
	}
}

// releaseError is the error of a patch that removes the gating taint.
type releaseError struct{ error }

func (e releaseError) Unwrap() error { return e.error }

// start creates the pod of an attempt.
func (r *Reconciler) start(ctx context.Context, d decision) error {
	t := workerpod.Target{Name: d.in.Node.Name, UID: d.in.Node.UID, BootID: d.in.Node.BootID, Gated: d.in.Closed(),
		Request: decide.PendingRequest(d.in.Node.Record)}
	pod := r.View.Builder.Verify(t, d.in.Profile, d.plan.Number, d.plan.Scheduling)
	_, err := r.create(ctx, d, pod, d.in.Node)
	if errors.As(err, &workerpod.AlteredPod{}) {
		return r.podRefused(ctx, d, attempt.ReasonPodRefused, err.Error())
	}
	switch apierr.Of(err, apierr.Create) {
	case apierr.None:
		log.FromContext(ctx).Info("worker created", "pod", pod.Name, "attempt", d.plan.Number)
		return nil
	case apierr.Exists:
		return r.existing(ctx, d, pod, t)
	case apierr.Later, apierr.Refused:
		// If the API server stored the pod before it answered, the pod is ended like any other pod of a recorded attempt.
		if again := r.retryLater(d, pod.Name, err); again != nil {
			return again
		}
		return r.podRefused(ctx, d, attempt.ReasonPodRefused, "the API server rejected the worker pod: "+err.Error())
	}
	return err
}

// podRefused records an attempt without a pod.
func (r *Reconciler) podRefused(ctx context.Context, d decision, reason, why string) error {
	return r.record(ctx, d, decide.PodRefused(d.in, d.plan.Number, reason, why, r.View.Tracker.Now()))
}

// create creates a pod for which the node has a slot, on that node or another one. It does not ask for a probe (asked
// is false) while another one of its group is in flight, or created and not shown.
func (r *Reconciler) create(ctx context.Context, d decision, pod *corev1.Pod, on marks.Facts) (asked bool, err error) {
	if !r.Slots.Asks(d.node.Name, pod) {
		return false, nil
	}
	err = errors.New("no answer") // unless there is one
	defer func() { r.View.Tracker.Answered(pod, err) }()
	err = r.Pods.Create(ctx, pod, on.Offers(d.in.Profile.ExtendedResources()))
	return true, err
}

const (
	// refusedFor is how long the controller retries the creation of one pod after a transient refusal. Then it records the
	// attempt as refused, so that the condition gives the reason within a minute.
	refusedFor = 30 * time.Second
	// refusedFirst and refusedMost bound the wait between two tries, which doubles.
	refusedFirst, refusedMost = 100 * time.Millisecond, 4 * time.Second
)

// retryLater returns a controller.RetryLater if the creation of a refused pod must be tried again before the refusal is
// recorded. If the API server created the pod despite its answer, the next try finds it by its name.
// What a quota or a policy forbids stays forbidden until somebody changes the quota or the policy.
func (r *Reconciler) retryLater(d decision, pod string, err error) error {
	if apierr.Of(err, apierr.Create) != apierr.Later {
		return nil
	}
	since := r.View.Tracker.PodRefused(d.in, pod)
	if since >= refusedFor {
		return nil
	}
	// With jitter, nodes that were refused together do not come back together.
	after := wait.Jitter(min(max(since, refusedFirst), refusedMost), 0.2)
	return controller.RetryLater{After: after, For: since, Why: err.Error()}
}

// existing handles a pod that already has the name of the attempt's pod, sent.
func (r *Reconciler) existing(ctx context.Context, d decision, sent *corev1.Pod, t workerpod.Target) error {
	have := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Pods.Namespace, Name: sent.Name}, have); err != nil {
		if apierrors.IsNotFound(err) {
			return errDecideAgain
		}
		return err
	}
	if reason, why, err := r.foreign(ctx, sent, have, t); why != "" || err != nil {
		if err != nil {
			return err
		}
		return r.podRefused(ctx, d, reason, why)
	}
	if o := workerpod.Observe(have); o.Recorded { // left from before somebody removed the record
		if err := r.Pods.Delete(ctx, d.in, o); err != nil {
			return err
		}
		return errDecideAgain
	}
	r.View.Tracker.Created(have)
	return nil // created a moment ago; its events will come
}

// foreign says why a pod that has the name of sent is not ours; empty if it is. It deletes a pod that was created for
// the node and changed by an admission policy: the process may have ended in between.
func (r *Reconciler) foreign(ctx context.Context, sent, have *corev1.Pod, t workerpod.Target) (reason, why string,
	err error) {
	switch {
	case workerpod.Ours(have, r.Pods.Namespace, t):
		return "", "", nil
	case !workerpod.Made(have, r.Pods.Namespace, t):
		why = fmt.Sprintf("pod %s/%s exists, but the controller did not create it", have.Namespace, have.Name)
		return attempt.ReasonNameTaken, why, nil
	}
	altered := workerpod.AlteredPod{What: cmp.Or(workerpod.Altered(sent, have), "it is not for its node")}
	return attempt.ReasonPodRefused, altered.Error(), r.Pods.DeleteAltered(ctx, have)
}

// record writes a change of our marks, the one write that decides, and emits its events.
func (r *Reconciler) record(ctx context.Context, d decision, plan decide.Plan) error {
	l := log.FromContext(ctx)
	if d.in.Node.RecordProblem != "" {
		l.Info("the record is replaced", "fault", d.in.Node.RecordProblem)
	}
	if err := r.write(ctx, d, plan.Change); err != nil {
		if plan.Change.Gate == marks.GateOpen {
			return releaseError{err}
		}
		return err
	}
	rec := plan.Change.Record
	if done := plan.Recorded; done != nil {
		l.Info("verification "+string(done.Result.Outcome), "attempt", done.Number, "check", rec.LastCheck,
			"reason", rec.LastReason, "message", rec.LastMessage, "duration", done.Result.Duration.Seconds())
		r.Counters.Recorded(*done, d.in.Node.Created, r.View.Tracker.Now())
		if done.Result.Outcome == attempt.Passed {
			r.View.Tracker.GroupPassed(d.in)
		}
	}
	r.Counters.Suspicion(plan.Suspect, decide.SuspicionAccused)
	r.Counters.TakenBack(plan.TakenBack)
	if rec.Held != "" && rec.Held != d.in.Node.Record.Held {
		r.Counters.Remediation(plan.Target.Kind, metrics.RemediationHeld)
	}
	r.emit(ctx, d, plan.Events)
	if r.View.Tracker.DryRun {
		return r.finishDryRun(ctx, d)
	}
	if plan.ReleasesUnverified() {
		l.Info("released unverified past its deadline", "released", rec.Released)
		r.Counters.ReleasedUnverified()
	}
	if plan.Releases() {
		r.Counters.Released(r.View.Tracker.Released(d.in), d.in.Node.Owner.Pool)
	}
	return nil
}

// write writes a change of our marks in one patch, together with what the rules require.
func (r *Reconciler) write(ctx context.Context, d decision, c marks.Change) error {
	if err := r.confirmRules(ctx, d, false); err != nil {
		return err
	}
	c.Rules = d.rules.Change
	patch := client.RawPatch(types.MergePatchType, c.Patch(d.node, r.View.Config.Vocabulary()))
	err := r.Nodes.Patch(ctx, controller.PatchTarget(d.node.Name), patch)
	if err != nil {
		// A conflict, also by another node of the name, is decided again at once.
		class := apierr.Of(err, apierr.Patch)
		if r.Rules != nil && !c.Rules.Empty() && (class == apierr.Refused || class == apierr.Later) {
			r.Rules.RecordFailure(d.node, d.rules, err)
		}
		return err
	}
	if r.Rules != nil {
		r.Rules.RecordWrite(d.node, d.rules)
	}
	return nil
}

// confirmRules has the node decided again if a rule whose taint it gets, or has got, is gone.
func (r *Reconciler) confirmRules(ctx context.Context, d decision, written bool) error {
	if r.Rules == nil || d.rules.Change.Empty() {
		return nil
	}
	exist, err := r.Rules.Confirm(ctx, r.Live, d.rules, written)
	switch {
	case err != nil:
		return err
	case exist:
		return nil
	case written:
		return errDecideAgain
	}
	return controller.RetryLater{After: ruleRetry} // a watch shows it
}

// ruleRetry is when a node whose rule is being deleted is reconciled again.
const ruleRetry = 100 * time.Millisecond

// applyRules writes what the rules require if nothing else is written.
func (r *Reconciler) applyRules(ctx context.Context, d decision) error {
	if r.Rules == nil {
		return nil
	}
	if d.rules.Change.Empty() {
		r.Rules.RecordWrite(d.node, d.rules)
		return nil
	}
	if err := r.write(ctx, d, marks.Change{KeepRecord: true}); err != nil {
		return err
	}
	l := log.FromContext(ctx)
	for _, a := range d.rules.Actions {
		l.Info("rule: "+string(a.Operation), "rule", a.Rule.Name, "taint", a.Taint.String(), "dryRun", r.View.Tracker.DryRun)
	}
	return nil
}

// finishDryRun ends a dry run's attempt. The node is not changed, so its pod is marked as recorded.
func (r *Reconciler) finishDryRun(ctx context.Context, d decision) error {
	log.FromContext(ctx).Info("dry run: the node is not changed")
	r.View.Tracker.FinishDryRun(d.in)
	if pod := decide.CurrentPod(d.in.Node.Record, d.in.Pods); pod != nil {
		return r.Pods.Keep(ctx, *pod)
	}
	return nil
}

// setCondition writes the condition if it is due, and otherwise returns when it is.
func (r *Reconciler) setCondition(ctx context.Context, d decision) (wait time.Duration, err error) {
	write, wait := r.View.Tracker.ConditionDue(d.in, d.plan)
	patch := []byte(nil)
	switch {
	case d.plan.ClearCondition:
		patch = marks.RemoveCondition(d.in.Node.UID)
	case write:
		patch = d.plan.Condition.Patch(d.in.Node.UID, d.in.Node.Condition)
	}
	if patch != nil {
		target := controller.PatchTarget(d.node.Name)
		err := r.Nodes.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
		switch apierr.Of(err, apierr.Patch) {
		case apierr.None:
		case apierr.Gone, apierr.Conflict:
			return 0, nil // another node has the name by now, and an event of its own
		case apierr.Refused:
			r.noteRefusal(ctx, err) // nothing is decided by the condition
			return wait, nil
		default:
			return 0, fmt.Errorf("condition %s: %w", marks.ConditionType, err)
		}
	}
	for _, e := range d.plan.Events {
		if d.plan.Step == decide.StepNone && wait == 0 && r.View.Tracker.FirstEvent(d.in, e.Key) {
			if e.Reason == decide.EventPrerequisiteStuck {
				log.FromContext(ctx).Info("the node waits for a prerequisite that needs a change by a person", "message", e.Message)
			}
			r.emit(ctx, d, []decide.Event{e})
		}
	}
	return wait, nil
}

func (r *Reconciler) emit(ctx context.Context, d decision, events []decide.Event) {
	for _, e := range events {
		if e.Reason == decide.EventGateRemoved {
			r.Counters.GateRemoved()
			log.FromContext(ctx).Info("the gating taint was removed", "message", e.Message)
		}
		r.Events.Emit(d.node, r.View.Tracker.Now(), e)
	}
}
