package rules

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// renewedFor is how long after a renewal of NRC's Lease rules are left to NRC, on this process's clock. Neither the
	// Lease's holder nor its duration counts.
	renewedFor = time.Minute
	// firstRenewal is how long rules wait for the first renewal of a Lease. NRC renews its Lease every two seconds.
	firstRenewal = 15 * time.Second
	// grant ends the message of a state that lasts until somebody changes the controller's permissions.
	grant = "; grant the permission, or set rules.enabled to false"
)

// definition is what is known of the resource's definition.
type definition int

const (
	definitionUnknown definition = iota
	definitionAbsent
	definitionPresent
)

// observedLease is what this process has observed of NRC's Lease in one namespace.
type observedLease struct {
	resourceVersion string
	changed         time.Time // when this version was first observed
	renewed         bool      // it is not the first version that was observed
}

// serving is what decides whether this controller serves rules.
type serving struct {
	definition definition
	// nrc are the node-readiness-controller's Leases, by namespace; nil until they are listed. One that is deleted stays.
	nrc map[string]observedLease
	// unlisted and unwatched say why the API server refuses to list rules, and to watch those Leases; empty if it does
	// not.
	unlisted, unwatched string

	reported    rule.ServingState // last
	reportedWhy string
	stoodBack   bool // since rules were last served
}

// nrcNamespaces are the namespaces in which NRC's Lease counts.
func nrcNamespaces(c config.Rules) []string {
	if c.TakeOver {
		return nil
	}
	return c.OtherControllerNamespaces
}

// state is the state, and why. listed reports whether the rules are.
func (s *serving) state(c config.Rules, listed bool, now time.Time) (rule.ServingState, string) {
	namespaces := nrcNamespaces(c)
	unknown := s.nrc == nil && len(namespaces) > 0
	switch {
	case s.unlisted != "":
		return rule.Forbidden, s.unlisted + grant
	case s.definition == definitionUnknown:
		return rule.Unknown, "it is not known yet whether the API server has NodeReadinessRules"
	case s.definition == definitionAbsent:
		return rule.Absent, "the API server has no NodeReadinessRules"
	case unknown && s.unwatched != "":
		return rule.Forbidden, s.unwatched + grant
	case unknown:
		return rule.Unknown, "it is not known yet whether the node-readiness-controller runs"
	}
	awaited := ""
	for _, namespace := range namespaces {
		l, name := s.nrc[namespace], namespace+"/"+rule.NRCLease
		switch age := now.Sub(l.changed); {
		case l.renewed && age < renewedFor:
			return rule.StandingBack, fmt.Sprintf("Lease %s is renewed: the node-readiness-controller runs", name)
		case !l.renewed && age < firstRenewal:
			awaited = fmt.Sprintf("Lease %s exists; rules are served unless it is renewed within %s", name, firstRenewal)
		}
	}
	switch {
	case awaited != "":
		return rule.Unknown, awaited
	case !listed:
		return rule.Unknown, "the rules are not listed yet"
	}
	return rule.Serving, ""
}

// nrcListed ends the first list of NRC's Leases: there are no others.
func (s *serving) nrcListed() {
	if s.nrc == nil {
		s.nrc = map[string]observedLease{}
	}
}

// observeNRC records one of NRC's Leases. Whoever may write it keeps rules from being served only while they go on
// writing. Its first version may be of a Lease that nobody renews.
func (s *serving) observeNRC(l *coordinationv1.Lease, now time.Time) {
	s.nrcListed()
	if before, known := s.nrc[l.Namespace]; !known || before.resourceVersion != l.ResourceVersion {
		s.nrc[l.Namespace] = observedLease{resourceVersion: l.ResourceVersion, changed: now, renewed: known}
	}
}

// update changes what serving depends on, and reports a state that changes by that.
func (r *Rules) update(ctx context.Context, change func(*serving)) {
	r.mu.Lock()
	change(&r.serving)
	r.mu.Unlock()
	r.reportState(ctx)
}

// reportState reports a change of the state, and enqueues the nodes and rules that it concerns.
func (r *Rules) reportState(ctx context.Context) {
	r.mu.Lock()
	s, set := &r.serving, r.set
	state, why := s.state(r.Config, set != nil, r.Now())
	changed := state != s.reported || why != s.reportedWhy
	servedAgain := state == rule.Serving && s.stoodBack
	s.reported, s.reportedWhy = state, why
	s.stoodBack = state == rule.StandingBack || state != rule.Serving && s.stoodBack
	var awaiting map[string]bool
	if changed {
		awaiting, r.awaiting = r.awaiting, nil // those that must wait further say so again
	}
	r.mu.Unlock()
	if !changed {
		return
	}
	l := log.FromContext(ctx)
	l.Info("NodeReadinessRules: "+string(state), "why", why)
	if set != nil {
		for _, o := range set.objects {
			if servedAgain {
				r.Events.EmitRule(o, r.Now(), decide.Event{Reason: rule.EventServed, Key: fmt.Sprint(r.Now().Unix()),
					Message: "The rule is served here from now on"})
			}
			r.EnqueueRule(o.Name)
		}
	}
	r.enqueueAwaiting(awaiting)
	// No other node has a decision that depends on it, and there may be tens of thousands.
	gating := marks.Vocabulary{Gating: r.Gating}
	if err := r.enqueueNodes(ctx, func(n *corev1.Node) bool {
		return len(marks.OwnedOn(n)) > 0 || marks.HasRuleTaint(n, gating) || set != nil && set.concerns(n)
	}); err != nil {
		l.Error(err, "cannot enqueue nodes") // the cache; they are also reconciled periodically
	}
}

// State is whether rules are served, and why not.
func (r *Rules) State() (rule.ServingState, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving.state(r.Config, r.set != nil, r.Now())
}
