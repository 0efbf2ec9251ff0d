package rules

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// nodeState is what this process has observed and decided of a node. It is a hint: a successor starts from its own
// first observation.
type nodeState struct {
	uid types.UID
	// heartbeats are the last heartbeat of each condition, by type.
	heartbeats map[string]heartbeat
	// adopting is when a rule, by UID, was first observed to hold the node by a taint without an owner.
	adopting map[string]time.Time
	// released are the UIDs of the bootstrap-only rules that the node was observed to pass.
	released []string
	// changed is when the conditions last changed.
	changed time.Time
	// failure is the last write of rules that the API server refused. failed are the UIDs of those rules.
	failure rule.Failure
	failed  map[string]bool
	// added is when this process added the taint of a bootstrap-only rule, by the rule's UID.
	added map[string]time.Time
	// reported is what a dry run has reported of the node.
	reported string
	// counted are the node's evaluations as the tallies of its rules contain them.
	counted []rule.Evaluation
}

type heartbeat struct {
	of       corev1.NodeCondition
	observed time.Time // on our clock
	renewed  bool      // it was observed to change alone, so its writer renews it
}

// state is what this process knows of the node. The state of an earlier node of the same name is dropped, except for
// the evaluations that the tallies contain. r.mu must be held.
func (r *Rules) state(n *corev1.Node) *nodeState {
	s := r.nodes[n.Name]
	if s != nil && s.uid == n.UID {
		return s
	}
	if r.nodes == nil {
		r.nodes = map[string]*nodeState{}
	}
	next := &nodeState{uid: n.UID}
	if s != nil {
		next.counted = s.counted
	} else if (r.set == nil || len(r.set.rules) == 0) && len(marks.OwnedOn(n)) == 0 {
		return next // nothing of it is needed, and there are tens of thousands of nodes
	}
	r.nodes[n.Name] = next
	return next
}

// observed is the node in the form in which its rules are evaluated on it. r.mu must be held.
func (r *Rules) observed(n *corev1.Node) rule.Node {
	return rule.Node{Node: n, Gating: r.Gating, Renewed: r.state(n).renewals(), Limited: r.Config.MaxClosedPercent > 0}
}

// ObserveNode records what the watch shows of a node. It reports whether the node must be reconciled for a reason that
// only its rules have: a stale condition is renewed, or our own condition changed. For a new node, before is nil.
func (r *Rules) ObserveNode(before, now *corev1.Node) (enqueue bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, at := r.state(now), r.Now()
	if before == nil || !sameStatuses(before, now) {
		s.changed, r.lastChange = at, at
	}
	if r.started.IsZero() {
		r.started = at
	}
	if r.set == nil {
		return false
	}
	if r.Config.StaleAfter.Duration > 0 {
		enqueue = s.renew(now, r.set.rules, at, r.Config.StaleAfter.Duration)
	}
	return enqueue || before != nil && rule.AnyRequires(r.set.rules, marks.ConditionType) &&
		statusOf(before, marks.ConditionType) != statusOf(now, marks.ConditionType)
}

// ForgetNode drops a node that is gone.
func (r *Rules) ForgetNode(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.nodes[name]; s != nil && r.set != nil {
		r.clearFailure(s)
	}
	for _, nodes := range r.closing {
		delete(nodes, name)
	}
	r.count(name, nil)
	delete(r.nodes, name)
	delete(r.awaiting, name)
}

// renew records the heartbeats of conditions that a rule requires. It reports whether a stale condition was renewed. A
// heartbeat that is new together with a status or a reason, or after staleAfter, is none: many writers, and we of our
// own condition, write it only then.
func (s *nodeState) renew(n *corev1.Node, rules []rule.Rule, now time.Time, staleAfter time.Duration) (back bool) {
	for _, c := range n.Status.Conditions {
		if !rule.AnyRequires(rules, c.Type) || c.Type == marks.ConditionType {
			continue
		}
		last, known := s.heartbeats[string(c.Type)]
		if known && last.of.LastHeartbeatTime.Equal(&c.LastHeartbeatTime) {
			continue
		}
		alone := known && last.of.Status == c.Status && last.of.Reason == c.Reason &&
			last.of.LastTransitionTime.Equal(&c.LastTransitionTime) && now.Sub(last.observed) < staleAfter
		if s.heartbeats == nil {
			s.heartbeats = map[string]heartbeat{}
		}
		back = back || known && now.Sub(last.observed) >= staleAfter
		s.heartbeats[string(c.Type)] = heartbeat{of: c, observed: now, renewed: last.renewed || alone}
	}
	return back
}

// renewals is when each condition was last observed to be renewed, by type. A condition that was never renewed is left
// out.
func (s *nodeState) renewals() map[string]time.Time {
	if len(s.heartbeats) == 0 {
		return nil
	}
	out := map[string]time.Time{}
	for t, h := range s.heartbeats {
		if h.renewed {
			out[t] = h.observed
		}
	}
	return out
}

// adopt records since when the rules hold the node by a taint without an owner.
func (s *nodeState) adopt(uids []string, now time.Time) {
	before := s.adopting
	s.adopting = nil
	for _, uid := range uids {
		if s.adopting == nil {
			s.adopting = map[string]time.Time{}
		}
		s.adopting[uid] = now
		if since, ok := before[uid]; ok {
			s.adopting[uid] = since
		}
	}
}

// hold is for how long a bootstrap-only rule has held a node.
type hold struct {
	rule   string
	origin TaintOrigin
	since  time.Time
}

// recordHolds records since when bootstrap-only rules hold the node, and returns the holds that the written plan ends.
// started is when this process first observed nodes. The process does not know who tainted a node that is older than
// that.
func (s *nodeState) recordHolds(n *corev1.Node, plan rule.Plan, started, now time.Time) (ended []hold) {
	for _, e := range plan.Evaluations {
		for _, a := range plan.Actions {
			if e.Rule.Continuous || a.Rule.UID != e.Rule.UID {
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
			case !started.IsZero() && n.CreationTimestamp.After(started):
				ended = append(ended, hold{e.Rule.Name, OriginAdopted, n.CreationTimestamp.Time})
			}
		}
	}
	return ended
}

// sameStatuses reports whether two nodes have conditions of the same types and statuses. It makes no map of them,
// because every heartbeat of every node comes here.
func sameStatuses(a, b *corev1.Node) bool {
	differs := func(c corev1.NodeCondition) bool { return statusOf(b, c.Type) != c.Status }
	return len(a.Status.Conditions) == len(b.Status.Conditions) && !slices.ContainsFunc(a.Status.Conditions, differs)
}

// statusOf is the status of the node's condition of that type; empty if it has none.
func statusOf(n *corev1.Node, t corev1.NodeConditionType) corev1.ConditionStatus {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == t {
			return c.Status
		}
	}
	return ""
}

// describe returns a text that identifies the plan, so that a dry run reports each plan once.
func describe(p rule.Plan) (text string) {
	for _, a := range p.Actions {
		text += fmt.Sprintf("%s %s %d;", a.Operation, a.Rule.UID, a.Rule.Generation)
	}
	return text
}
