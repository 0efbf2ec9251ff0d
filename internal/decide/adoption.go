package decide

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Adoptable reports whether the node carries the verified label and no record: another program verified it, or its
// record was removed. Without a record neither a reboot nor the removal of its label would verify it again. A node that
// was born with the label is verified instead. A node that passed under an earlier name of the label is adoptable, too.
func Adoptable(in Input) bool {
	n := in.Node
	if n.Gated || n.Deleting || n.RecordProblem != "" || !Eligible(in) {
		return false
	}
	return n.Labelled && n.Record.NodeUID != n.UID && !bornVerified(in) || relabels(in)
}

// LabelOf is the Label of records that are written under a configuration.
func LabelOf(c *config.Config) string {
	l := c.NodeManagement.VerifiedLabel
	if l.Key == config.DefaultLabelKey && l.Value == config.DefaultLabelValue {
		return ""
	}
	return l.Key + "=" + l.Value
}

// relabels reports whether the node passed, or was adopted, under another verified label than the present one. Its
// label was renamed and not removed: it gets the present one, at the rate of adoption, and is not verified again. A
// process that verifies its own node alone verifies it. A node that was released past its deadline had lost its label.
func relabels(in Input) bool {
	r := in.Node.Record
	return r.Label != LabelOf(in.Config) && r.NodeUID == in.Node.UID && in.LocalWorker == nil && r.Released == nil &&
		(r.LastOutcome == attempt.Passed || r.LastOutcome == "" && r.LastReason == attempt.ReasonAdopted)
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
//
// A node whose label was renamed keeps its record, and gets the label of the present name.
func Adopt(in Input, now time.Time) marks.Change {
	if relabels(in) {
		r := in.Node.Record
		r.Label = LabelOf(in.Config)
		return marks.Change{Record: r, Label: ptr.To(true)}
	}
	at := ptr.To(timestamp(now))
	return marks.Change{Record: marks.Record{
		NodeUID: in.Node.UID, BootID: in.Node.BootID, Label: LabelOf(in.Config), LastTime: at, VerifiedTime: at,
		LastReason: attempt.ReasonAdopted, LastMessage: "the node carried the verified label and no record",
	}}
}
