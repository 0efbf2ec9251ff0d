package decide

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// withoutEviction is the plan p with the fallback of a NoExecute taint, of effect NoSchedule, for a node that runs
// ordinary pods. It cannot see a pod that is bound between the list of the node's pods and the write.
func withoutEviction(in Input, ev Evidence, p Plan) Plan {
	if p.Need != NeedNothing || p.Change.Gate != marks.GateClose {
		return p
	}
	var safe, evicting []marks.Taint
	for _, t := range p.Change.GateTaints {
		switch {
		case t.Effect != corev1.TaintEffectNoExecute:
			safe = append(safe, t)
		case !slices.ContainsFunc(in.Node.GatedBy, func(on marks.Taint) bool {
			return on.ID() == t.ID() || on.ID() == t.Fallback().ID()
		}):
			evicting = append(evicting, t)
		}
		// A taint stays as it is if the node already carries it or its fallback. Another effect of its key is another taint.
	}
	if len(evicting) == 0 {
		p.Change.GateTaints = safe
		return p
	}
	if !ev.has(NeedOccupants) {
		return Plan{Need: NeedOccupants, Condition: p.Condition}
	}
	occupied := ev.Workloads.occupied()
	if occupied == "" {
		return p
	}
	var keys []string
	for _, t := range evicting {
		safe, keys = append(safe, t.Fallback()), append(keys, t.Key)
	}
	p.Change.GateTaints = safe
	if len(p.Events) == 0 && p.Recorded == nil { // the gate closes before a re-verification, which has no event yet
		key := "gate/" + eventKey(in.Node.Record)
		p.Events = []Event{{Reason: EventStarted, Key: key, Message: "The node will be verified again"}}
	}
	for i := range p.Events {
		p.Events[i].Message += fmt.Sprintf("; taint %s was added with effect NoSchedule instead of NoExecute: %s",
			strings.Join(keys, ", "), occupied)
	}
	return p
}

// occupied says that the node runs ordinary pods, or may run some. It is empty if the node runs none.
func (w *Workloads) occupied() string {
	switch {
	case w.Problem != "":
		return w.Problem
	case len(w.Names) == 0:
		return ""
	}
	list := strings.Join(w.Names, ", ")
	if w.More {
		list += " and more"
	}
	return "the node runs ordinary pods: " + list
}
