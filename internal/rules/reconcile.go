package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// statusEvery is the least time between two writes of one rule's status.
	statusEvery = 5 * time.Second
	// lookEvery is the least time between two looks at all nodes on behalf of one rule, whatever happens to them meanwhile.
	lookEvery = time.Second
	// releaseRetry is how soon it is asked again whether the nodes have let go of a deleted rule.
	releaseRetry = time.Second
	// prunedFor is how long a definition without our fields of the status is remembered: a new one may have them.
	prunedFor = time.Hour
	// conflictRetries is how often a write of finalizers that another writer overtook is made again at once, on a fresh read.
	conflictRetries = 8
	// pageSize is how many nodes one list request asks for.
	pageSize = 500
	// fieldManager signs what is written on rules.
	fieldManager = "kube-node-ready-controller"
)

// Reconciler looks after the rules themselves: their finalizer, their status and their events. What they ask of nodes is
// the node reconciler's to write.
type Reconciler struct {
	Rules *Rules
	// Live reads from the API server.
	Live client.Reader
	// Writer writes rules.
	Writer client.Client

	mu     sync.Mutex
	states map[types.UID]*ruleState
	queue  atomic.Pointer[queue] // empty until the controller runs
}

// ruleState is what the reconciler remembers of a rule.
type ruleState struct {
	written time.Time // its last status
	looked  time.Time // when that was last compared with what it should be
	writer  otherWriter
	// prunedUntil is until when the definition of the resource is taken for one without our fields of the status.
	prunedUntil time.Time
	// limited is since when rules.maxClosedPercent leaves nodes open; zero where it leaves none.
	limited time.Time
}

// Reconcile looks after one rule.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	s := r.Rules.all()
	if s == nil {
		return ctrl.Result{}, nil // it is woken once they are listed
	}
	c, o := s.rule(req.Name)
	state, why := r.Rules.State()
	switch {
	case c == nil:
		r.Rules.Counters.Gone(req.Name)
		return ctrl.Result{}, nil
	case state == rule.StandingBack:
		r.Rules.Events.EmitRule(o, r.Rules.Now(), rule.StandBackEvent(why))
		return r.notServing(ctx, c, o, state, why)
	case state == rule.Forbidden:
		r.Rules.Events.EmitRule(o, r.Rules.Now(), rule.UnavailableEvent(why))
		return r.notServing(ctx, c, o, state, why)
	case state != rule.Serving:
		return ctrl.Result{}, nil // it is woken when that changes
	}
	wait, err := r.serve(ctx, s, c, o)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Another writer was quicker. What it wrote comes as an event; this is for one that came before.
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("rule %s: %w", req.Name, err)
	}
	r.Rules.Counters.Reconciled(c.Name, r.Rules.Now())
	return ctrl.Result{RequeueAfter: wait}, nil
}

// notServing ends what the rule's status says of being served. Nothing else is written on a rule that is not served
// here.
func (r *Reconciler) notServing(ctx context.Context, c *rule.Rule, o *v1alpha1.NodeReadinessRule,
	state rule.ServingState, why string) (ctrl.Result, error) {
	conditions := rule.NotServing(c, o.Status.Conditions, state, why, r.Rules.Now())
	if conditions == nil || r.Rules.DryRun || r.Rules.servedElsewhere() {
		return ctrl.Result{}, nil
	}
	want := o.DeepCopy()
	want.Status.Conditions = conditions
	if _, err := r.writeStatus(ctx, o, want); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("rule %s: %w", c.Name, err)
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) serve(ctx context.Context, s *set, c *rule.Rule, o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	r.emit(s, c, o)
	switch {
	case r.Rules.DryRun:
		return 0, nil // nothing that is written stays
	case c.Deleting && c.Finalized:
		return r.release(ctx, c, o)
	case c.Deleting:
		return 0, nil
	case !c.Finalized && c.Invalid == "":
		return 0, r.finalize(ctx, c, o)
	}
	return r.report(ctx, s, c, o)
}

// emit emits the events of the rule. The same one is emitted once.
func (r *Reconciler) emit(s *set, c *rule.Rule, o *v1alpha1.NodeReadinessRule) {
	now := r.Rules.Now()
	if c.Invalid != "" {
		r.Rules.Events.EmitRule(o, now, rule.RefusedEvent(c))
	}
	if by := s.overruled[c.UID]; by != nil {
		r.Rules.Events.EmitRule(o, now, rule.OverruledEvent(c, by))
	}
	if manager, fresh := r.state(o.UID).writer.observe(o); manager != "" && fresh {
		r.Rules.Events.EmitRule(o, now, decide.Event{Reason: rule.EventOtherWriter, Key: o.ResourceVersion, Message: fmt.Sprintf(
			"%s writes the status of this rule as well: two controllers that serve the same rules undo each other's work; stop one of them, or set rules.enabled to false here", manager)})
	}
}

// state is what is remembered of a rule. It is the reconciler's alone, which looks at one rule after the other.
func (r *Reconciler) state(uid types.UID) *ruleState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states == nil {
		r.states = map[types.UID]*ruleState{}
	}
	if r.states[uid] == nil {
		r.states[uid] = &ruleState{}
	}
	return r.states[uid]
}

// finalize puts our finalizer on a rule. Where the API server refuses that, the rule and the nodes that it selects say
// so.
func (r *Reconciler) finalize(ctx context.Context, c *rule.Rule, o *v1alpha1.NodeReadinessRule) error {
	err := r.finalizers(ctx, o, with)
	why := controller.Refusal(err)
	if why != "" {
		why = fmt.Sprintf("rule %s gets no finalizer: %s%s", c.Name, why, grant)
		r.Rules.Events.EmitRule(o, r.Rules.Now(), rule.UnavailableEvent(why))
	}
	r.Rules.Refused(c, why)
	return err
}

// finalizers writes what change makes of the rule's finalizers, on condition that the rule did not change since it was read.
func (r *Reconciler) finalizers(ctx context.Context, o *v1alpha1.NodeReadinessRule, change func([]string) []string) error {
	for try := 0; ; try++ {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": change(slices.Clone(o.Finalizers))}})
		if err != nil {
			return err
		}
		err = r.Writer.Patch(ctx, named(o), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
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

func with(finalizers []string) []string { return append(without(finalizers), v1alpha1.Finalizer) }

func without(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(f string) bool { return f == v1alpha1.Finalizer })
}

func named(o *v1alpha1.NodeReadinessRule) *v1alpha1.NodeReadinessRule {
	out := &v1alpha1.NodeReadinessRule{}
	out.Name = o.Name
	return out
}

// release takes our finalizer from a deleted rule once no node has what it owns.
func (r *Reconciler) release(ctx context.Context, c *rule.Rule, o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	left, err := r.left(ctx, c)
	if err != nil {
		return 0, err
	}
	if left {
		return releaseRetry, nil
	}
	if err := r.finalizers(ctx, o, without); err != nil {
		return 0, err
	}
	log.FromContext(ctx).Info("rule is let go of", "rule", c.Name)
	return 0, nil
}

// left reports whether a node still has what the deleted rule owns, and wakes those that do. The cache is asked first, the
// API server last: it alone knows.
func (r *Reconciler) left(ctx context.Context, c *rule.Rule) (bool, error) {
	if !r.Rules.written() {
		return true, nil
	}
	left := false
	look := func(nodes *corev1.NodeList) {
		for i := range nodes.Items {
			if n := &nodes.Items[i]; r.Rules.owns(c, n) {
				left = true
				r.Rules.WakeNode(n.Name)
			}
		}
	}
	var cached corev1.NodeList
	if err := r.Rules.Nodes.List(ctx, &cached, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list nodes in the cache: %w", err)
	}
	look(&cached)
	if left {
		return true, nil
	}
	if err := apiread.Pages(ctx, r.Live, pageSize, func() *corev1.NodeList { return &corev1.NodeList{} }, func(page *corev1.NodeList, _ bool) bool {
		look(page)
		return !left
	}); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	return left, nil
}

// owns reports whether the rule, which is deleted, owns a taint of the node, or would take one off.
func (r *Rules) owns(c *rule.Rule, n *corev1.Node) bool {
	if n.DeletionTimestamp != nil {
		return false // it takes its taints along
	}
	id := c.Taint.ID()
	if marks.OwnedOn(n)[c.UID] == id {
		return true
	}
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return marks.TaintIDOf(t) == id }) {
		return false
	}
	r.mu.Lock()
	adopting, s := r.observation(n).adopting, r.set
	r.mu.Unlock()
	plan := rule.Next(rule.Node{Node: n, Gating: r.Gating, Adopting: adopting}, s.rules, 0, r.Now())
	return slices.ContainsFunc(plan.Acts, func(a rule.Act) bool { return a.Rule.UID == c.UID })
}

// report writes the rule's status where it says something else than it should, and not more often than statusEvery.
func (r *Reconciler) report(ctx context.Context, s *set, c *rule.Rule,
	o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	now, state := r.Rules.Now(), r.state(o.UID)
	next := state.written.Add(statusEvery)
	if again := state.looked.Add(lookEvery); o.Status.ObservedGeneration == o.Generation && again.After(next) {
		next = again
	}
	if left := next.Sub(now); left > 0 {
		return left, nil
	}
	state.looked = now
	standing, err := r.Rules.standing(ctx, c)
	if err != nil {
		return 0, err
	}
	percent := r.Rules.Config.MaxClosedPercent
	r.limit(o, state, &standing, now)
	want := o.DeepCopy()
	want.Status = rule.Status(c, o.Status, &standing, r.Rules.failures(c), now)
	want.Status.Conditions = rule.Conditions(c, o.Status.Conditions, s.overruled[c.UID], &standing, percent, now)
	if state.says(o.Status, want.Status, now) {
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
	return statusEvery, nil
}

// says reports whether a rule's status says what it should. A definition of the resource without our fields prunes
// them: what is left out for that reason is not written again, or it would be for ever.
func (s *ruleState) says(have, want v1alpha1.NodeReadinessRuleStatus, now time.Time) bool {
	if now.Before(s.prunedUntil) && len(have.Conditions) == 0 {
		want.Conditions, want.Summary = nil, nil
	}
	return equality.Semantic.DeepEqual(have, want)
}

// limit emits that rules.maxClosedPercent leaves nodes open, once for each time that it begins to.
func (r *Reconciler) limit(o *v1alpha1.NodeReadinessRule, state *ruleState, t *rule.Tally, now time.Time) {
	switch {
	case len(t.LeftOpen) == 0:
		state.limited = time.Time{}
	case state.limited.IsZero():
		state.limited = now
		key := now.UTC().Format(time.RFC3339)
		r.Rules.Events.EmitRule(o, now, rule.ClosingLimitedEvent(t, r.Rules.Config.MaxClosedPercent, key))
	}
}

// writeStatus writes what changes in a rule's status, and returns what the API server made of it.
func (r *Reconciler) writeStatus(ctx context.Context,
	o, want *v1alpha1.NodeReadinessRule) (*v1alpha1.NodeReadinessRule, error) {
	patch, err := statusPatch(o, want)
	if err != nil {
		return nil, err
	}
	written, merge := named(o), client.RawPatch(types.MergePatchType, patch)
	return written, r.Writer.Status().Patch(ctx, written, merge, client.FieldOwner(fieldManager))
}

// statusPatch renders what changes in the status, on condition of the rule's UID. Nobody else writes the status, and whoever
// writes the rest of the rule all the time must not keep it from being written.
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

// failures are the nodes on which the rule could not be carried out.
func (r *Rules) failures(c *rule.Rule) map[string]rule.Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := map[string]rule.Failure{}
	for name, s := range r.observations {
		if s.failure.Message != "" && s.failed[c.UID] {
			failed[name] = s.failure
		}
	}
	return failed
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
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}

// Wake has the reconciler look at a rule. It never blocks.
func (r *Reconciler) Wake(name string) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

// otherWriter is who else writes the status of a rule, by when: a controller that serves it too, and holds no Lease that would
// show it. What was written before we first looked is history.
type otherWriter struct {
	known bool
	last  time.Time
}

// observe looks at who wrote the rule's status. fresh reports whether that was since the last look.
func (f *otherWriter) observe(o *v1alpha1.NodeReadinessRule) (manager string, fresh bool) {
	last := time.Time{}
	for _, e := range o.ManagedFields {
		if e.Subresource != "status" || e.Manager == fieldManager || strings.HasPrefix(e.Manager, "kubectl") || e.Time == nil {
			continue
		}
		if e.Time.After(last) {
			last, manager = e.Time.Time, e.Manager
		}
	}
	fresh = f.known && last.After(f.last)
	f.known, f.last = true, last
	return manager, fresh
}

// lastWrittenHere reports whether the last write of the rule was our status: it says nothing that is not known.
func lastWrittenHere(o *v1alpha1.NodeReadinessRule) bool {
	var last time.Time
	ours := false
	for _, e := range o.ManagedFields {
		if e.Time == nil || e.Time.Time.Before(last) {
			continue
		}
		// Times are of whole seconds. Of two writes in one the other one counts.
		ours = e.Manager == fieldManager && e.Subresource == "status" && (ours || e.Time.After(last))
		last = e.Time.Time
	}
	return ours
}
