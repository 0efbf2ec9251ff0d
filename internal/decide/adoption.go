package decide

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Adoptable reports whether the node carries the verified label and no record: another program verified it, or its
// record was removed. Without a record neither a reboot nor the removal of its label would verify it again. A node that
// was born with the label is verified instead.
func Adoptable(in Input) bool {
	n := in.Node
	return n.Labelled && !n.Gated && !n.Deleting && n.Record.NodeUID != n.UID && n.RecordProblem == "" && Eligible(in) &&
		!bornVerified(in)
}

// bornVerified reports whether the node is younger than the installation and carries the verified label, but has no
// attempt of ours. It was created with the label, by its NodePool's template or by its kubelet, which proves nothing.
func bornVerified(in Input) bool {
	n := in.Node
	return n.Labelled && !in.Installed.IsZero() && n.Created.After(in.Installed) &&
		n.Record.LastOutcome == "" && !n.Record.MayHaveVerified()
}

// bornVerifiedEvents is the event of the first attempt of a node that was born verified; none for any other.
func bornVerifiedEvents(in Input, r marks.Record) []Event {
	if !bornVerified(in) {
		return nil
	}
	label := in.Config.NodeManagement.VerifiedLabel
	message := fmt.Sprintf("The node carried label %s=%s before any verification, which proves nothing, so it was "+
		"verified. Remove the label from what creates nodes, such as the template of a NodePool or a node group, or "+
		"kubelet --node-labels", label.Key, label.Value)
	return []Event{{Reason: EventBornVerified, Key: eventKey(r), Message: message}}
}

// Adopt is the change that gives an adoptable node a record. The node counts as verified before. It hosts no control
// probe before it passes an attempt (see SummaryOf), since a kubelet may set the label on its own node.
func Adopt(in Input, now time.Time) marks.Change {
	return marks.Change{Record: marks.Record{
		NodeUID: in.Node.UID, BootID: in.Node.BootID, HistoryLost: true,
		LastReason: attempt.ReasonAdopted, LastMessage: "the node carried the verified label and no record",
		LastTime: ptr.To(timestamp(now)),
	}}
}

// verifiedTime is when the node last passed or, if it has not passed since, when it was adopted; nil for neither.
func verifiedTime(r marks.Record) *time.Time {
	if r.VerifiedTime == nil && r.LastReason == attempt.ReasonAdopted && r.LastOutcome == "" {
		return r.LastTime
	}
	return r.VerifiedTime
}
