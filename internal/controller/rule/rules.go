// Package rule serves NodeReadinessRules: it knows which rules there are and whether they are this controller's to serve,
// what they ask of a node, and writes their status. What they ask for is written by the node room, the one writer of a
// node's marks.
package rule

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
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
	// Rehearsing: this is a dry run, in which nothing that is written stays.
	Rehearsing bool
	Counters   *metrics.RuleCounters
	Events     Emitter
	// WakeNode has the node room look at a node, WakeRule the rule room at a rule. Neither blocks.
	WakeNode, WakeRule func(name string)

	mu      sync.Mutex
	set     *set
	serving serving
	sights  map[string]*sight
	stirred time.Time // when a node last joined or changed
	flights flights
}

// set is the rules at one time. It does not change.
type set struct {
	rules     []decide.Rule
	objects   map[string]*v1alpha1.NodeReadinessRule // by name
	overruled map[string]*decide.Rule                // by UID
}

// rule is the rule of a name; nil for none.
func (s *set) rule(name string) (*decide.Rule, *v1alpha1.NodeReadinessRule) {
	for i := range s.rules {
		if s.rules[i].Name == name {
			return &s.rules[i], s.objects[name]
		}
	}
	return nil, nil
}

// Replace takes over the rules that there are, and wakes what they concern.
func (r *Rules) Replace(ctx context.Context, all []*v1alpha1.NodeReadinessRule) error {
	next := &set{objects: map[string]*v1alpha1.NodeReadinessRule{}}
	for _, o := range all {
		c := decide.CompileRule(o, r.Gating)
		c.Finalized = c.Finalized || r.Rehearsing // a dry run says what would be done once it is there
		next.rules = append(next.rules, c)
		next.objects[o.Name] = o
	}
	decide.SortRules(next.rules)
	next.overruled = decide.Overruled(next.rules)
	r.mu.Lock()
	before := r.set
	r.set, r.serving.definition = next, definitionPresent
	r.flights.depart()
	r.mu.Unlock()
	return r.wake(ctx, before, next)
}

// wake wakes the rules that are other ones than before, and the nodes that those concern.
func (r *Rules) wake(ctx context.Context, before, next *set) error {
	var changed []decide.Rule
	for _, now := range next.rules {
		if before == nil || version(before.objects[now.Name]) != version(next.objects[now.Name]) {
			changed = append(changed, now)
			r.WakeRule(now.Name)
		}
	}
	if before != nil {
		for _, was := range before.rules {
			if next.objects[was.Name] == nil {
				changed = append(changed, was)
				r.WakeRule(was.Name)
			}
		}
	}
	if before == nil {
		return r.WakeNodes(ctx, func(*corev1.Node) bool { return true }) // they waited for the list
	}
	return r.WakeNodes(ctx, func(n *corev1.Node) bool {
		owned := marks.OwnedOn(n)
		for i := range changed {
			if _, owns := owned[changed[i].UID]; owns || changed[i].Selects(n.Labels) {
				return true
			}
		}
		return false
	})
}

func version(o *v1alpha1.NodeReadinessRule) string {
	if o == nil {
		return ""
	}
	return string(o.UID) + "/" + o.ResourceVersion
}

// WakeNodes has the node room look at the nodes that are picked.
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
	if state, _ := r.State(); state != decide.RulesServing {
		return nil
	}
	return r.all()
}

// Plan is what the rules ask of a node. done must be called when that is written or dropped: a rule that is deleted
// meanwhile waits for it. The error is controller.ErrRulesUnknown or nil.
func (r *Rules) Plan(n *corev1.Node) (plan decide.RulePlan, done func(), err error) {
	r.mu.Lock()
	now := r.Now()
	state, s := r.serving.state(now), r.set
	if state == decide.RulesUnknown || state == decide.RulesServing && s == nil {
		r.mu.Unlock()
		return plan, func() {}, controller.ErrRulesUnknown
	}
	if state != decide.RulesServing {
		r.mu.Unlock()
		return plan, func() {}, nil
	}
	sight := r.sight(n)
	observed := decide.RuleNode{Node: n, Renewed: sight.renewals(), Adopting: sight.adopting, Stirred: r.stirred}
	plan = decide.NextRules(observed, s.rules, r.Config.StaleAfter.Duration, now)
	if plan.Change.Empty() {
		r.recovered(sight) // also where the node has left the selector meanwhile
	}
	if r.Rehearsing && sight.rehearsed == rehearsal(plan) {
		plan.Change, plan.Acts = marks.RuleChange{}, nil
	}
	done = r.flights.board(&r.mu)
	r.mu.Unlock()
	r.Counters.Evaluated(plan, r.Now().Sub(now))
	return plan, done, nil
}

// Wrote accounts for a plan that was carried out on the node: it counts, and emits what was done.
func (r *Rules) Wrote(n *corev1.Node, plan decide.RulePlan) {
	now := r.Now()
	r.mu.Lock()
	s := r.sight(n)
	adopting := s.adopting
	s.adopt(plan.Adopting, now)
	r.recovered(s)
	changed := s.changed
	if r.Rehearsing && len(plan.Acts) > 0 {
		s.rehearsed = rehearsal(plan)
	}
	r.mu.Unlock()
	for _, a := range plan.Acts {
		_, said := adopting[a.Rule.UID] // before it was written down
		if e, ok := decide.RuleEvent(a, n.ResourceVersion); ok && (!said || a.Operation != decide.RuleAdopt) {
			r.Events.Emit(n, now, e)
		}
	}
	if !r.Rehearsing {
		r.Counters.Wrote(n, plan, changed, now)
	}
	r.wakeRules(plan)
}

// Failed accounts for a plan that the API server did not take.
func (r *Rules) Failed(n *corev1.Node, plan decide.RulePlan, err error) {
	r.mu.Lock()
	s, now := r.sight(n), r.Now()
	before := s.failed
	s.failure, s.failed = decide.RuleFailure{Message: err.Error(), At: now}, map[string]bool{}
	for _, a := range plan.Acts {
		if uid := a.Rule.UID; !s.failed[uid] {
			s.failed[uid] = true
			if !before[uid] {
				r.Events.Emit(n, now, decide.RuleFailedEvent(a, err.Error()))
			}
		}
	}
	r.mu.Unlock()
	r.Counters.Failed(plan)
	r.wakeRules(plan)
}

// recovered ends a failure on a node. r.mu must be held.
func (r *Rules) recovered(s *sight) {
	if s.failed == nil {
		return
	}
	for i := range r.set.rules {
		if s.failed[r.set.rules[i].UID] {
			r.WakeRule(r.set.rules[i].Name)
		}
	}
	s.failure, s.failed = decide.RuleFailure{}, nil
}

// wakeRules has the rule room look at the rules of a plan, whose status may have changed.
func (r *Rules) wakeRules(plan decide.RulePlan) {
	for _, a := range plan.Acts {
		r.WakeRule(a.Rule.Name)
	}
}

// View is what a scrape shows.
func (r *Rules) View(ctx context.Context) (metrics.RuleView, error) {
	state, _ := r.State()
	v := metrics.RuleView{State: state}
	s := r.served()
	if s == nil {
		return v, nil
	}
	tallies, err := r.Tallies(ctx)
	v.Rules, v.Overruled, v.Tallies = s.rules, s.overruled, tallies
	return v, err
}
