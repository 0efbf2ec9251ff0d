// Package remediation acts on nodes that failed for good. It collects the evidence of the guards, decides, writes the
// intent into the node's record, adds the deletion to the ledger, and deletes the node's owner. Or it keeps the
// condition on the node that asks a repairer to act. It handles one node at a time in its own queue, so the release of
// a healthy node never waits for it.
package remediation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	backends "github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Reconciler considers the remediation of one node after the other, because the limits count earlier actions.
type Reconciler struct {
	View *controller.View
	// Live reads from the API server.
	Live client.Reader
	// Writer writes our marks and the ledger, and deletes; in a dry run it changes nothing.
	Writer client.Client
	// Pods are the effects on worker pods.
	Pods controller.Pods
	// EvidenceFor is how old the evidence of a decision may be when the action is carried out. An action that takes
	// longer is cancelled and tried again.
	EvidenceFor time.Duration
	Fleet       *controller.Fleet
	// Owners finds the object that owns a node and deletes it.
	Owners   backends.Backends
	Ledger   *Ledger
	Counters *metrics.Counters
	Events   controller.Emitter

	queue intake

	// counts saves counting the fleet again for each held node; counted is when counts was made.
	counts  decide.Counts
	counted time.Time
}

// Setup registers the reconciler with the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	if r.View.Config.NodeManagement.DeleteFailedNodes && !r.Ledger.ReadOnly {
		if err := mgr.Add(manager.RunnableFunc(r.begin)); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("remediation").
		WatchesRawSource(source.Func(r.queue.set)).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				100*time.Millisecond, time.Minute),
		}).
		Complete(r)
}

// begin writes a new ledger when this replica becomes the leader. The time for which a new ledger holds actions
// runs from then, and not from the first failure of a node.
func (r *Reconciler) begin(ctx context.Context) error {
	_ = wait.PollUntilContextTimeout(ctx, beginRetry, beginFor, true, func(ctx context.Context) (bool, error) {
		_, err := r.Ledger.Read(ctx, r.View.Tracker.Now(), true)
		return err == nil || problem(err) != "", nil // the nodes that it holds report what a person has to fix
	})
	return nil // who asks for it next begins it
}

// beginRetry is the time between two tries to create the ledger. beginFor is how long a new leader tries. After that,
// the next read of the ledger creates it.
const (
	beginRetry = 2 * time.Second
	beginFor   = time.Minute
)

// heldPriority has a node that was not held before go ahead of those that are.
const heldPriority = -10

// Reconcile considers the remediation of one node. It looks again at a node that is held or whose owner is being
// deleted, once in each interval of reconciliation.intervalSeconds.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := r.View.Cache.Get(ctx, req.NamespacedName, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	in, err := r.View.Gather(ctx, n)
	awaits := false
	if err == nil {
		awaits, err = r.consider(log.IntoContext(ctx, log.FromContext(ctx).WithValues("node", req.Name)), n, in)
		r.report(n, in, err)
	}
	later := controller.RetryLater{}
	switch {
	case errors.As(err, &later):
		return ctrl.Result{RequeueAfter: later.After}, nil
	case apierrors.IsConflict(err), errors.Is(err, controller.ErrNotShown):
		// The node, its pods or the ledger changed since they were read, so the decision may no longer hold.
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case err != nil:
		r.Counters.ReconcileError()
		return ctrl.Result{}, err
	case awaits:
		return ctrl.Result{RequeueAfter: r.untilNextRound(), Priority: ptr.To(heldPriority)}, nil
	}
	return ctrl.Result{}, nil
}

// report has the node's condition say why no action is taken, and an event that a condition stays.
func (r *Reconciler) report(n *corev1.Node, in decide.Input, err error) {
	why, stays := r.View.Tracker.Fails(in, "remediation failed", err), staysError{}
	if why != "" && errors.As(err, &stays) {
		r.Events.Emit(n, r.View.Tracker.Now(), decide.ConditionStays(stays.types, why))
	}
}

// staysError is the error of a removal of conditions.
type staysError struct {
	types []corev1.NodeConditionType
	error
}

func (e staysError) Unwrap() error { return e.error }

// untilNextRound is the time until the next multiple of the interval. All held nodes are looked at together, because
// one wake-up and one count of the fleet then serve all of them.
func (r *Reconciler) untilNextRound() time.Duration {
	interval, now := r.View.Config.Reconciliation.Interval(), r.View.Tracker.Now()
	return now.Truncate(interval).Add(interval).Sub(now)
}

// errOld is the cause of the cancellation of an action whose evidence is too old.
var errOld = errors.New("the data of the remediation decision is too old")

// consider decides about the node and carries that out. It reports whether the node awaits an action.
func (r *Reconciler) consider(ctx context.Context, n *corev1.Node, in decide.Input) (awaits bool, err error) {
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errOld) {
			err = fmt.Errorf("%w: %w", errOld, err)
		}
	}()
	ev, end := decide.Evidence{}, context.CancelFunc(func() {})
	defer func() { end() }()
	ordinaryPods := func(latest bool) (decide.Workloads, error) {
		pods, err := OrdinaryPods(ctx, r.Live, n.Name, latest)
		pods.Problem = problem(err)
		return pods, unexplained(err)
	}
	leave := func(decide.Plan) error { return decide.ErrStop } // what is next is not a remediation
	loaders := decide.Loaders{
		decide.NeedFresh: func(decide.Plan) (err error) {
			// The API server may make the client retry a request for a long time. What is loaded from here on must not become
			// too old a second time.
			ctx, end = context.WithTimeoutCause(ctx, r.EvidenceFor, errOld)
			now, fresh, err := r.View.Fresh(ctx, r.Live, n)
			if apierrors.IsNotFound(err) {
				return decide.ErrStop
			} else if err != nil {
				return err
			}
			n, in = now, fresh
			return nil
		},
		decide.NeedLedger: decide.Loader(&ev.Ledger, func() (decide.Ledger, error) {
			actions, err := r.Ledger.Read(ctx, r.View.Tracker.Now(), ev.Fresh)
			actions.Problem = problem(err)
			return actions, unexplained(err)
		}),
		decide.NeedCounts: decide.Loader(&ev.Counts, func() (decide.Counts, error) { return r.count(ctx, in, ev) }),
		decide.NeedOccupants: decide.Loader(&ev.Workloads, func() (decide.Workloads, error) {
			return ordinaryPods(true) // a taint must not evict a pod that came since
		}),
		decide.NeedWorkloads: decide.Loader(&ev.Workloads, func() (decide.Workloads, error) {
			return ordinaryPods(ev.Fresh)
		}),
		decide.NeedOwner: decide.Loader(&ev.Owner, func() (owner.Owner, error) {
			return r.Owners.Find(ctx, n, ownerRead(in, ev)), nil
		}),
		decide.NeedPrerequisites: leave,
		decide.NeedSlot:          leave,
		decide.NeedWarning:       leave,
		decide.NeedProbes:        leave,
		decide.NeedFleet:         leave,
	}
	condition := decide.Plan{}
	plan, err := decide.ResolveWith(func(in decide.Input, ev decide.Evidence, now time.Time) (then decide.Plan) {
		condition, then = decide.Remediation(in, ev, now)
		return then
	}, &in, &ev, r.View.Tracker.Now, loaders)
	// A condition goes whatever else cannot be decided.
	stays, changed := r.removeConditions(ctx, n, condition.RemoveConditions)
	if changed != nil {
		return false, changed
	}
	if condition.Step == decide.StepRemoveConditions && stays == nil && !r.View.Tracker.DryRun {
		r.emit(n, condition)
	}
	switch {
	case err != nil || plan.Need != decide.NeedNothing:
		return len(in.Node.RemediationConditions) > 0, errors.Join(stays, err)
	case condition.Step == decide.StepSetCondition:
		return true, errors.Join(stays, r.setCondition(ctx, n, in, ev, condition))
	}
	log.FromContext(ctx).V(1).Info("decided", "step", plan.Step, "held", plan.Change.Record.Held,
		"wait", plan.RequeueAfter)
	awaits = ev.Ledger != nil || ev.Owner != nil || len(in.Node.RemediationConditions) > 0
	return awaits, errors.Join(stays, r.act(ctx, n, in, ev, plan))
}

// ownerRead is what the lookup of the node's owner reads. Few nodes carry the condition, and it must go at the next
// look if the owner opts out.
func ownerRead(in decide.Input, ev decide.Evidence) backends.Read {
	switch {
	case ev.Fresh:
		return backends.Latest
	case len(in.Node.RemediationConditions) > 0:
		return backends.ByName
	}
	return backends.Recent
}

// setCondition adds the action to the ledger, which then has the time of the condition, and sets the condition on the
// node that was decided on. If it is interrupted at any point, the next look continues.
func (r *Reconciler) setCondition(ctx context.Context, n *corev1.Node, in decide.Input, ev decide.Evidence,
	plan decide.Plan) error {
	now, want := r.View.Tracker.Now(), in.Config.NodeManagement.Remediation.Condition
	if err := r.enter(ctx, in, plan, now, ev.Ledger.Version); err != nil {
		return err
	}
	patch := marks.SetCondition(n, corev1.NodeCondition{Type: want.Type, Status: want.Status,
		Reason: marks.ReasonVerificationFailed, Message: attempt.Text(plan.Cause),
		LastTransitionTime: metav1.NewTime(now), LastHeartbeatTime: metav1.NewTime(now)})
	if err := r.patchStatus(ctx, n, patch); err != nil {
		if !apierrors.IsConflict(err) {
			r.Counters.Remediation(marks.KindCondition, metrics.RemediationError)
		}
		return fmt.Errorf("set condition %s: %w", want.Type, err)
	}
	if r.View.Tracker.DryRun {
		log.FromContext(ctx).Info("dry run: condition not set", "type", want.Type, "cause", plan.Cause)
		return nil
	}
	log.FromContext(ctx).Info("condition set", "type", want.Type, "cause", plan.Cause)
	r.Counters.Remediation(marks.KindCondition, metrics.RemediationStarted)
	r.emit(n, plan)
	return nil
}

func (r *Reconciler) emit(n *corev1.Node, plan decide.Plan) {
	for _, e := range plan.Events {
		r.Events.Emit(n, r.View.Tracker.Now(), e)
	}
}

// removeConditions removes conditions that the node should not have. A removal that fails is tried again with a
// backoff, and holds nothing else up, no other removal either: stays is its error. After err, all is decided again.
func (r *Reconciler) removeConditions(ctx context.Context, n *corev1.Node, kinds []corev1.NodeConditionType) (
	stays, err error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	err = r.patchStatus(ctx, n, marks.RemoveConditions(n, kinds))
	switch class := apierr.Of(err, apierr.Patch); {
	case class == apierr.Gone:
		return nil, nil
	case class == apierr.Conflict:
		return nil, err
	case class == apierr.Refused && len(kinds) > 1:
		return r.removeEach(ctx, n, kinds)
	case class != apierr.None:
		r.Counters.Remediation(marks.KindCondition, metrics.RemediationError)
		return staysError{kinds, fmt.Errorf("remove conditions %v: %w", kinds, err)}, nil
	case r.View.Tracker.DryRun:
		log.FromContext(ctx).Info("dry run: conditions not removed", "types", kinds)
	default:
		log.FromContext(ctx).Info("conditions removed", "types", kinds)
	}
	return nil, nil
}

// removeEach is removeConditions with a patch for each, because the API server may refuse only some.
func (r *Reconciler) removeEach(ctx context.Context, n *corev1.Node, kinds []corev1.NodeConditionType) (
	stays, err error) {
	for _, kind := range kinds {
		one, err := r.removeConditions(ctx, n, []corev1.NodeConditionType{kind})
		if stays = errors.Join(stays, one); err != nil {
			return stays, err
		}
	}
	return stays, nil
}

// patchStatus patches the status of a node, and keeps the version that the patch made for the writes that follow.
func (r *Reconciler) patchStatus(ctx context.Context, n *corev1.Node, patch []byte) error {
	target := controller.PatchTarget(n.Name)
	err := r.Writer.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
	if err == nil {
		n.ResourceVersion = target.ResourceVersion
	}
	return err
}

// countsFor is how long the counts of the fleet are reused for nodes that are held anyway.
const countsFor = 2 * time.Second

// count counts the fleet. If the node was read from the API server, it counts from there, too. Otherwise recent counts
// for another node are good enough.
func (r *Reconciler) count(ctx context.Context, in decide.Input, ev decide.Evidence) (decide.Counts, error) {
	now := r.View.Tracker.Now()
	if !ev.Fresh && now.Sub(r.counted) < countsFor {
		return r.counts, nil
	}
	read := r.Fleet.Summaries
	if ev.Fresh {
		read = func(ctx context.Context) ([]decide.NodeSummary, error) { return r.Fleet.ReadSummaries(ctx, r.Live) }
	}
	fleet, err := read(ctx)
	if err != nil {
		return decide.Counts{}, err
	}
	window := in.Config.NodeManagement.Remediation.Window.Duration
	var entries []ledger.Entry
	if ev.Ledger != nil { // with deletion off there is none
		entries = ev.Ledger.Entries
	}
	r.counts, r.counted = decide.CountNodes(fleet, entries, window, now), now
	return r.counts, nil
}

// problem is what an operator has to fix before evidence can be read. The text does not vary. It is empty for an error
// that may pass by itself.
func problem(err error) string {
	const what = "cannot read the guard's data, or create the ledger: "
	switch {
	case errors.Is(err, ledger.ErrUnreadable):
		return err.Error()
	case apierr.Of(err, apierr.Read) != apierr.Refused:
		return ""
	case apierrors.IsForbidden(err):
		return what + "the service account lacks a permission"
	}
	return what + attempt.Text(apierr.Refusal(err, apierr.Read))
}

// unexplained returns an error that is to be retried. It is nil for an error with a problem to report.
func unexplained(err error) error {
	if problem(err) != "" {
		return nil
	}
	return err
}

// act records the decision, and carries out a deletion.
func (r *Reconciler) act(ctx context.Context, n *corev1.Node, in decide.Input, ev decide.Evidence,
	plan decide.Plan) error {
	if plan.Recorded != nil || plan.Step != decide.StepRecord && plan.Step != decide.StepDelete ||
		plan.Change.Gate == marks.GateOpen { // a release, which may have to wait for rules
		return nil // what is next is not a remediation
	}
	patch := plan.Change.Patch(n, r.View.Config.Vocabulary())
	err := r.Writer.Patch(ctx, controller.PatchTarget(n.Name), client.RawPatch(types.MergePatchType, patch))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Counters.Suspicion(plan.Suspect, decide.SuspicionAccused)
	r.Counters.TakenBack(plan.TakenBack)
	rec := plan.Change.Record
	if rec.Held != "" && rec.Held != in.Node.Record.Held {
		r.Counters.Remediation(plan.Target.Kind, metrics.RemediationHeld)
	}
	if plan.Step == decide.StepDelete {
		if err := r.delete(ctx, in, plan, ev.Ledger.Version); err != nil {
			if !apierrors.IsConflict(err) {
				r.Counters.Remediation(plan.Target.Kind, metrics.RemediationError)
			}
			return err
		}
	}
	r.emit(n, plan)
	if r.View.Tracker.DryRun {
		r.View.Tracker.FinishDryRun(in) // the node does not show what was decided, so it would be decided again at every look
	}
	return nil
}

// delete adds the deletion to the ledger and ends the node's workers. Then it deletes the target on condition of its
// UID. If it is interrupted at any point, the deletion is decided again, and the ledger counts it once.
func (r *Reconciler) delete(ctx context.Context, in decide.Input, plan decide.Plan, decidedOn string) error {
	t := plan.Target
	if err := r.enter(ctx, in, plan, r.View.Tracker.Now(), decidedOn); err != nil {
		return err
	}
	for _, p := range in.Pods {
		if err := r.Pods.Delete(ctx, in, p); err != nil {
			return err
		}
	}
	if err := r.Owners.Act(ctx, t); client.IgnoreNotFound(err) != nil {
		return err
	}
	log.FromContext(ctx).Info("deleted", "kind", t.Kind, "name", t.Name, "uid", t.UID,
		"reason", in.Node.Record.LastReason, "check", in.Node.Record.LastCheck)
	r.Counters.Remediation(t.Kind, metrics.RemediationDeleted)
	return nil
}

// enter adds the action of the plan to the ledger.
func (r *Reconciler) enter(ctx context.Context, in decide.Input, plan decide.Plan, now time.Time,
	decidedOn string) error {
	t := plan.Target
	e := ledger.Entry{Time: metav1.NewTime(now), Node: in.Node.Name, UID: in.Node.UID, Pool: in.Node.Owner.Pool,
		Zone: in.Node.Zone, Kind: t.Kind, Name: t.Name, Reason: plan.Cause}
	if err := r.Ledger.Append(ctx, e, decide.Passed(in, now), decidedOn); err != nil {
		return fmt.Errorf("write the remediation of %s %s to the ledger: %w", t.Kind, t.Name, err)
	}
	return nil
}
