package decide

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// reopen is what is written, or loaded, before a verification goes on: why the node is verified again, the start of a
// round, and what no longer holds. If done is false, there is nothing, and the plan says when to look again.
func reopen(in Input, ev Evidence, now time.Time) (p Plan, done bool) {
	if labelledByHand(in) { // record and condition keep the result of the checks
		return Plan{Step: StepRecord, Change: marks.Change{KeepRecord: true, Gate: marks.GateOpen}}, true
	}
	var wait time.Duration
	if CurrentPod(in.Node.Record, in.Pods) == nil { // an attempt under way began before it
		if p, done = recordSuspicion(in, ev, now); done {
			return p, true
		}
		wait = p.RequeueAfter
	}
	for _, write := range reopens {
		if p, done = write(in, ev, now); done {
			break
		}
	}
	p.requeueAfter(wait)
	return p, done
}

// reopens are the other writes of reopen, in their order.
var reopens = []func(in Input, ev Evidence, now time.Time) (p Plan, done bool){recordTakenBack, beginRound, dropAction}

// labelledByHand reports whether somebody added the verified label to a gated node by hand, in DaemonSet mode. The
// label ends the DaemonSet's pod on the node, so the pod removes the taints first. Outside of DaemonSet mode, the same
// state means that a taint came back.
func labelledByHand(in Input) bool {
	return in.LocalWorker != nil && !in.LocalWorker.Released && in.Node.Gated && in.Node.Labelled
}

// beginRound records the start of another round for a node that passed before. If reverify.taint is on, it closes the
// gate first, so that the gate does not stay open while prerequisites are unmet. The gate of a node that was released
// past its deadline stays open. A suspicion and labels that come late close no gate here, and keep no reboot from
// closing one. It reports whether there is anything to write.
func beginRound(in Input, _ Evidence, now time.Time) (p Plan, done bool) {
	r := in.Node.Record
	if !r.MayHaveVerified() {
		return p, false
	}
	_, began := RoundStart(in, now)
	setSince := in.Profile.VerificationDeadlineSeconds > 0 && !began
	asked := r.Suspicion != nil || in.Node.Labelled && reselected(in) != ""
	closes := in.Config.NodeManagement.Reverify.Taint && CurrentPod(r, in.Pods) == nil && budgetOf(in).first &&
		(!asked || rebooted(in)) && r.Released == nil && !in.Closed() && !protected(in) && in.Node.Leaving == ""
	if !setSince && !closes {
		return p, false
	}
	r.NodeUID = in.Node.UID // a record that could not be read has none
	if setSince {
		r.Since = ptr.To(timestamp(now))
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	if closes {
		closeGate(&p.Change, in)
	}
	return p, true
}

// dropAction drops the guard and the intended deletion of a node once deleteFailedNodes was switched off. The result of
// an attempt under way comes first.
func dropAction(in Input, _ Evidence, _ time.Time) (p Plan, done bool) {
	r := in.Node.Record
	if r.Held == "" && r.Deletion == nil || in.Config.NodeManagement.DeleteFailedNodes || underWay(in) {
		return p, false
	}
	r.Held, r.HeldMessage, r.Deletion = "", "", nil
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	return p, true
}
