package rule

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// sight is what this process has seen of a node for its rules. It is a hint: a successor counts from its own first sight.
type sight struct {
	uid types.UID
	// heartbeats are the last of each condition, by type.
	heartbeats map[string]heartbeat
	// adopting is since when a rule, by UID, was seen to hold the node by a taint that nobody owns.
	adopting map[string]time.Time
	// changed is when a change of the conditions, labels or taints was last seen.
	changed time.Time
	// failure is the last write of rules that the API server did not take, failed the UIDs of those rules.
	failure decide.RuleFailure
	failed  map[string]bool
	// rehearsed is what a dry run has said of the node.
	rehearsed string
}

type heartbeat struct {
	at   time.Time // what the condition says
	seen time.Time // on our clock
	// renewed: it was seen to change, so its writer renews it.
	renewed bool
}

// sight is what was seen of the node; that of an earlier node of the name is dropped. r.mu must be held.
func (r *Rules) sight(n *corev1.Node) *sight {
	s := r.sights[n.Name]
	if s == nil || s.uid != n.UID {
		if r.sights == nil {
			r.sights = map[string]*sight{}
		}
		s = &sight{uid: n.UID}
		r.sights[n.Name] = s
	}
	return s
}

// SeeNode accounts for what the watch has shown of a node, and reports whether its rules have to look at it for a reason
// that nobody else does: rules.staleAfter begins anew, or our own condition changed. before is nil for a node that is new.
func (r *Rules) SeeNode(before, now *corev1.Node) (look bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, at := r.sight(now), r.Now()
	changed := before == nil || !maps.Equal(conditions(before), conditions(now))
	if changed {
		s.changed, r.stirred = at, at
	}
	if r.set == nil {
		return false
	}
	if changed {
		for i := range r.set.rules {
			if rule := &r.set.rules[i]; rule.Selects(now.Labels) {
				r.WakeRule(rule.Name)
			}
		}
	}
	if r.Config.StaleAfter.Duration > 0 {
		look = s.renew(now, r.set.rules, at, r.Config.StaleAfter.Duration)
	}
	return look || before != nil && decide.NameCondition(r.set.rules, marks.ConditionType) &&
		conditions(before)[marks.ConditionType] != conditions(now)[marks.ConditionType]
}

// NodeGone drops a node.
func (r *Rules) NodeGone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sights, name)
	if r.set != nil {
		for i := range r.set.rules {
			r.WakeRule(r.set.rules[i].Name)
		}
	}
}

// renew accounts for the heartbeats of conditions that a rule names. It reports whether one that was stale is not any more.
func (s *sight) renew(n *corev1.Node, rules []decide.Rule, now time.Time, staleAfter time.Duration) (back bool) {
	for _, c := range n.Status.Conditions {
		if !decide.NameCondition(rules, c.Type) {
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
func (s *sight) renewals() map[string]time.Time {
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
func (s *sight) adopt(uids []string, now time.Time) {
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

// conditions are the node's, by type.
func conditions(n *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	m := make(map[corev1.NodeConditionType]corev1.ConditionStatus, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		m[c.Type] = c.Status
	}
	return m
}

func rehearsal(p decide.RulePlan) string {
	said := ""
	for _, a := range p.Acts {
		said += fmt.Sprintf("%s %s %d;", a.Operation, a.Rule.UID, a.Rule.Generation)
	}
	return said
}
