package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/nodecache"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// statusInterval is the least time between two writes of one rule's status.
	statusInterval = 5 * time.Second
	// evaluateInterval is the least time between two evaluations of one rule's status.
	evaluateInterval = time.Second
	// releaseRetry is how soon the nodes are checked again for what a deleted rule owns.
	releaseRetry = time.Second
	// prunedFor is how long a definition without our status fields is remembered. After that, a newer definition may have
	// them.
	prunedFor = time.Hour
	// conflictRetries is how often a write of finalizers is retried at once, on a fresh read, after a conflict.
	conflictRetries = 8
	// pageSize is how many nodes one list request asks for.
	pageSize = 500
	// fieldManager signs what is written on rules.
	fieldManager = "kube-node-ready-controller"
)

// Reconciler manages the rules themselves: their finalizer, their status and their events. The node reconciler writes
// what they ask of nodes.
type Reconciler struct {
	Rules *Rules
	// Live reads from the API server.
	Live client.Reader
	// Writer writes rules.
	Writer client.Client
	// Pod is the controller's own; the zero value where it runs in no pod.
	Pod types.NamespacedName

	states map[types.UID]*ruleState // used by Reconcile alone, which handles one rule after the other
	self   self                     // likewise
	queue  atomic.Pointer[queue]    // nil until the controller runs
}

// ruleState is what the reconciler remembers of a rule.
type ruleState struct {
	written   time.Time // its last status
	evaluated time.Time // when that was last compared with what it should be
	// writers reports whether otherWrite is known: when another controller last wrote the status. Such a write is the only
	// sign of a controller that serves rules without a Lease. A write from before this process first read the rule does
	// not count.
	writers    bool
	otherWrite time.Time
	// prunedUntil is until when the controller assumes that the definition of the resource lacks our status fields.
	prunedUntil time.Time
	// limited is since when rules.maxClosedPercent leaves nodes open; zero if it leaves none.
	limited time.Time
}

// Reconcile reconciles one rule.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	s := r.Rules.all()
	if s == nil {
		return ctrl.Result{}, nil // it is enqueued once they are listed
	}
	c, o := s.rule(req.Name)
	if c == nil {
		r.Rules.Counters.Gone(req.Name)
		return ctrl.Result{}, nil
	}
	state, why := r.Rules.State()
	switch state {
	case rule.StandingBack:
		r.Rules.Events.EmitRule(o, r.Rules.Now(), rule.StandBackEvent(why))
	case rule.Forbidden:
		r.Rules.Events.EmitRule(o, r.Rules.Now(), rule.UnavailableEvent(why))
	case rule.Serving:
		wait, err := r.serve(ctx, s, c, o)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			// Another write was faster. That write causes an event. The retry is for a write whose event came before this
			// reconcile.
			return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("rule %s: %w", c.Name, err)
		}
		r.Rules.Counters.Reconciled(c.Name, r.Rules.Now())
		return ctrl.Result{RequeueAfter: wait}, nil
	default:
		return ctrl.Result{}, nil // it is enqueued when that changes
	}
	return ctrl.Result{}, r.notServing(ctx, c, o, state, why)
}

// notServing sets the condition Serving to False on a rule that was served here before. It writes nothing else, because
// the rule is not served here.
func (r *Reconciler) notServing(ctx context.Context, c *rule.Rule, o *v1alpha1.NodeReadinessRule,
	state rule.ServingState, why string) error {
	conditions := rule.NotServing(c, o.Status.Conditions, state, why, r.Rules.Now())
	if conditions == nil || r.Rules.DryRun {
		return nil
	}
	want := o.DeepCopy()
	want.Status.Conditions = conditions
	if _, err := r.writeStatus(ctx, o, want); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("rule %s: %w", c.Name, err)
	}
	return nil
}

func (r *Reconciler) serve(ctx context.Context, s *set, c *rule.Rule,
	o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	r.emit(s, c, o)
	switch {
	case r.Rules.DryRun:
		return 0, nil // nothing that is written persists
	case c.Deleting && c.Finalized:
		return r.release(ctx, c, o)
	case c.Deleting:
		return 0, nil
	case !c.Finalized && c.Invalid == "":
		return 0, r.finalize(ctx, c, o)
	}
	return r.reportStatus(ctx, s, c, o)
}

// emit emits the events of the rule. The emitter drops an event that it has emitted before.
func (r *Reconciler) emit(s *set, c *rule.Rule, o *v1alpha1.NodeReadinessRule) {
	now := r.Rules.Now()
	if c.Invalid != "" {
		r.Rules.Events.EmitRule(o, now, rule.RefusedEvent(c))
	}
	if by := s.overruled[c.UID]; by != nil {
		r.Rules.Events.EmitRule(o, now, rule.OverruledEvent(c, by))
	}
	if manager := r.state(o.UID).otherWriter(o); manager != "" {
		r.Rules.Events.EmitRule(o, now, rule.OtherWriterEvent(manager, o.ResourceVersion))
	}
}

func (r *Reconciler) state(uid types.UID) *ruleState {
	if r.states == nil {
		r.states = map[types.UID]*ruleState{}
	}
	if r.states[uid] == nil {
		r.states[uid] = &ruleState{}
	}
	return r.states[uid]
}

// finalize adds our finalizer to a rule. If the API server refuses that, the rule and the nodes that it selects report
// it.
func (r *Reconciler) finalize(ctx context.Context, c *rule.Rule, o *v1alpha1.NodeReadinessRule) error {
	err := r.writeFinalizers(ctx, o, true)
	why := apierr.Refusal(err, apierr.Patch)
	if why != "" {
		why = fmt.Sprintf("cannot add the finalizer to rule %s: %s%s", c.Name, why, grant)
		r.Rules.Events.EmitRule(o, r.Rules.Now(), rule.UnavailableEvent(why))
	}
	r.Rules.finalizerRefused(c, why)
	return err
}

// writeFinalizers adds our finalizer to a rule or removes it, if the rule has not changed since it was read.
func (r *Reconciler) writeFinalizers(ctx context.Context, o *v1alpha1.NodeReadinessRule, ours bool) error {
	for try := 0; ; try++ {
		finalizers := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == v1alpha1.Finalizer })
		if ours {
			finalizers = append(finalizers, v1alpha1.Finalizer)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": finalizers}})
		if err != nil {
			return err
		}
		merge := client.RawPatch(types.MergePatchType, patch)
		err = r.Writer.Patch(ctx, named(o), merge, client.FieldOwner(fieldManager))
		if !apierrors.IsConflict(err) || try == conflictRetries {
			return err
		}
		now := &v1alpha1.NodeReadinessRule{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			return err
		}
		if now.UID != o.UID || (now.DeletionTimestamp == nil) != (o.DeletionTimestamp == nil) {
			return nil // another one, and it comes as an event
		}
		o = now
	}
}

func named(o *v1alpha1.NodeReadinessRule) *v1alpha1.NodeReadinessRule {
	out := &v1alpha1.NodeReadinessRule{}
	out.Name = o.Name
	return out
}

// release removes our finalizer from a deleted rule once no node has a taint that the rule owns.
func (r *Reconciler) release(ctx context.Context, c *rule.Rule,
	o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	owns, err := r.ownsAny(ctx, c)
	if err != nil {
		return 0, err
	}
	if owns {
		return releaseRetry, nil
	}
	if err := r.writeFinalizers(ctx, o, false); err != nil {
		return 0, err
	}
	log.FromContext(ctx).Info("no node has a taint of the deleted rule; its finalizer is removed", "rule", c.Name)
	return 0, nil
}

// ownsAny reports whether a node still has what the deleted rule owns, and enqueues those nodes. It checks the cache
// first. Because the cache may be behind, it then checks the API server.
func (r *Reconciler) ownsAny(ctx context.Context, c *rule.Rule) (owns bool, err error) {
	if !r.Rules.written() {
		return true, nil
	}
	check := func(n *corev1.Node) {
		if r.Rules.owns(c, n) {
			owns = true
			r.Rules.EnqueueNode(n.Name)
		}
	}
	cached, err := nodecache.Each(ctx, r.Rules.Nodes)
	if err != nil {
		return false, fmt.Errorf("list nodes in the cache: %w", err)
	}
	for n := range cached {
		check(n)
	}
	if owns {
		return true, nil
	}
	empty := func() *corev1.NodeList { return &corev1.NodeList{} }
	if err := apiread.Pages(ctx, r.Live, pageSize, empty, func(page *corev1.NodeList, _ bool) bool {
		for i := range page.Items {
			check(&page.Items[i])
		}
		return !owns
	}); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	return owns, nil
}

// reportStatus writes the rule's status if it must change, but not more often than statusInterval.
func (r *Reconciler) reportStatus(ctx context.Context, s *set, c *rule.Rule,
	o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	now, state := r.Rules.Now(), r.state(o.UID)
	next := state.written.Add(statusInterval)
	if again := state.evaluated.Add(evaluateInterval); o.Status.ObservedGeneration == o.Generation && again.After(next) {
		next = again
	}
	if left := next.Sub(now); left > 0 {
		return left, nil
	}
	state.evaluated = now
	tally, err := r.Rules.tally(ctx, c)
	if err != nil {
		return 0, err
	}
	tolerated, err := r.tolerated(ctx, c)
	if err != nil {
		return 0, err
	}
	percent := r.Rules.Config.MaxClosedPercent
	if len(tally.LeftOpen) == 0 {
		state.limited = time.Time{}
	} else if state.limited.IsZero() { // one event each time that the limit is reached
		state.limited = now
		key := now.UTC().Format(time.RFC3339)
		r.Rules.Events.EmitRule(o, now, rule.ClosingLimitedEvent(&tally, percent, key))
	}
	want := o.DeepCopy()
	want.Status = rule.Status(c, o.Status, &tally, r.Rules.failures(c), now)
	want.Status.Conditions = rule.Conditions(c, o.Status.Conditions, s.overruled[c.UID], &tally, percent, tolerated, now)
	if state.upToDate(o.Status, want.Status, now) {
		return 0, nil
	}
	written, err := r.writeStatus(ctx, o, want)
	if err != nil {
		return 0, err
	}
	state.written = now
	if len(written.Status.Conditions) == 0 {
		state.prunedUntil = now.Add(prunedFor)
	}
	return statusInterval, nil
}

// upToDate reports whether a rule's status is what it should be. A definition of the resource without our status fields
// drops them. Fields that are missing for that reason are not written again, because that would never end.
func (s *ruleState) upToDate(have, want v1alpha1.NodeReadinessRuleStatus, now time.Time) bool {
	if now.Before(s.prunedUntil) && len(have.Conditions) == 0 {
		want.Conditions, want.Summary = nil, nil
	}
	return equality.Semantic.DeepEqual(have, want)
}

// writeStatus writes the changes of a rule's status, and returns the rule as the API server stored it.
func (r *Reconciler) writeStatus(ctx context.Context,
	o, want *v1alpha1.NodeReadinessRule) (*v1alpha1.NodeReadinessRule, error) {
	patch, err := statusPatch(o, want)
	if err != nil {
		return nil, err
	}
	written, merge := named(o), client.RawPatch(types.MergePatchType, patch)
	return written, r.Writer.Status().Patch(ctx, written, merge, client.FieldOwner(fieldManager))
}

// statusPatch renders the changes of the status, on condition of the rule's UID. It has no resourceVersion. No other
// program writes the status, and frequent writes to the rest of the rule must not block this one.
func statusPatch(o, want *v1alpha1.NodeReadinessRule) ([]byte, error) {
	raw, err := client.MergeFrom(o).Data(want)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, err
	}
	patch["metadata"] = map[string]any{"uid": o.UID}
	return json.Marshal(patch)
}

// otherWriter is another controller that has written the rule's status since the last call, or empty if there is none.
func (s *ruleState) otherWriter(o *v1alpha1.NodeReadinessRule) (manager string) {
	last := time.Time{}
	for _, e := range o.ManagedFields {
		other := e.Subresource == "status" && e.Manager != fieldManager && !strings.HasPrefix(e.Manager, "kubectl")
		if other && e.Time != nil && e.Time.After(last) {
			last, manager = e.Time.Time, e.Manager
		}
	}
	if !s.writers || !last.After(s.otherWrite) {
		manager = ""
	}
	s.writers, s.otherWrite = true, last
	return manager
}

// lastWrittenHere reports whether the last write to the rule was our status. Then the rule has nothing new.
func lastWrittenHere(o *v1alpha1.NodeReadinessRule) (ours bool) {
	var last time.Time
	for _, e := range o.ManagedFields {
		if e.Time == nil || e.Time.Time.Before(last) {
			continue
		}
		// Times are in whole seconds. Of two writes in the same second, the one from elsewhere counts.
		ours = e.Manager == fieldManager && e.Subresource == "status" && (ours || e.Time.After(last))
		last = e.Time.Time
	}
	return ours
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Setup registers the controller with the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("rule").
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.queue.Store(&q)
			return nil
		})).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: 1,
			LogConstructor: func(req *reconcile.Request) logr.Logger {
				if req == nil {
					return mgr.GetLogger()
				}
				return mgr.GetLogger().WithValues("rule", req.Name)
			},
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}

// Enqueue has the reconciler look at a rule. It never blocks.
func (r *Reconciler) Enqueue(name string) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}
