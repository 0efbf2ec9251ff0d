package decide

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// OpenedUnverified reports whether the gating taint of a node was removed by another writer before the node had a
// record: the node is open, and nothing verifies it. It was gated if this process saw that, or if its condition shows
// that it waited.
func OpenedUnverified(in Input) bool {
	n, gated := in.Node, !in.GateOpenSeen.IsZero()
	if c := n.Condition; c != nil && c.Status == corev1.ConditionUnknown {
		gated = gated || slices.Contains([]string{marks.ReasonGateRemoved, marks.ReasonVerifying, marks.ReasonWaitingForSlot,
			marks.ReasonWaitingForPrerequisites, marks.ReasonWaitingForRegistration, marks.ReasonReleaseRefused}, c.Reason)
	}
	return gated && !n.Gated && !n.Labelled && !n.HasRecord && !in.Config.NodeManagement.VerifyUntainted &&
		in.LocalWorker == nil && Eligible(in)
}

// isPerson reports whether a field manager stands for a person: kubectl's names begin so.
func isPerson(manager string) bool { return strings.HasPrefix(manager, "kubectl") }

// gateRemovedPlan reports a node that was opened unverified, and who removed the taint. If admission promises the gate,
// it is put back, with a record: if it is removed again, the node is verified without it. What a person removed, or
// what this process did not see on the node, is not put back.
func gateRemovedPlan(in Input, ev Evidence, now time.Time) (p Plan) {
	c := in.Node.Condition
	switch {
	case c != nil && c.Reason == marks.ReasonGateRemoved:
		return p
	case !ev.Fresh:
		p.Need = NeedFresh // the cache does not have who wrote the node
		return p
	}
	by := marks.Writer(in.Node.ManagedFields, "spec", "taints")
	text := "The gating taint was removed before the node was verified, and not by kube-node-ready: "
	if by == "" {
		text += "the Node does not show by whom, but the API server's audit log does"
	} else {
		text += "field manager " + attempt.Text(by) + " wrote the taints last"
	}
	promised := in.Config.Admission.Mode != config.AdmissionOff
	if promised && !in.GateOpenSeen.IsZero() && !isPerson(by) {
		text += ". admission.mode promises the taint, so it is put back once"
		r := marks.Record{NodeUID: in.Node.UID, BootID: in.Node.BootID, LastReason: attempt.ReasonGateRemoved,
			LastMessage: attempt.Text(text), Sequence: in.Vanished.Number}
		for _, pod := range in.Pods { // a worker that began under the earlier gate does not open this one
			if pod.Purpose == workerpod.PurposeVerify {
				r.Sequence = max(r.Sequence, pod.Attempt.Number)
			}
		}
		p.Step, p.Change = StepRecord, marks.Change{Record: r, Gate: marks.GateClose, GateTaints: in.Profile.Taints}
	} else {
		text += ". The node is open and unverified. To verify it, put the taint back: kubectl taint nodes " + in.Node.Name
		for _, t := range in.Profile.Taints {
			text += " " + t.ID().String()
		}
		p.Condition = unknownCondition(marks.ReasonGateRemoved, text, now)
	}
	p.Events = []Event{{Reason: EventGateRemoved, Key: "taints/" + by, Message: text}}
	return p
}
