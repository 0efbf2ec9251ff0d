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
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// unheldFor is how long NRC's Lease must have been unheld before rules are served: during a rollout of NRC nobody
	// holds it for some seconds.
	unheldFor = time.Minute
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

// observedLease is what was observed of a Lease, on the clock that observed it.
type observedLease struct {
	resourceVersion string // empty for one that is deleted
	holder          string // empty for one that nobody holds, or that is deleted
	// changed is when it was last observed to change; a renewal is a change. Zero for one that was unheld before this
	// process started, and has not changed since.
	changed  time.Time
	duration time.Duration // for how long after a renewal it is held
}

func observeLease(l *coordinationv1.Lease, now time.Time) observedLease {
	return observedLease{resourceVersion: l.ResourceVersion, holder: ptr.Deref(l.Spec.HolderIdentity, ""), changed: now,
		duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second}
}

// heldUntil is when the Lease expires unless it is renewed.
func (l observedLease) heldUntil() time.Time {
	if l.holder == "" {
		return l.changed
	}
	return l.changed.Add(l.duration)
}

func (l observedLease) held(now time.Time) bool { return now.Before(l.heldUntil()) }

// serving is what decides whether this controller serves rules.
type serving struct {
	takeOver   bool
	definition definition
	// nrc are the node-readiness-controller's Leases, by namespace; nil until they are listed.
	nrc map[string]observedLease
	// unlisted and unwatched say why the API server refuses to list rules, and to watch those Leases; empty if it does
	// not.
	unlisted, unwatched string
	// role is which of several installations serves rules.
	role role

	reported    rule.ServingState // last
	reportedWhy string
	stoodBack   bool // since rules were last served
}

// state is the state, and why. listed reports whether the rules are.
func (s *serving) state(listed bool, now time.Time) (rule.ServingState, string) {
	switch {
	case s.unlisted != "":
		return rule.Forbidden, s.unlisted + grant
	case s.definition == definitionUnknown:
		return rule.Unknown, "it is not known yet whether the API server has NodeReadinessRules"
	case s.definition == definitionAbsent:
		return rule.Absent, "the API server has no NodeReadinessRules"
	case s.unwatched != "" && s.nrc == nil && !s.takeOver:
		return rule.Forbidden, s.unwatched + grant
	case s.nrc == nil && !s.takeOver:
		return rule.Unknown, "it is not known yet whether the node-readiness-controller runs"
	}
	if why := s.standBack(now); why != "" {
		return rule.StandingBack, why
	}
	state, why := s.role.state(now)
	if state != rule.StandingBack && !listed {
		return rule.Unknown, "the rules are not listed yet"
	}
	return state, why
}

// standBack says why rules are left to the node-readiness-controller; empty if they are not.
func (s *serving) standBack(now time.Time) (why string) {
	if s.takeOver {
		return ""
	}
	for namespace, l := range s.nrc {
		switch {
		case l.held(now):
			return fmt.Sprintf("Lease %s/%s is held by %s: the node-readiness-controller runs",
				namespace, rule.NRCLease, l.holder)
		case now.Before(l.heldUntil().Add(unheldFor)):
			why = fmt.Sprintf("Lease %s/%s of the node-readiness-controller was held until just now; rules are served once "+
				"it has been free for %s", namespace, rule.NRCLease, unheldFor)
		}
	}
	return why
}

// nrcListed ends the first list of NRC's Leases: there are no others.
func (s *serving) nrcListed() {
	if s.nrc == nil {
		s.nrc = map[string]observedLease{}
	}
}

// observeNRC records one of NRC's Leases. The resourceVersion in remembered is that of the time when rules were last
// served here. A Lease with the same version had no holder then, and still has none.
func (s *serving) observeNRC(l *coordinationv1.Lease, remembered string, now time.Time) {
	s.nrcListed()
	before, known := s.nrc[l.Namespace]
	if known && before.resourceVersion == l.ResourceVersion {
		return
	}
	observed := observeLease(l, now)
	if !known && remembered == l.ResourceVersion {
		observed.changed, observed.duration = time.Time{}, 0
	}
	s.nrc[l.Namespace] = observed
}

// nrcDeleted records that a Lease of NRC was deleted: nobody holds it from now on.
func (s *serving) nrcDeleted(namespace string, now time.Time) {
	if _, ok := s.nrc[namespace]; ok {
		s.nrc[namespace] = observedLease{changed: now}
	}
}

// update changes what serving depends on, and reports a state that changes by that.
func (r *Rules) update(ctx context.Context, change func(*serving)) {
	r.mu.Lock()
	r.serving.takeOver = r.Config.TakeOver
	change(&r.serving)
	r.mu.Unlock()
	r.reportState(ctx)
}

// reportState reports a change of the state, and enqueues the nodes and rules that it concerns.
func (r *Rules) reportState(ctx context.Context) {
	r.mu.Lock()
	s, set := &r.serving, r.set
	state, why := s.state(set != nil, r.Now())
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
	return r.serving.state(r.set != nil, r.Now())
}

// servedElsewhere reports whether another installation serves rules.
func (r *Rules) servedElsewhere() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving.role.other.held(r.Now())
}
