// Package rules serves NodeReadinessRules: it knows which rules there are and whether they are this controller's to serve,
// what they ask of a node, and writes their status. What they ask for is written by the node reconciler, the one writer of a
// node's marks.
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
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// Emitter writes events. It never blocks.
type Emitter interface {
	Emit(n *corev1.Node, at time.Time, e decide.Event)
	EmitRule(r *v1alpha1.NodeReadinessRule, at time.Time, e decide.Event)
}

// Rules are the rules that there are, and what they ask of nodes.
type Rules struct {
	// Config is the section rules, Gating the taints that verification owns.
	Config config.Rules
	Gating []marks.Taint
	// Nodes reads nodes from the cache.
	Nodes client.Reader
	// Now is the clock.
	Now func() time.Time
	// DryRun: this is a dry run, in which nothing that is written stays.
	DryRun   bool
	Counters *Counters
	Events   Emitter
	// WakeNode has the node reconciler look at a node, WakeRule the reconciler of rules at a rule. Neither blocks.
	WakeNode, WakeRule func(name string)

	mu           sync.Mutex
	set          *set
	serving      serving
	observations map[string]*observation
	lastChange   time.Time // when a node last joined or changed
	// pending counts the decisions that are not written yet, by the generation of the rules that they were made on. A rule
	// that is deleted waits for those of earlier generations: a taint that came after the last look at the nodes would stay.
	pending    map[int]int
	generation int
	tally      *tally            // nil until it is asked for, and where the rules are other ones than before
	refused    map[string]string // why the API server refuses a rule's finalizer, by the rule's UID
	closing    closings
	began      time.Time // when this process was the first to see nodes
}

// set is the rules at one time. It does not change.
type set struct {
	rules     []rule.Rule
	objects   map[string]*v1alpha1.NodeReadinessRule // by name
	overruled map[string]*rule.Rule                  // by UID
}

// rule is the rule of a name; nil for none.
func (s *set) rule(name string) (*rule.Rule, *v1alpha1.NodeReadinessRule) {
	for i := range s.rules {
		if s.rules[i].Name == name {
			return &s.rules[i], s.objects[name]
		}
	}
	return nil, nil
}

// Replace takes over the rules that there are, and wakes what they concern. A write of a status concerns no node.
func (r *Rules) Replace(ctx context.Context, all []*v1alpha1.NodeReadinessRule) error {
	next := &set{objects: map[string]*v1alpha1.NodeReadinessRule{}}
	for _, o := range all {
		next.objects[o.Name] = o
	}
	before := r.all()
	if before != nil && maps.EqualFunc(before.objects, next.objects, alike) {
		next.rules, next.overruled = before.rules, before.overruled
		r.mu.Lock()
		r.set = next
		r.mu.Unlock()
		for name, o := range next.objects {
			if o.ResourceVersion != before.objects[name].ResourceVersion && !lastWrittenHere(o) {
				r.WakeRule(name)
			}
		}
		return nil
	}
	for _, o := range all {
		c := rule.Compile(o, r.Gating)
		c.Finalized = c.Finalized || r.DryRun // a dry run says what would be done once it is there
		next.rules = append(next.rules, c)
	}
	rule.Sort(next.rules)
	next.overruled = rule.Overruled(next.rules)
	r.mu.Lock()
	r.set, r.tally, r.serving.definition, r.serving.unlisted = next, nil, definitionPresent, ""
	r.closing.keep(next)
	r.generation++
	r.mu.Unlock()
	return r.wake(ctx, before, next)
}

// alike reports whether two versions of a rule ask the same of nodes.
func alike(a, b *v1alpha1.NodeReadinessRule) bool {
	return a != nil && b != nil && a.UID == b.UID && a.Generation == b.Generation && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		slices.Equal(a.Finalizers, b.Finalizers)
}

// wake wakes the rules that are other ones than before, and the nodes that those concern.
func (r *Rules) wake(ctx context.Context, before, next *set) error {
	if before == nil {
		before = &set{}
	}
	var changed []rule.Rule
	for _, now := range next.rules {
		if !alike(before.objects[now.Name], next.objects[now.Name]) {
			changed = append(changed, now)
			r.WakeRule(now.Name)
		}
	}
	for _, was := range before.rules {
		if next.objects[was.Name] == nil {
			changed = append(changed, was)
			r.WakeRule(was.Name)
		}
	}
	if before.objects == nil {
		return r.WakeNodes(ctx, func(*corev1.Node) bool { return true }) // they waited for the list
	}
	return r.WakeNodes(ctx, func(n *corev1.Node) bool {
		owned := marks.OwnedOn(n)
		for i := range changed {
			if _, owns := owned[changed[i].UID]; owns || changed[i].Concerns(n.Labels) {
				return true
			}
		}
		return false
	})
}

// WakeNodes has the node reconciler look at the nodes that are picked.
func (r *Rules) WakeNodes(ctx context.Context, pick func(*corev1.Node) bool) error {
	var nodes corev1.NodeList
	if err := r.Nodes.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range nodes.Items {
		if pick(&nodes.Items[i]) {
			r.WakeNode(nodes.Items[i].Name)
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

// served is the set that is served here; nil where none is.
func (r *Rules) served() *set {
	if state, _ := r.State(); state != rule.Serving {
		return nil
	}
	return r.all()
}

// Plan is what the rules ask of a node. done must be called when that is written or dropped: a rule that is deleted
// meanwhile waits for it. Where they cannot be served, and concern the node, the plan says why and asks for nothing
// else.
func (r *Rules) Plan(n *corev1.Node) (plan rule.Plan, done func()) {
	r.mu.Lock()
	now, s := r.Now(), r.set
	state, why := r.serving.why(s != nil, now)
	if s != nil && state == rule.Serving {
		plan.Unavailable = r.unfinalized(n)
	} else if r.concern(n, state) {
		plan.Unavailable = why
	}
	if plan.Unavailable != "" || state != rule.Serving {
		r.tally = nil // what happens to nodes meanwhile is not followed
		r.mu.Unlock()
		return plan, func() {}
	}
	observation := r.observation(n)
	plan = r.next(n, now)
	if plan.Change.Empty() {
		r.recount(n.Name, plan.Evaluations) // else once the node shows the change, or it has failed
		r.recovered(observation)            // also where the node has left the selector meanwhile
	}
	if r.DryRun && observation.reported == describe(plan) {
		plan.Change, plan.Acts = marks.RuleChange{}, nil
	}
	done = r.pend()
	r.mu.Unlock()
	r.Counters.Evaluated(plan, r.Now().Sub(now))
	return plan, done
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

// written reports whether everything that was decided on earlier rules is written.
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
	observation := r.observation(n)
	observed := r.observe(n)
	observed.Adopting, observed.Released, observed.LastChange = observation.adopting, observation.released, r.lastChange
	plan := rule.Next(observed, r.set.rules, r.Config.StaleAfter.Duration, now)
	if observed.Limited {
		if observed.MayClose = r.mayClose(n.Name, plan.Evaluations); len(observed.MayClose) > 0 {
			plan = rule.Next(observed, r.set.rules, r.Config.StaleAfter.Duration, now)
		}
	}
	return plan
}

// observe is what was observed of a node for its rules. r.mu must be held.
func (r *Rules) observe(n *corev1.Node) rule.Node {
	return rule.Node{Node: n, Gating: r.Gating, Renewed: r.observation(n).renewals(),
		Limited: r.Config.MaxClosedPercent > 0}
}

// concern reports whether rules that are not served concern the node. Until they are listed any may, so that no gate is
// skipped while a cache is filling; where they must not be listed, those whose marks the node carries do. r.mu must be
// held.
func (r *Rules) concern(n *corev1.Node, state rule.ServingState) bool {
	switch {
	case state == rule.Absent, state == rule.StandingBack:
		return false
	case r.set != nil:
		return rule.Concern(n, r.set.rules)
	}
	return state != rule.Forbidden || len(marks.OwnedOn(n)) > 0 || marks.HasRuleTaint(n, marks.Vocabulary{Gating: r.Gating})
}

// unfinalized says why a rule that selects the node puts no taint on it: the API server refuses our finalizer, without
// which its deletion would leave the taint behind. Empty where there is no such rule. r.mu must be held.
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

// Refused accounts for an answer to the write of a rule's finalizer: why the API server refuses it, empty where it
// does not.
func (r *Rules) Refused(c *rule.Rule, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = map[string]string{}
	}
	if r.refused[c.UID] = why; why == "" {
		delete(r.refused, c.UID)
	}
}

// Wrote accounts for a plan that was carried out on the node: it counts, and emits what was done.
func (r *Rules) Wrote(n *corev1.Node, plan rule.Plan) {
	now := r.Now()
	r.mu.Lock()
	s := r.observation(n)
	adopting := s.adopting
	s.adopt(plan.Adopting, now)
	r.recovered(s)
	changed := s.changed
	held := s.wrote(n, plan, r.began, now)
	if !r.DryRun {
		s.released = plan.Released
	} else if len(plan.Acts) > 0 {
		s.reported = describe(plan)
	}
	r.mu.Unlock()
	for _, a := range plan.Acts {
		_, said := adopting[a.Rule.UID] // before it was written down
		if e, ok := rule.ActEvent(a, n.ResourceVersion); ok && (!said || a.Operation != rule.Adopt) {
			r.Events.Emit(n, now, e)
		}
	}
	if !r.DryRun {
		r.Counters.Wrote(n, plan, changed, now)
		for _, h := range held {
			r.Counters.BootstrapHeld(h.rule, h.origin, h.since, now)
		}
	}
	r.wakeRules(plan)
}

// Failed accounts for a plan that the API server did not take.
func (r *Rules) Failed(n *corev1.Node, plan rule.Plan, err error) {
	r.mu.Lock()
	s, now := r.observation(n), r.Now()
	before := s.failed
	r.recount(n.Name, plan.Evaluations)
	s.failure, s.failed = rule.Failure{Message: err.Error(), At: now}, map[string]bool{}
	for _, a := range plan.Acts {
		if uid := a.Rule.UID; !s.failed[uid] {
			s.failed[uid] = true
			if !before[uid] {
				r.Events.Emit(n, now, rule.FailedEvent(a, err.Error()))
			}
		}
	}
	r.mu.Unlock()
	r.Counters.Failed(plan)
	r.wakeRules(plan)
}

// recovered ends a failure on a node. r.mu must be held.
func (r *Rules) recovered(s *observation) {
	if s.failed == nil {
		return
	}
	for i := range r.set.rules {
		if s.failed[r.set.rules[i].UID] {
			r.WakeRule(r.set.rules[i].Name)
		}
	}
	s.failure, s.failed = rule.Failure{}, nil
}

// wakeRules has the reconciler look at the rules of a plan, whose status may have changed.
func (r *Rules) wakeRules(plan rule.Plan) {
	for _, a := range plan.Acts {
		if a.Rule.Name != "" { // else it no longer exists
			r.WakeRule(a.Rule.Name)
		}
	}
}

// View is what a scrape shows.
func (r *Rules) View(ctx context.Context) (View, error) {
	state, _ := r.State()
	v := View{State: state}
	s := r.served()
	if s == nil {
		return v, nil
	}
	tallies, err := r.Tallies(ctx)
	v.Rules, v.Overruled, v.Tallies = s.rules, s.overruled, tallies
	if err == nil && len(s.overruled) > 0 {
		v.Matched, err = r.matched(ctx, s)
	}
	return v, err
}

// matched is how many nodes each rule selects that an older one overrules, by UID: the tally counts only those about
// which a rule decides.
func (r *Rules) matched(ctx context.Context, s *set) (map[string]int, error) {
	var nodes corev1.NodeList
	if err := r.Nodes.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	matched := map[string]int{}
	for i := range s.rules {
		if c := &s.rules[i]; s.overruled[c.UID] != nil {
			matched[c.UID] = 0
			for n := range nodes.Items {
				if c.Selects(nodes.Items[n].Labels) {
					matched[c.UID]++
				}
			}
		}
	}
	return matched, nil
}
