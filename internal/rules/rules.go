// Package rules serves NodeReadinessRules. It knows which rules exist and whether this controller serves them, decides
// what they require of a node, and writes their status. The node reconciler, as the only writer of a node's marks,
// writes what they require.
package rules

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodecache"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// Emitter writes events. It never blocks.
type Emitter interface {
	Emit(n *corev1.Node, at time.Time, e decide.Event)
	EmitRule(r *v1alpha1.NodeReadinessRule, at time.Time, e decide.Event)
}

// Rules are the existing rules, and what they require of nodes.
type Rules struct {
	// Config is the section rules, Gating the taints that verification owns.
	Config config.Rules
	Gating []marks.Taint
	// Nodes reads nodes from the cache.
	Nodes client.Reader
	// Now is the clock.
	Now func() time.Time
	// DryRun: nothing that is written in a dry run persists.
	DryRun   bool
	Counters *Counters
	Events   Emitter
	// EnqueueNode has the node reconciler look at a node, EnqueueRule the reconciler of rules at a rule. Neither blocks.
	EnqueueNode, EnqueueRule func(name string)

	mu         sync.Mutex
	set        *set // nil until the rules are listed
	serving    serving
	nodes      map[string]*nodeState // by name
	started    time.Time             // when this process first observed a node
	lastChange time.Time             // when a node last joined or changed
	awaiting   map[string]bool       // the nodes that wait for the first list of the rules
	// tallies count the nodes of each rule, by UID: see counted.
	tallies map[string]*rule.Tally
	// closing are the nodes, by the rule's UID, on which a rule puts its taint again after it released them: decided
	// here, whether the cache shows it or not. Decisions about nodes are concurrent, and rules.maxClosedPercent must
	// hold for all of them together. A node stays here until a decision finds it without the taint and open.
	closing map[string]map[string]bool
	// confirmed are the rules, by UID, that still existed after their first taint was written.
	confirmed map[string]bool
	// refused says why the API server refuses a rule's finalizer, by the rule's UID.
	refused map[string]string
	// pending counts the decisions that are not written yet, by the generation of the set of rules that they were made
	// with. A deleted rule waits for those of earlier generations: they may still add its taint to a node.
	pending    map[int]int
	generation int
}

// set is the rules at one time. It is immutable.
type set struct {
	rules     []rule.Rule
	objects   map[string]*v1alpha1.NodeReadinessRule // by name
	overruled map[string]*rule.Rule                  // by UID
}

// rule is the rule of a name; nil for none.
func (s *set) rule(name string) (*rule.Rule, *v1alpha1.NodeReadinessRule) {
	i := slices.IndexFunc(s.rules, func(r rule.Rule) bool { return r.Name == name })
	if i < 0 {
		return nil, nil
	}
	return &s.rules[i], s.objects[name]
}

// concerns reports whether a rule, also one in dryRun or a refused one, selects the node or has put its taint there.
func (s *set) concerns(n *corev1.Node) bool {
	return slices.ContainsFunc(s.rules, func(c rule.Rule) bool {
		return c.Concerns(n.Labels) || rule.Tainted(n, c.Taint.ID())
	})
}

// Replace takes over the rules that exist, and enqueues all rules and the nodes that changed ones concern. A write of a
// status concerns no node.
func (r *Rules) Replace(ctx context.Context, all []*v1alpha1.NodeReadinessRule) error {
	next := &set{objects: map[string]*v1alpha1.NodeReadinessRule{}}
	for _, o := range all {
		next.objects[o.Name] = o
	}
	before := r.all()
	if before != nil && maps.EqualFunc(before.objects, next.objects, sameSpec) {
		next.rules, next.overruled = before.rules, before.overruled
		r.mu.Lock()
		r.set = next
		r.mu.Unlock()
		for name, o := range next.objects {
			if o.ResourceVersion != before.objects[name].ResourceVersion && !lastWrittenHere(o) {
				r.EnqueueRule(name)
			}
		}
		return nil
	}
	uids := map[string]bool{}
	for _, o := range all {
		c := rule.Compile(o, r.Gating)
		c.Finalized = c.Finalized || r.DryRun // a dry run shows what happens once the finalizer is there
		next.rules = append(next.rules, c)
		uids[c.UID] = true
	}
	rule.Sort(next.rules)
	next.overruled = rule.Overruled(next.rules)
	r.mu.Lock()
	r.set, r.tallies, r.serving.definition, r.serving.unlisted = next, nil, definitionPresent, ""
	maps.DeleteFunc(r.closing, func(uid string, _ map[string]bool) bool { return !uids[uid] })
	maps.DeleteFunc(r.confirmed, func(uid string, _ bool) bool { return !uids[uid] })
	if len(next.rules) == 0 { // as state leaves it, where none was there from the start
		maps.DeleteFunc(r.nodes, func(_ string, s *nodeState) bool { return s.failed == nil && s.reported == "" })
	}
	r.generation++
	awaiting := r.awaiting
	r.awaiting = nil
	r.mu.Unlock()
	return r.enqueueChanged(ctx, before, next, awaiting)
}

// sameSpec reports whether two versions of a rule ask the same of nodes.
func sameSpec(a, b *v1alpha1.NodeReadinessRule) bool {
	return a != nil && b != nil && a.UID == b.UID && a.Generation == b.Generation &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && slices.Equal(a.Finalizers, b.Finalizers)
}

// enqueueChanged enqueues all rules, the nodes that changed rules concern, and those that awaited the first list. An
// unchanged rule is enqueued because no change of a node enqueues it until the tallies are computed anew.
func (r *Rules) enqueueChanged(ctx context.Context, before, next *set, awaiting map[string]bool) error {
	if before == nil {
		before = &set{}
	}
	var changed []rule.Rule
	for _, c := range next.rules {
		if !sameSpec(before.objects[c.Name], next.objects[c.Name]) {
			changed = append(changed, c)
		}
		r.EnqueueRule(c.Name)
	}
	for _, c := range before.rules {
		if next.objects[c.Name] == nil {
			changed = append(changed, c)
			r.EnqueueRule(c.Name)
		}
	}
	r.enqueueAwaiting(awaiting)
	if len(changed) == 0 {
		return nil
	}
	return r.enqueueNodes(ctx, func(n *corev1.Node) bool {
		owned := marks.OwnedOn(n)
		return slices.ContainsFunc(changed, func(c rule.Rule) bool {
			_, owns := owned[c.UID]
			return owns || c.Concerns(n.Labels)
		})
	})
}

// enqueueAwaiting has the node reconciler look at the nodes that waited for the rules. Call it before enqueueNodes,
// whose look at all nodes takes a while.
func (r *Rules) enqueueAwaiting(nodes map[string]bool) {
	for name := range nodes {
		r.EnqueueNode(name)
	}
}

// enqueueNodes has the node reconciler look at the nodes that match.
func (r *Rules) enqueueNodes(ctx context.Context, match func(*corev1.Node) bool) error {
	nodes, err := nodecache.Each(ctx, r.Nodes)
	if err != nil {
		return err
	}
	for n := range nodes {
		if match(n) {
			r.EnqueueNode(n.Name)
		}
	}
	return nil
}

// all is the set of rules; nil until they are listed.
func (r *Rules) all() *set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set
}

// Plan is what the rules require of a node. The caller must call done when the plan is written or dropped, because a
// deleted rule waits for it. If the rules cannot be served and concern the node, the plan has the reason and nothing
// else.
func (r *Rules) Plan(n *corev1.Node) (plan rule.Plan, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	state, why := r.serving.state(r.Config, r.set != nil, now)
	if state == rule.Serving {
		plan.Unavailable = r.unfinalized(n)
	} else if r.concern(n, state) {
		plan.Unavailable = why
		if r.set == nil {
			r.await(n.Name)
		}
	}
	if plan.Unavailable != "" || state != rule.Serving {
		r.tallies = nil // they do not follow what happens to nodes meanwhile
		return plan, func() {}
	}
	s := r.state(n)
	plan = r.next(n, now)
	if plan.Change.Empty() || r.DryRun {
		// Else once the node shows the change, which it never does in a dry run, or the write has failed.
		r.count(n.Name, plan.Evaluations)
	}
	if plan.Change.Empty() {
		r.clearFailure(s) // also if the node has left the selector meanwhile
	}
	if r.DryRun && s.reported == describe(plan) {
		plan.Change, plan.Actions = marks.RuleChange{}, nil
	}
	r.Counters.Evaluated(plan, r.Now().Sub(now))
	return plan, r.pend()
}

// await remembers a node that waits for the first list of the rules. r.mu must be held.
func (r *Rules) await(node string) {
	if r.awaiting == nil {
		r.awaiting = map[string]bool{}
	}
	r.awaiting[node] = true
}

// pend counts a decision as pending until done is called. r.mu must be held.
func (r *Rules) pend() (done func()) {
	if r.pending == nil {
		r.pending = map[int]int{}
	}
	generation := r.generation
	r.pending[generation]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pending[generation]--; r.pending[generation] == 0 {
			delete(r.pending, generation)
		}
	}
}

// written reports whether every decision that was made with an earlier set of rules is written.
func (r *Rules) written() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for generation := range r.pending {
		if generation < r.generation {
			return false
		}
	}
	return true
}

// next is what the rules that are served ask of the node. r.mu must be held.
func (r *Rules) next(n *corev1.Node, now time.Time) rule.Plan {
	s, observed := r.state(n), r.observed(n)
	observed.Adopting, observed.Released, observed.LastChange = s.adopting, s.released, r.lastChange
	plan := rule.Next(observed, r.set.rules, r.Config.StaleAfter.Duration, now)
	if observed.Limited {
		if observed.MayClose = r.mayClose(n.Name, plan.Evaluations); len(observed.MayClose) > 0 {
			plan = rule.Next(observed, r.set.rules, r.Config.StaleAfter.Duration, now)
		}
	}
	return plan
}

// Concern reports whether a rule that is listed concerns the node.
func (r *Rules) Concern(n *corev1.Node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set != nil && rule.AnyConcerns(n, r.set.rules)
}

// concern reports whether rules that are not served concern the node. Until the rules are listed, any node may be
// concerned, so that no gate is skipped while a cache fills. If the controller may not list them, the node is concerned
// if it carries marks of rules. r.mu must be held.
func (r *Rules) concern(n *corev1.Node, state rule.ServingState) bool {
	switch {
	case state == rule.Absent, state == rule.StandingBack:
		return false
	case r.set != nil:
		return rule.AnyConcerns(n, r.set.rules)
	}
	gating := marks.Vocabulary{Gating: r.Gating}
	return state != rule.Forbidden || len(marks.OwnedOn(n)) > 0 || marks.HasRuleTaint(n, gating)
}

// unfinalized is the reason why a rule that selects the node does not add its taint. The API server refuses our
// finalizer, and without it the rule's deletion would leave the taint behind. It is empty if there is no such rule.
// r.mu must be held.
func (r *Rules) unfinalized(n *corev1.Node) string {
	for i := range r.set.rules {
		c := &r.set.rules[i]
		why := r.refused[c.UID]
		if why != "" && !c.Finalized && !c.Deleting && !c.DryRun && c.Selects(n.Labels) {
			return why
		}
	}
	return ""
}

// finalizerRefused records why the API server refuses a rule's finalizer; empty if it does not.
func (r *Rules) finalizerRefused(c *rule.Rule, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = map[string]string{}
	}
	if r.refused[c.UID] = why; why == "" {
		delete(r.refused, c.UID)
	}
}

// RecordWrite records that a plan was written to the node, and counts and emits what was done.
func (r *Rules) RecordWrite(n *corev1.Node, plan rule.Plan) {
	now := r.Now()
	r.mu.Lock()
	s := r.state(n)
	changed, adopting := s.changed, s.adopting
	s.adopt(plan.Adopting, now)
	r.clearFailure(s)
	held := s.recordHolds(n, plan, r.started, now)
	if !r.DryRun {
		s.released = plan.Released
	} else if len(plan.Actions) > 0 {
		s.reported = describe(plan)
	}
	r.mu.Unlock()
	for _, a := range plan.Actions {
		_, emitted := adopting[a.Rule.UID] // when the adoption was first observed
		if e, ok := rule.ActionEvent(a, n.ResourceVersion); ok && (!emitted || a.Operation != rule.Adopt) {
			r.Events.Emit(n, now, e)
		}
	}
	if !r.DryRun {
		r.Counters.RecordWrite(n, plan, changed, now)
		for _, h := range held {
			r.Counters.BootstrapHeld(h.rule, h.origin, h.since, now)
		}
	}
	r.enqueueRules(plan)
}

// RecordFailure records a plan that the API server refused to write.
func (r *Rules) RecordFailure(n *corev1.Node, plan rule.Plan, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, now := r.state(n), r.Now()
	before := s.failed
	r.count(n.Name, plan.Evaluations)
	s.failure, s.failed = rule.Failure{Message: err.Error(), At: now}, map[string]bool{}
	for _, a := range plan.Actions {
		if uid := a.Rule.UID; !s.failed[uid] {
			s.failed[uid] = true
			if !before[uid] {
				r.Events.Emit(n, now, rule.FailedEvent(a, err.Error()))
			}
		}
	}
	r.Counters.RecordFailure(plan)
	r.enqueueRules(plan)
}

// clearFailure ends a failure on a node. r.mu must be held.
func (r *Rules) clearFailure(s *nodeState) {
	if s.failed == nil {
		return
	}
	for i := range r.set.rules {
		if s.failed[r.set.rules[i].UID] {
			r.EnqueueRule(r.set.rules[i].Name)
		}
	}
	s.failure, s.failed = rule.Failure{}, nil
}

// failures are the nodes on which the rule could not be applied.
func (r *Rules) failures(c *rule.Rule) map[string]rule.Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := map[string]rule.Failure{}
	for name, s := range r.nodes {
		if s.failure.Message != "" && s.failed[c.UID] {
			failed[name] = s.failure
		}
	}
	return failed
}

// enqueueRules has the reconciler look at the rules of a plan, whose status may have changed.
func (r *Rules) enqueueRules(plan rule.Plan) {
	for _, a := range plan.Actions {
		if a.Rule.Name != "" { // else it no longer exists
			r.EnqueueRule(a.Rule.Name)
		}
	}
}

// owns reports whether the deleted rule owns a taint of the node, or would remove one, at once or after Karpenter has
// registered the node.
func (r *Rules) owns(c *rule.Rule, n *corev1.Node) bool {
	if n.DeletionTimestamp != nil {
		return false // its taints go with it
	}
	if !rule.MayHave(c.Taint.ID(), r.Gating) {
		return false // verification owns it by now, and no plan would remove it
	}
	if marks.OwnedOn(n)[c.UID] == c.Taint.ID() {
		return true
	}
	if !rule.Tainted(n, c.Taint.ID()) {
		return false
	}
	r.mu.Lock()
	adopting, s := r.state(n).adopting, r.set
	r.mu.Unlock()
	plan := rule.Next(rule.Node{Node: n, Gating: r.Gating, Adopting: adopting, Registered: true}, s.rules, 0, r.Now())
	return slices.ContainsFunc(plan.Actions, func(a rule.Action) bool { return a.Rule.UID == c.UID })
}

// View is what a scrape shows.
func (r *Rules) View(ctx context.Context) (View, error) {
	state, _ := r.State()
	v, s := View{State: state}, r.all()
	if state != rule.Serving || s == nil {
		return v, nil
	}
	tallies, err := r.Tallies(ctx)
	v.Rules, v.Overruled, v.Tallies = s.rules, s.overruled, tallies
	if err == nil && len(s.overruled) > 0 {
		v.Matched, err = r.matched(ctx, s)
	}
	return v, err
}

// matched is how many nodes each overruled rule selects, by UID: a tally counts only those about which a rule decides.
func (r *Rules) matched(ctx context.Context, s *set) (map[string]int, error) {
	nodes, err := nodecache.Each(ctx, r.Nodes)
	if err != nil {
		return nil, err
	}
	matched := map[string]int{}
	for uid := range s.overruled {
		matched[uid] = 0
	}
	for n := range nodes {
		for i := range s.rules {
			if c := &s.rules[i]; s.overruled[c.UID] != nil && c.Selects(n.Labels) {
				matched[c.UID]++
			}
		}
	}
	return matched, nil
}
