package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// TaintsOnCreation lists the taints that are to be added to a node at its creation, in the configuration's order: those of the
// profile that its labels select now, less what it brings. A taint that the node brings with another value is left as it is,
// and so is what stands in for one of effect NoExecute: the API server refuses two taints of one key and effect. None are added
// to a node that is not verified: one that is opted out or not selected, not Linux, virtual, or a control-plane one as far
// as its labels show it; nor to one of AKS's system pools, which run what a cluster cannot start without.
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

// MissedTaints lists the taints that a node still gets which admission missed: those that it would have got on creation, if it was
// never verified or completed, carries no gating taint, is not on its way out and is younger than admission.backfillMaxAge. The age
// counts from its creation, as the API server wrote it. Whether it runs ordinary pods the Node does not show; see Backfill.
func MissedTaints(n *corev1.Node, in Input, now time.Time) []marks.Taint {
	a, f := in.Config.Admission, in.Node
	switch {
	case !a.Backfill, now.Sub(f.Created) >= a.BackfillMaxAge.Duration:
		return nil
	case f.Gated, f.Labelled, f.Completed, f.Record.MayHaveVerified(), f.Deleting, f.Leaving != "":
		return nil
	}
	return TaintsOnCreation(n, in.Config)
}

// Backfill is how a node that admission missed is tainted, and what is said of it; ok is false where there is nothing to do, or the
// node runs ordinary pods. A taint of effect NoExecute goes on with effect NoSchedule: nothing in the write shows a pod that was
// bound since the node's pods were listed, and it must not be evicted.
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
	return marks.Change{KeepRecord: true, Gate: marks.GateClose, GateTaints: taints},
		Event{Reason: EventBackfilled, Key: n.ResourceVersion, Message: fmt.Sprintf(
			"The node was created without a gating taint and runs no ordinary pod: %s was added, and stays until the node is verified", strings.Join(ids, ", "))}, true
}
