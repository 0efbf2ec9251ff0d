package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// NodePool is what decisions need to know of one of Karpenter's NodePools.
type NodePool struct {
	Name, UID string
	// Startup are its startupTaints, Taints its permanent ones.
	Startup, Taints []marks.Taint
	// Carried are the gating taints that nodes of the pool have now.
	Carried []marks.Taint
	// DoNotDisrupt: its template sets owner.AnnotationDoNotDisrupt.
	DoNotDisrupt bool
}

// UnknownTaint is a gating taint that Karpenter treats as permanent, so it launches another node for pods that do not
// tolerate it.
type UnknownTaint struct {
	// Pool is the NodePool whose nodes carry the taint, and which does not list it. Empty: no NodePool lists it, and no
	// NodePool's nodes carry it, so Karpenter launches no node in vain yet.
	Pool  string
	Taint marks.Taint
}

// String says what is wrong.
func (u UnknownTaint) String() string {
	problem := fmt.Sprintf("no NodePool lists the gating taint %s in startupTaints", u.Taint.ID())
	if u.Pool != "" {
		problem = fmt.Sprintf("NodePool %s does not list the gating taint %s in startupTaints, but its nodes carry it",
			u.Pool, u.Taint.ID())
	}
	return problem + ": Karpenter launches more nodes than are needed for pods that do not tolerate it"
}

// Event is what is emitted on the NodePool.
func (u UnknownTaint) Event() Event {
	return Event{Reason: EventStartupTaintUnknown, Key: u.Taint.ID().String(), Message: u.String()}
}

// UnknownTaints are the gating taints that Karpenter does not know. A NodePool does not list them although its nodes
// carry them, or no NodePool lists them and none of their nodes carries them. A pool whose nodes are not gated
// need not list any. Keys with the prefix of rules need not be listed: Karpenter 1.13 and later knows them by itself.
// Keys with Cluster Autoscaler's prefix are meant for other nodes than Karpenter's, so they count only where a pool's
// nodes carry them.
func UnknownTaints(gating []marks.Taint, pools []NodePool) (unknown []UnknownTaint) {
	if len(pools) == 0 {
		return nil
	}
	for _, t := range gating {
		if strings.HasPrefix(t.Key, marks.RuleTaintPrefix) {
			continue
		}
		expected := strings.HasPrefix(t.Key, marks.RuleAutoscalerPrefix)
		for _, p := range pools {
			listed, carried := HasTaint(p.Startup, t), HasTaint(p.Carried, t)
			if carried && !listed {
				unknown = append(unknown, UnknownTaint{Pool: p.Name, Taint: t})
			}
			expected = expected || listed || carried
		}
		if !expected {
			unknown = append(unknown, UnknownTaint{Taint: t})
		}
	}
	return unknown
}

// HasTaint reports whether the list has a taint of the key and effect.
func HasTaint(list []marks.Taint, t marks.Taint) bool {
	return slices.ContainsFunc(list, func(x marks.Taint) bool { return x.ID() == t.ID() })
}
