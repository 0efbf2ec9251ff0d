package rules

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// observation is what this process has seen of a node for its rules. It is a hint: a successor counts from its own
// first observation.
type observation struct {
	uid types.UID
	// heartbeats are the last of each condition, by type.
	heartbeats map[string]heartbeat
	// adopting is since when a rule, by UID, was seen to hold the node by a taint that nobody owns.
	adopting map[string]time.Time
	// released are the UIDs of the bootstrap-only rules that the node was seen to pass.
	released []string
	// changed is when a change of the conditions, labels or taints was last seen.
	changed time.Time
	// failure is the last write of rules that the API server did not take, failed the UIDs of those rules.
	failure rule.Failure
	failed  map[string]bool
	// added is when this process put the taint of a bootstrap-only rule on, by the rule's UID.
	added map[string]time.Time
	// reported is what a dry run has said of the node.
	reported string
}

type heartbeat struct {
	at   time.Time // what the condition says
	seen time.Time // on our clock
	// renewed: it was seen to change, so its writer renews it.
	renewed bool
}

// observation is what was seen of the node; that of an earlier node of the name is dropped. r.mu must be held.
func (r *Rules) observation(n *corev1.Node) *observation {
	s := r.observations[n.Name]
	if s == nil || s.uid != n.UID {
		if r.observations == nil {
			r.observations = map[string]*observation{}
		}
		s = &observation{uid: n.UID}
		r.observations[n.Name] = s
	}
	return s
}

// ObserveNode accounts for what the watch has shown of a node, and reports whether its rules have to look at it for a
// reason that nobody else does: rules.staleAfter begins anew, or our own condition changed. before is nil for a node
// that is new.
func (r *Rules) ObserveNode(before, now *corev1.Node) (look bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, at := r.observation(now), r.Now()
	changed := before == nil || !maps.Equal(conditions(before), conditions(now))
	if changed {
		s.changed, r.lastChange = at, at
	}
	if r.began.IsZero() {
		r.began = at
	}
	if r.set == nil {
		return false
	}
	if r.Config.StaleAfter.Duration > 0 {
		look = s.renew(now, r.set.rules, at, r.Config.StaleAfter.Duration)
	}
	return look || before != nil && rule.NameCondition(r.set.rules, marks.ConditionType) &&
		conditions(before)[marks.ConditionType] != conditions(now)[marks.ConditionType]
}

// NodeGone drops a node.
func (r *Rules) NodeGone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.observations[name]; s != nil && r.set != nil {
		r.recovered(s)
	}
	delete(r.observations, name)
	r.closing.gone(name)
	r.recount(name, nil)
}

// renew accounts for the heartbeats of conditions that a rule names. It reports whether one that was stale is not any more.
func (s *observation) renew(n *corev1.Node, rules []rule.Rule, now time.Time, staleAfter time.Duration) (back bool) {
	for _, c := range n.Status.Conditions {
		if !rule.NameCondition(rules, c.Type) {
			continue
		}
		have, known := s.heartbeats[string(c.Type)]
		if known && have.at.Equal(c.LastHeartbeatTime.Time) {
			continue
		}
		if s.heartbeats == nil {
			s.heartbeats = map[string]heartbeat{}
		}
		back = back || known && now.Sub(have.seen) >= staleAfter
		s.heartbeats[string(c.Type)] = heartbeat{at: c.LastHeartbeatTime.Time, seen: now, renewed: known}
	}
	return back
}

// renewals is when each condition that is renewed at all was seen to be, by type.
func (s *observation) renewals() map[string]time.Time {
	var out map[string]time.Time
	for t, h := range s.heartbeats {
		if h.renewed {
			if out == nil {
				out = map[string]time.Time{}
			}
			out[t] = h.seen
		}
	}
	return out
}

// adopt remembers since when the rules hold the node by a taint that nobody owns.
func (s *observation) adopt(uids []string, now time.Time) {
	next := map[string]time.Time{}
	for _, uid := range uids {
		next[uid] = now
		if since, ok := s.adopting[uid]; ok {
			next[uid] = since
		}
	}
	s.adopting = nil
	if len(next) > 0 {
		s.adopting = next
	}
}

// hold is for how long a bootstrap-only rule has held a node.
type hold struct {
	rule   string
	origin TaintOrigin
	since  time.Time
}

// wrote accounts for a plan that was carried out, and returns the holds that it ends. began is when this process was
// the first to see nodes: nobody knows of an older node who put a taint on it.
func (s *observation) wrote(n *corev1.Node, plan rule.Plan, began, now time.Time) (ended []hold) {
	for _, e := range plan.Evaluations {
		if e.Rule.Continuous {
			continue
		}
		for _, a := range plan.Acts {
			if a.Rule.UID != e.Rule.UID {
				continue
			}
			switch since, ours := s.added[e.Rule.UID]; {
			case a.Operation == rule.Add:
				if s.added == nil {
					s.added = map[string]time.Time{}
				}
				s.added[e.Rule.UID] = now
			case a.Operation != rule.Complete || !e.Tainted:
			case ours:
				ended = append(ended, hold{e.Rule.Name, OriginController, since})
				delete(s.added, e.Rule.UID)
			case !began.IsZero() && n.CreationTimestamp.After(began):
				ended = append(ended, hold{e.Rule.Name, OriginAdopted, n.CreationTimestamp.Time})
			}
		}
	}
	return ended
}

// conditions are the node's, by type.
func conditions(n *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	m := make(map[corev1.NodeConditionType]corev1.ConditionStatus, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		m[c.Type] = c.Status
	}
	return m
}

func describe(p rule.Plan) string {
	said := ""
	for _, a := range p.Acts {
		said += fmt.Sprintf("%s %s %d;", a.Operation, a.Rule.UID, a.Rule.Generation)
	}
	return said
}
