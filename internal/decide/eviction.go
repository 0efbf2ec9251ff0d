package decide

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// withoutEviction is the plan that puts no NoExecute taint on a node which runs ordinary pods: there the taint goes on with effect
// NoSchedule. A pod that is bound between the list of the node's pods and the write is the one that this cannot see.
func (p Plan) withoutEviction(in Input, ev Evidence) Plan {
	if p.Need != NeedNothing || p.Change.Gate != marks.GateClose {
		return p
	}
	var gentle, evicting []marks.Taint
	for _, t := range p.Change.GateTaints {
		switch {
		case t.Effect != corev1.TaintEffectNoExecute:
			gentle = append(gentle, t)
		case !slices.ContainsFunc(in.Node.GatedBy, func(on marks.Taint) bool { return on.Key == t.Key }):
			evicting = append(evicting, t)
		}
		// One that is there, or whose fallback taint is, stays as it is.
	}
	if len(evicting) == 0 {
		p.Change.GateTaints = gentle
		return p
	}
	if !ev.has(NeedOccupants) {
		return Plan{Need: NeedOccupants, Condition: p.Condition}
	}
	why := ev.Workloads.busy()
	if why == "" {
		return p
	}
	var keys []string
	for _, t := range evicting {
		gentle, keys = append(gentle, t.Fallback()), append(keys, t.Key)
	}
	p.Change.GateTaints = gentle
	p.Events = slices.Clone(p.Events)
	if len(p.Events) == 0 && p.Recorded == nil { // the gate closes before a re-verification, which says nothing else so far
		p.Events = []Event{{Reason: EventStarted, Key: "gate/" + eventKey(in.Node.Record), Message: "The node is to be verified again"}}
	}
	for i := range p.Events {
		p.Events[i].Message += fmt.Sprintf("; taint %s went on with effect NoSchedule and not NoExecute: %s", strings.Join(keys, ", "), why)
	}
	return p
}

// busy says that the node runs ordinary pods, or may; empty where it does not.
func (w *Workloads) busy() string {
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
