package decide

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Eligible reports whether the node may be verified at all. Only Linux nodes may. A protected node is verified only if
// it carries a gating taint, because kubeadm labels a control-plane node only after it has registered. In DaemonSet
// mode, a control-plane node is verified and labelled, because otherwise the DaemonSet's pod would stay on it. It is
// never tainted.
func Eligible(in Input) bool {
	return in.Selected && !in.Node.Skip && in.Node.OtherOS == "" &&
		(!protected(in) || in.Node.Gated || in.LocalWorker != nil && in.Node.ControlPlane)
}

// protected reports whether the controller must never taint or delete the node, whatever the result of its
// verification.
func protected(in Input) bool {
	return in.Node.Virtual || in.Node.ControlPlane && !in.Config.NodeManagement.IncludeControlPlane
}

// Closed reports whether the node's gate is closed. A gating taint of effect PreferNoSchedule closes it only if the
// node's profile has no stronger one.
func (in Input) Closed() bool {
	return in.Node.Gated && (!marks.PreferOnly(in.Node.GatedBy) || marks.PreferOnly(in.Profile.Taints))
}

// NeedsVerification reports whether the node must be verified now. A node that never had the taint and was never
// verified is left alone. So an installation into a live cluster changes no existing node.
func NeedsVerification(in Input, now time.Time) bool {
	n := in.Node
	switch {
	case n.Gated:
		return true
	case relabels(in):
		return false // until adoption has given it the label
	case !n.Labelled:
		return n.HasRecord || in.Config.NodeManagement.VerifyUntainted
	}
	if n.Record.LastOutcome != "" && n.Record.LastOutcome != attempt.Passed {
		return true
	}
	// A node that is leaving is not verified again, but an attempt that runs may end.
	if n.Leaving != "" && CurrentPod(n.Record, in.Pods) == nil {
		return false
	}
	at, ok := reverifyTime(in, now)
	suspicion, _, _ := newSuspicion(in, now)
	return bornVerified(in) || rebooted(in) || reselected(in) != "" || ok && !now.Before(at) ||
		n.Record.Suspicion != nil || suspicion != nil
}

// rebooted reports whether the verdict is from another boot and reverify.onReboot is on. An empty boot ID is unknown. A
// boot ID that another machine of the node's name reports is no reboot.
func rebooted(in Input) bool {
	return in.Node.Record.Flapping == nil && *in.Config.NodeManagement.Reverify.OnReboot &&
		otherBoot(in.Node.Record.BootID, in.Node.BootID)
}

// reselected says which profile the labels of a node that passed select now, if that has other checks than the one that
// they selected before; empty if they select the same. Labels may come late. Another configuration verifies no node.
func reselected(in Input) string {
	r := in.Node.Record
	if r.LastOutcome != attempt.Passed || r.Profile == "" || r.Checks == in.Checks || in.Node.Uninitialized != "" {
		return ""
	}
	before, ok := in.Config.Chosen(r.Profile)
	if !ok || before == in.Profile.Profile {
		return ""
	}
	return fmt.Sprintf("the node's labels select %s, and selected %s, which has other checks",
		profileName(in.Profile.Profile), profileName(before))
}

func profileName(name string) string {
	if name == "" {
		return "no profile"
	}
	return "profile " + name
}

func otherBoot(then, now string) bool { return then != "" && now != "" && then != now }

// reverifyTime is when the verdict is too old. That is up to a tenth of the interval early, so that nodes which were
// verified together are not verified again together. A verdict from the future is forged or from a fast clock, and
// counts as too old.
func reverifyTime(in Input, now time.Time) (at time.Time, ok bool) {
	every, verified := in.Config.NodeManagement.Reverify.Interval.Duration, in.Node.Record.VerifiedTime
	if every <= 0 || verified == nil {
		return time.Time{}, false
	}
	if verified.After(now.Add(clockTolerance)) {
		return now, true
	}
	return verified.Add(every - jitter(every/10, "age", in.Node.UID)), true
}

// clockTolerance is how far the clocks of two leaders may differ. A record that one leader writes must not lie in the
// future for the other.
const clockTolerance = time.Minute

// jitter is a duration from 0 to d that is always the same for the same seed.
func jitter(d time.Duration, seed ...string) time.Duration {
	h := fnv.New32a()
	for _, s := range seed {
		h.Write([]byte(s + "/"))
	}
	return time.Duration(float64(d) * float64(h.Sum32()%1000) / 1000)
}
