package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// lookAtNotOurs reports what keeps a node unverified for good, if anything does. Else its condition shows what it
// passed before it was excluded. A node that is not selected may belong to another installation, and so may its marks.
func lookAtNotOurs(in Input, ev Evidence, now time.Time) Plan {
	switch {
	case !in.Selected:
		return Plan{}
	case OpenedUnverified(in):
		return gateRemovedPlan(in, ev, now)
	case unsupported(in):
		p := unsupportedOS(in, now)
		p.requeueAfter(nextReason(in, now))
		return p
	}
	return lookAtVerified(in, ev, now)
}

// unsupported reports whether the node waits for a verification that it never gets, because it does not run Linux.
func unsupported(in Input) bool { return in.Node.Gated && in.Node.OtherOS != "" && !in.Node.Skip }

// unsupportedOS reports that the gating taint of a node without Linux stays, and how to exclude such nodes.
func unsupportedOS(in Input, now time.Time) (p Plan) {
	var ids []string
	remove := ""
	for _, t := range in.Node.GatedBy {
		ids = append(ids, t.ID().String())
		remove += " " + t.ID().String() + "-"
	}
	message := fmt.Sprintf("Only Linux nodes are verified. The node's label %s is %q, so %s stays",
		corev1.LabelOSStable, in.Node.OtherOS, strings.Join(ids, ", "))
	p.Condition = unknownCondition(marks.ReasonUnsupportedOS, message, now)
	if c := in.Node.Condition; c == nil || c.Reason != marks.ReasonUnsupportedOS {
		const fix = "Do not set this taint on such nodes (kubelet --register-with-taints, a NodePool's startupTaints, " +
			"a node group's taints), and remove it from this node"
		p.Events = []Event{{Reason: EventUnsupportedOS, Key: EventUnsupportedOS.Name + "/" + in.Node.OtherOS,
			Message: fmt.Sprintf("%s. %s: kubectl taint nodes %s%s", message, fix, in.Node.Name, remove)}}
	}
	return p
}
