package decide

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Adoptable reports whether the node carries the verified label and no record: another program verified it, or its
// record was removed. Without a record nothing starts its verification again, neither a reboot nor the removal of its
// label. A gated node is verified anyway, and a record that cannot be read stays until an attempt replaces it.
func Adoptable(in Input) bool {
	n := in.Node
	return n.Labelled && !n.Gated && !n.Deleting && n.Record.NodeUID != n.UID && n.RecordProblem == "" && Eligible(in)
}

// Adopt is the record that an adoptable node gets. The node counts as one that was verified before, at a time that
// nobody knows. It carries no control probe before it passes an attempt (see SummaryOf): a kubelet may set the label on
// its own node.
func Adopt(in Input, now time.Time) marks.Change {
	return marks.Change{Record: marks.Record{
		NodeUID: in.Node.UID, BootID: in.Node.BootID, HistoryLost: true,
		LastReason: attempt.ReasonAdopted, LastMessage: "the node carried the verified label and no record",
		LastTime: ptr.To(now.UTC().Truncate(time.Microsecond)),
	}}
}

// verifiedTime is when the node last passed or, if it was adopted and not verified since, when that was; nil for
// neither.
func verifiedTime(r marks.Record) *time.Time {
	if r.VerifiedTime == nil && r.LastReason == attempt.ReasonAdopted && r.LastOutcome == "" {
		return r.LastTime
	}
	return r.VerifiedTime
}
