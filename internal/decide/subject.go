package decide

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
)

// Subject tells whether the node may be verified at all.
func Subject(in Input) bool {
	return in.Selected && !in.Node.Skip && (!in.Node.ControlPlane || in.Config.NodeManagement.IncludeControlPlane)
}

// Needed tells whether the node must be verified now. A node that never had the taint and never was
// verified is left alone, so that an installation into a live cluster touches nothing.
func Needed(in Input, now time.Time) bool {
	n := in.Node
	switch {
	case n.Gated:
		return true
	case !n.Labelled:
		return n.HasRecord || in.Config.NodeManagement.VerifyUntainted
	}
	return rebooted(in) || aged(in, now) || n.Record.LastOutcome != "" && n.Record.LastOutcome != node.OutcomePassed
}

// rebooted tells whether the verdict is for another boot. An empty boot ID is one that was not reported.
func rebooted(in Input) bool {
	r := in.Node.Record
	return ptr.Deref(in.Config.NodeManagement.Reverify.OnReboot, true) && r.BootID != "" && in.Node.BootID != "" && r.BootID != in.Node.BootID
}

func aged(in Input, now time.Time) bool {
	every := in.Config.NodeManagement.Reverify.Interval.Duration
	v := in.Node.Record.VerifiedTime
	return every > 0 && v != nil && !now.Before(v.Add(every))
}

func untilAged(in Input, now time.Time) time.Duration {
	every := in.Config.NodeManagement.Reverify.Interval.Duration
	if v := in.Node.Record.VerifiedTime; every > 0 && v != nil && in.Node.Labelled {
		return v.Add(every).Sub(now)
	}
	return 0
}
