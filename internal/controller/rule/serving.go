package rule

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// definition is what is known of the resource's definition.
type definition int

const (
	definitionUnknown definition = iota
	definitionAbsent
	definitionForbidden
	definitionPresent
)

// serving is what decides whether this controller serves rules.
type serving struct {
	takeOver   bool
	definition definition
	// nrc are NRC's Leases, by namespace; nil until they were listed.
	nrc map[string]decide.LeaseSight
	// blind: the controller may not watch them.
	blind bool
	// role is whose part rules are among several installations.
	role role

	said      decide.RulesState // last
	saidWhy   string
	stoodBack bool              // since rules were served last
	nrcVer    map[string]string // resourceVersions of NRC's Leases, by namespace
}

// nrcListed ends the first list of NRC's Leases: there are no others.
func (s *serving) nrcListed() {
	if s.nrc == nil {
		s.nrc, s.nrcVer = map[string]decide.LeaseSight{}, map[string]string{}
	}
}

// why is the state, and what to say of it.
func (s *serving) why(now time.Time) (decide.RulesState, string) {
	switch {
	case s.definition == definitionUnknown:
		return decide.RulesUnknown, "whether the API server has NodeReadinessRules is not known yet"
	case s.definition == definitionAbsent:
		return decide.RulesAbsent, "the API server has no NodeReadinessRules"
	case s.definition == definitionForbidden, s.blind && s.nrc == nil && !s.takeOver:
		return decide.RulesForbidden, "the controller may not list NodeReadinessRules, or watch Leases named " + decide.NRCLease + ": grant it, or set rules.enabled to false"
	case s.nrc == nil && !s.takeOver:
		return decide.RulesUnknown, "whether the node-readiness-controller is at work is not known yet"
	}
	var leases []decide.LeaseSight
	for _, l := range s.nrc {
		leases = append(leases, l)
	}
	if why, _ := decide.StandBack(leases, s.takeOver, now); why != "" {
		return decide.RulesStandingBack, why
	}
	return s.role.state(now)
}

func (s *serving) state(now time.Time) decide.RulesState {
	state, _ := s.why(now)
	return state
}

// seeNRC accounts for one of NRC's Leases. remembered is the resourceVersion that it had when rules were last served here:
// one that has not changed since was unheld then, and is now.
func (s *serving) seeNRC(l *coordinationv1.Lease, remembered string, now time.Time) {
	s.nrcListed()
	if s.nrcVer[l.Namespace] == l.ResourceVersion {
		return
	}
	_, known := s.nrc[l.Namespace]
	sight := decide.LeaseSight{Namespace: l.Namespace, Name: l.Name, Holder: ptr.Deref(l.Spec.HolderIdentity, ""),
		Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second, Changed: now}
	if !known && remembered == l.ResourceVersion {
		sight.Changed, sight.Duration = time.Time{}, 0
	}
	s.nrc[l.Namespace], s.nrcVer[l.Namespace] = sight, l.ResourceVersion
}

// nrcGone accounts for a Lease of NRC that was deleted: nobody holds it from now on.
func (s *serving) nrcGone(namespace string, now time.Time) {
	if l, ok := s.nrc[namespace]; ok {
		l.Holder, l.Changed = "", now
		s.nrc[namespace] = l
		delete(s.nrcVer, namespace)
	}
}

// update changes what serving depends on, and settles what follows from that.
func (r *Rules) update(ctx context.Context, change func(*serving)) {
	r.mu.Lock()
	r.serving.takeOver = r.Config.TakeOver
	change(&r.serving)
	r.mu.Unlock()
	r.settle(ctx)
}

// settle says so where rules are served now and were not before, or the other way round, and wakes what that concerns.
func (r *Rules) settle(ctx context.Context) {
	r.mu.Lock()
	state, why := r.serving.why(r.Now())
	before, beforeWhy, s := r.serving.said, r.serving.saidWhy, r.set
	if state == decide.RulesServing && s == nil {
		state, why = decide.RulesUnknown, "the rules are not listed yet"
	}
	back := state == decide.RulesServing && r.serving.stoodBack
	r.serving.said, r.serving.saidWhy = state, why
	r.serving.stoodBack = state == decide.RulesStandingBack || state != decide.RulesServing && r.serving.stoodBack
	r.mu.Unlock()
	if state == before && why == beforeWhy {
		return
	}
	l := log.FromContext(ctx)
	l.Info("NodeReadinessRules: "+string(state), "why", why)
	if s != nil {
		for _, o := range s.objects {
			if back {
				r.Events.EmitRule(o, r.Now(), decide.Event{Reason: decide.EventRuleServed, Key: fmt.Sprint(r.Now().Unix()), Message: "The rule is served here from now on"})
			}
			r.WakeRule(o.Name)
		}
	}
	if state != before {
		if err := r.WakeNodes(ctx, func(*corev1.Node) bool { return true }); err != nil {
			l.Error(err, "nodes not woken") // the cache; they also look again by themselves
		}
	}
}

// State is whether rules are served, and why not.
func (r *Rules) State() (decide.RulesState, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state, why := r.serving.why(r.Now()); state != decide.RulesServing || r.set != nil {
		return state, why
	}
	return decide.RulesUnknown, "the rules are not listed yet"
}
