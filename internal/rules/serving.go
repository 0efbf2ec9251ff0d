package rules

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// definition is what is known of the resource's definition.
type definition int

const (
	definitionUnknown definition = iota
	definitionAbsent
	definitionPresent
)

// serving is what decides whether this controller serves rules.
type serving struct {
	takeOver   bool
	definition definition
	// nrc are NRC's Leases, by namespace; nil until they were listed.
	nrc map[string]rule.LeaseObservation
	// unlisted and unwatched say why the API server refuses to list rules, and to watch those Leases; empty where it does
	// not.
	unlisted, unwatched string
	// role is whose part rules are among several installations.
	role role

	reported    rule.ServingState // last
	reportedWhy string
	stoodBack   bool              // since rules were served last
	nrcVersions map[string]string // resourceVersions of NRC's Leases, by namespace
}

// nrcListed ends the first list of NRC's Leases: there are no others.
func (s *serving) nrcListed() {
	if s.nrc == nil {
		s.nrc, s.nrcVersions = map[string]rule.LeaseObservation{}, map[string]string{}
	}
}

// grant ends the message of a state that lasts until somebody changes the controller's permissions.
const grant = "; allow it, or set rules.enabled to false"

// why is the state, and what to say of it. listed reports whether the rules are.
func (s *serving) why(listed bool, now time.Time) (rule.ServingState, string) {
	switch {
	case s.unlisted != "":
		return rule.Forbidden, s.unlisted + grant
	case s.definition == definitionUnknown:
		return rule.Unknown, "whether the API server has NodeReadinessRules is not known yet"
	case s.definition == definitionAbsent:
		return rule.Absent, "the API server has no NodeReadinessRules"
	case s.unwatched != "" && s.nrc == nil && !s.takeOver:
		return rule.Forbidden, s.unwatched + grant
	case s.nrc == nil && !s.takeOver:
		return rule.Unknown, "whether the node-readiness-controller is at work is not known yet"
	}
	var leases []rule.LeaseObservation
	for _, l := range s.nrc {
		leases = append(leases, l)
	}
	if why, _ := rule.StandBack(leases, s.takeOver, now); why != "" {
		return rule.StandingBack, why
	}
	state, why := s.role.state(now)
	if state != rule.StandingBack && !listed {
		return rule.Unknown, "the rules are not listed yet"
	}
	return state, why
}

// observeNRC accounts for one of NRC's Leases. remembered is the resourceVersion that it had when rules were last served here:
// one that has not changed since was unheld then, and is now.
func (s *serving) observeNRC(l *coordinationv1.Lease, remembered string, now time.Time) {
	s.nrcListed()
	if s.nrcVersions[l.Namespace] == l.ResourceVersion {
		return
	}
	_, known := s.nrc[l.Namespace]
	observation := rule.LeaseObservation{Namespace: l.Namespace, Name: l.Name, Holder: ptr.Deref(l.Spec.HolderIdentity, ""),
		Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second, Changed: now}
	if !known && remembered == l.ResourceVersion {
		observation.Changed, observation.Duration = time.Time{}, 0
	}
	s.nrc[l.Namespace], s.nrcVersions[l.Namespace] = observation, l.ResourceVersion
}

// nrcDeleted accounts for a Lease of NRC that was deleted: nobody holds it from now on.
func (s *serving) nrcDeleted(namespace string, now time.Time) {
	if l, ok := s.nrc[namespace]; ok {
		l.Holder, l.Changed = "", now
		s.nrc[namespace] = l
		delete(s.nrcVersions, namespace)
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
	before, beforeWhy, s := r.serving.reported, r.serving.reportedWhy, r.set
	state, why := r.serving.why(s != nil, r.Now())
	back := state == rule.Serving && r.serving.stoodBack
	r.serving.reported, r.serving.reportedWhy = state, why
	r.serving.stoodBack = state == rule.StandingBack || state != rule.Serving && r.serving.stoodBack
	r.mu.Unlock()
	if state == before && why == beforeWhy {
		return
	}
	l := log.FromContext(ctx)
	l.Info("NodeReadinessRules: "+string(state), "why", why)
	if s != nil {
		for _, o := range s.objects {
			if back {
				r.Events.EmitRule(o, r.Now(), decide.Event{Reason: rule.EventServed, Key: fmt.Sprint(r.Now().Unix()), Message: "The rule is served here from now on"})
			}
			r.WakeRule(o.Name)
		}
	}
	if err := r.WakeNodes(ctx, func(*corev1.Node) bool { return true }); err != nil {
		l.Error(err, "nodes not woken") // the cache; they also look again by themselves
	}
}

// State is whether rules are served, and why not.
func (r *Rules) State() (rule.ServingState, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving.why(r.set != nil, r.Now())
}
