package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// TaintsOnCreation lists the taints to add to a node on its creation, in the configuration's order. These are the
// taints of the profile that its labels select now, without those that it already has, with any value or as a fallback
// taint. The API server refuses two taints of one key and effect. A node that is not verified gets none. Nor does a
// node of AKS's system pools, which run components that a cluster needs to start.
func TaintsOnCreation(n *corev1.Node, c *config.Config) []marks.Taint {
	in := Input{Config: c, Node: marks.Observe(n, c.Vocabulary()), Selected: c.Selects(n.Labels)}
	if !Eligible(in) || protected(in) || n.Labels[marks.LabelAKSMode] == marks.AKSModeSystem {
		return nil
	}
	var missing []marks.Taint
	for _, t := range c.For(n.Labels).Taints {
		there := marks.Vocabulary{Gating: marks.WithFallbacks([]marks.Taint{t})}
		if !slices.ContainsFunc(n.Spec.Taints, there.Gates) {
			missing = append(missing, t)
		}
	}
	return missing
}

// MissedTaints lists the taints that a node should have got on creation, but that admission missed. There are none for
// a node that carries a gating taint, was verified, completed or released before, is leaving, or is older than
// admission.backfillMaxAge. There are none either if a person took the gating taint, which only a read from the API
// server shows, or if gateRemovedPlan puts it back, once. The Node does not show whether it runs ordinary pods; see
// Backfill.
func MissedTaints(n *corev1.Node, in Input, now time.Time) []marks.Taint {
	a, f := in.Config.Admission, in.Node
	switch {
	case !a.Backfill, now.Sub(f.Created) >= a.BackfillMaxAge.Duration:
		return nil
	case in.Closed(), f.Labelled && !bornVerified(in), f.Completed, f.Record.MayHaveVerified(),
		f.Record.Released != nil, f.Deleting, f.Leaving != "":
		return nil
	case f.Record.LastReason == attempt.ReasonGateRemoved, isPerson(marks.Writer(n.ManagedFields, "spec", "taints")),
		a.Mode != config.AdmissionOff && OpenedUnverified(in):
		return nil
	}
	return TaintsOnCreation(n, in.Config)
}

// Backfill is the change that taints a node that admission missed, and its event. ok is false if there is nothing to
// do, or the node runs ordinary pods. A NoExecute taint is replaced by its fallback, since it would evict a pod that
// was bound after the node's pods were listed.
func Backfill(n *corev1.Node, in Input, w Workloads, now time.Time) (c marks.Change, e Event, ok bool) {
	taints := MissedTaints(n, in, now)
	if len(taints) == 0 || w.occupied() != "" {
		return marks.Change{}, Event{}, false
	}
	var ids []string
	for i, t := range taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			taints[i] = t.Fallback()
		}
		if id := taints[i].ID().String(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	message := fmt.Sprintf("The node was created without a gating taint and runs no ordinary pod. Added %s, which "+
		"stays until the node is verified", strings.Join(ids, ", "))
	return marks.Change{KeepRecord: true, Gate: marks.GateClose, GateTaints: taints},
		Event{Reason: EventBackfilled, Key: n.ResourceVersion, Message: message}, true
}
