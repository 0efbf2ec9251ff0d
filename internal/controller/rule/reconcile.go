package rule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const (
	// statusEvery is the least time between two writes of one rule's status.
	statusEvery = 5 * time.Second
	// lookEvery is the least time between two looks at all nodes on behalf of one rule, whatever happens to them meanwhile.
	lookEvery = time.Second
	// releaseRetry is how soon it is asked again whether the nodes have let go of a deleted rule.
	releaseRetry = time.Second
	// conflictRetries is how often a write of finalizers that another writer overtook is made again at once, on a fresh read.
	conflictRetries = 8
	// pageSize is how many nodes one list request asks for.
	pageSize = 500
	// fieldManager signs what is written on rules.
	fieldManager = "kube-node-ready-controller"
)

// Room looks after the rules themselves: their finalizer, their status and what is said of them. What they ask of nodes is
// the node room's to write.
type Room struct {
	Rules *Rules
	// Live reads from the API server.
	Live client.Reader
	// Writer writes rules.
	Writer client.Client

	mu     sync.Mutex
	states map[types.UID]*roomState
	queue  atomic.Pointer[queue] // empty until the room runs
}

// roomState is what the room remembers of a rule.
type roomState struct {
	written time.Time // its last status
	looked  time.Time // when that was last compared with what it should be
	writers foreign
}

// Reconcile looks after one rule.
func (r *Room) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
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
	case state == decide.RulesStandingBack:
		r.Rules.Events.EmitRule(o, r.Rules.Now(), decide.StandBackEvent(why))
		return ctrl.Result{}, nil
	case state != decide.RulesServing:
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

func (r *Room) serve(ctx context.Context, s *set, c *decide.Rule, o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	r.say(s, c, o)
	switch {
	case r.Rules.Rehearsing:
		return 0, nil // nothing that is written stays
	case c.Deleting && c.Finalized:
		return r.letGo(ctx, c, o)
	case c.Deleting:
		return 0, nil
	case !c.Finalized && c.Fault == "":
		return 0, r.finalizers(ctx, o, with)
	}
	return r.report(ctx, c, o)
}

// say emits what there is to say of the rule. The same is said once.
func (r *Room) say(s *set, c *decide.Rule, o *v1alpha1.NodeReadinessRule) {
	now := r.Rules.Now()
	if c.Fault != "" {
		r.Rules.Events.EmitRule(o, now, decide.RefusedEvent(c))
	}
	if by := s.overruled[c.UID]; by != nil {
		r.Rules.Events.EmitRule(o, now, decide.OverruledEvent(c, by))
	}
	if manager, fresh := r.state(o.UID).writers.see(o); manager != "" && fresh {
		r.Rules.Events.EmitRule(o, now, decide.Event{Reason: decide.EventRuleOtherWriter, Key: o.ResourceVersion, Message: fmt.Sprintf(
			"%s writes the status of this rule as well: two controllers that serve the same rules undo each other's work; stop one of them, or set rules.enabled to false here", manager)})
	}
}

// state is what is remembered of a rule. It is the room's alone, which looks at one rule after the other.
func (r *Room) state(uid types.UID) *roomState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states == nil {
		r.states = map[types.UID]*roomState{}
	}
	if r.states[uid] == nil {
		r.states[uid] = &roomState{}
	}
	return r.states[uid]
}

// finalizers writes what change makes of the rule's finalizers, on condition that the rule did not change since it was read.
func (r *Room) finalizers(ctx context.Context, o *v1alpha1.NodeReadinessRule, change func([]string) []string) error {
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

// letGo takes our finalizer from a deleted rule once no node has what it owns.
func (r *Room) letGo(ctx context.Context, c *decide.Rule, o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	if !c.DryRun {
		left, err := r.left(ctx, c)
		if err != nil {
			return 0, err
		}
		if left {
			return releaseRetry, nil
		}
	}
	if err := r.finalizers(ctx, o, without); err != nil {
		return 0, err
	}
	log.FromContext(ctx).Info("rule is let go of", "rule", c.Name)
	return 0, nil
}

// left reports whether a node still has what the deleted rule owns, and wakes those that do. The cache is asked first, the
// API server last: it alone knows.
func (r *Room) left(ctx context.Context, c *decide.Rule) (bool, error) {
	if !r.Rules.landed() {
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
	if err := controller.Pages(ctx, r.Live, pageSize, func() *corev1.NodeList { return &corev1.NodeList{} }, func(page *corev1.NodeList, _ bool) bool {
		look(page)
		return !left
	}); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	return left, nil
}

// owns reports whether the rule, which is deleted, owns a taint of the node, or would take one off.
func (r *Rules) owns(c *decide.Rule, n *corev1.Node) bool {
	if _, written := marks.OwnedOn(n)[c.UID]; written {
		return n.DeletionTimestamp == nil // what is on its way out takes its taints along
	}
	r.mu.Lock()
	adopting := r.sight(n).adopting
	r.mu.Unlock()
	plan := decide.NextRules(decide.RuleNode{Node: n, Adopting: adopting}, []decide.Rule{*c}, 0, r.Now())
	return !plan.Change.Empty()
}

// landed reports whether everything that was decided on an earlier set of rules is written.
func (r *Rules) landed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flights.landed()
}

// report writes the rule's status where it says something else than it should, and not more often than statusEvery.
func (r *Room) report(ctx context.Context, c *decide.Rule, o *v1alpha1.NodeReadinessRule) (wait time.Duration, err error) {
	now, state := r.Rules.Now(), r.state(o.UID)
	next := state.written.Add(statusEvery)
	if again := state.looked.Add(lookEvery); o.Status.ObservedGeneration == o.Generation && again.After(next) {
		next = again
	}
	if left := next.Sub(now); left > 0 {
		return left, nil
	}
	state.looked = now
	tallies, err := r.Rules.Tallies(ctx)
	if err != nil {
		return 0, err
	}
	want := o.DeepCopy()
	want.Status = decide.RuleStatus(c, o.Status, tallies[c.UID], r.Rules.failures(c), now)
	if equality.Semantic.DeepEqual(want.Status, o.Status) {
		return 0, nil
	}
	patch, err := statusPatch(o, want)
	if err != nil {
		return 0, err
	}
	if err := r.Writer.Status().Patch(ctx, named(o), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager)); err != nil {
		return 0, err
	}
	state.written = now
	return statusEvery, nil
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
func (r *Rules) failures(c *decide.Rule) map[string]decide.RuleFailure {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := map[string]decide.RuleFailure{}
	for name, s := range r.sights {
		if s.failure.Message != "" && s.failed[c.UID] {
			failed[name] = s.failure
		}
	}
	return failed
}
