package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// suspect is the present transition of a condition that makes a node suspect, and when this process first observed it.
type suspect struct {
	status            corev1.ConditionStatus
	transition, since time.Time
}

// observeSuspects records when it first observed the present transition of each condition that makes the node suspect.
// It returns those times by the conditions' types, or nil if there are none.
func (s *Tracker) observeSuspects(in decide.Input) map[corev1.NodeConditionType]time.Time {
	if len(in.Profile.SuspectConditions) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[corev1.NodeConditionType]suspect{}
	for _, by := range in.Profile.SuspectConditions {
		if c := decide.SuspectConditionOf(in.Node, by); c != nil {
			now[c.Type] = suspect{status: c.Status, transition: c.LastTransitionTime.UTC(), since: s.Now()}
		}
	}
	n := s.nodes[in.Node.Name]
	if len(now) == 0 && (n == nil || n.suspects == nil) {
		return nil
	}
	n = s.node(in.Node.Name, types.UID(in.Node.UID))
	since := map[corev1.NodeConditionType]time.Time{}
	for kind, c := range now {
		if before, ok := n.suspects[kind]; ok && before.status == c.status && before.transition.Equal(c.transition) {
			c.since = before.since
		}
		now[kind], since[kind] = c, c.since
	}
	n.suspects = now
	return since
}
