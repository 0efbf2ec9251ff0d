package decide

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

const (
	// slowStart is how long a worker may be pending before its condition says what keeps it from starting.
	slowStart = 30 * time.Second
	// warningAgain is when the events of a pending pod are read again if they had no warning.
	warningAgain = time.Minute
)

// awaitResult handles an attempt without a result: it waits, or ends the attempt.
func (d *decision) awaitResult(pod *workerpod.Observation) {
	if removed := gateRemoved(d.in, *pod); removed != nil {
		d.record(pod.Attempt, removed)
		return
	}
	end := podDeadline(d.in, *pod)
	past := !d.now.Before(end)
	switch {
	case pod.Attempt.Basis.Checks != d.in.Checks:
		// Its result would not count.
		d.record(pod.Attempt, checksChanged())
	case past && !d.ev.Fresh:
		d.Need = NeedFresh // a stale cache may show a worker that has ended
	case past && d.in.Node.Lost:
		const message = "the kubelet stopped reporting before the worker ended"
		d.record(pod.Attempt, attempt.NewInconclusive(attempt.ReasonNodeLost, message))
	case past && pod.Terminating:
		d.record(pod.Attempt, podDeleted())
	case slowToStart(d.in, *pod, past, d.now) && d.ev.Warning == nil:
		d.Need = NeedWarning
	case past && pod.State == workerpod.Running:
		message := fmt.Sprintf("the worker started and ran past worker.timeoutSeconds (%s)",
			end.Sub(pod.Seen.Running)-deadlineGrace)
		d.evaluate(*pod, end, attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonTimeout,
			Message: attempt.Text(withDetail(message, pod.Beside)), Duration: d.now.Sub(pod.Seen.Running)})
	case past && pod.InitContainer != "":
		message := fmt.Sprintf("init container %s did not end within worker.initTimeoutSeconds (%s)",
			pod.InitContainer, end.Sub(pod.Seen.Init))
		message = withDetail(message, pod.Startup, pod.Beside, ptr.Deref(d.ev.Warning, ""))
		d.evaluate(*pod, end, *attempt.NewInconclusive(attempt.ReasonInitTimeout, message))
	case past:
		message := fmt.Sprintf("the worker did not start within worker.startTimeoutSeconds (%s)", startTimeout(d.in, *pod))
		message = withDetail(message, pod.Startup, pod.Beside, ptr.Deref(d.ev.Warning, ""))
		d.evaluate(*pod, end, *attempt.NewInconclusive(attempt.ReasonStartTimeout, message))
	case pod.Unschedulable != "" && !d.now.Before(pod.Seen.Unschedulable.Add(unschedulableFor)):
		d.record(pod.Attempt, attempt.NewInconclusive(attempt.ReasonUnschedulable, pod.Unschedulable))
	default:
		d.requeueAfter(end.Sub(d.now))
		if pod.Unschedulable != "" {
			d.requeueAfter(pod.Seen.Unschedulable.Add(unschedulableFor).Sub(d.now))
		}
		switch slow := pod.Seen.First.Add(slowStart); {
		case pod.State != workerpod.Pending:
		case d.now.Before(slow):
			d.requeueAfter(slow.Sub(d.now))
		case d.ev.Warning != nil && *d.ev.Warning == "":
			d.requeueAfter(warningAgain)
		}
		d.Condition = workerCondition(d.in, d.ev, pod, d.now)
		if due := pod.Seen.First.Add(ConditionDelay); d.now.Before(due) {
			d.requeueAfter(due.Sub(d.now))
		} else {
			d.Events = []Event{started(pod)}
		}
	}
}

// slowToStart reports whether a pod has not started for slowStart, or within its time (past), so that its message says
// what its kubelet reports. Nobody reports more about a pod that is unschedulable or terminating.
func slowToStart(in Input, pod workerpod.Observation, past bool, now time.Time) bool {
	return pod.State == workerpod.Pending && pod.Unschedulable == "" && !pod.Terminating &&
		(past || !now.Before(pod.Seen.First.Add(slowStart)))
}

func checksChanged() *attempt.Result {
	return attempt.NewInconclusive(attempt.ReasonChecksChanged,
		"the worker ran other checks than the node has now: the node's labels or the configuration changed")
}

func podDeleted() *attempt.Result {
	return attempt.NewInconclusive(attempt.ReasonPodDeleted, "the pod was deleted before it had a result")
}

// superseded returns the result to record instead of one whose basis no longer holds, or nil if the result counts.
func superseded(in Input, b attempt.Basis, r attempt.Result, now time.Time) *attempt.Result {
	switch {
	case r.Outcome == attempt.Inconclusive:
	case otherBoot(b.BootID, in.Node.BootID):
		return attempt.NewInconclusive(attempt.ReasonNodeRebooted, "the node rebooted after the worker started")
	case b.Checks != in.Checks:
		return checksChanged()
	case r.Outcome == attempt.Passed && in.Closed() && flapping(in) != "" &&
		now.Before(returned(in, now).Add(flappingWait)):
		return attempt.NewInconclusive(attempt.ReasonNodeRebooted, flapping(in))
	case r.Outcome == attempt.Passed && in.Closed() && !b.Gated:
		return attempt.NewInconclusive(attempt.ReasonGateReturned, "the worker passed before the gating taint was added "+
			"again")
	}
	return nil
}

// recordsSuperseded reports whether the last recorded attempt had a basis that no longer held at its end. The reason is
// one of superseded's or gateRemoved's, or that of lost prerequisites. Beside a check's name, it may be anything.
func recordsSuperseded(r marks.Record) bool {
	return r.LastCheck == "" && slices.Contains([]string{attempt.ReasonNodeRebooted, attempt.ReasonChecksChanged,
		attempt.ReasonGateReturned, attempt.ReasonGateRemoved, attempt.ReasonPrerequisitesLost}, r.LastReason)
}

// ranOtherChecks reports whether the last recorded attempt ran other checks than the node has now. The next one begins
// a run, and waits for initialBackoffSeconds. Otherwise a label that changes back and forth would start one worker
// after the other.
func ranOtherChecks(r marks.Record, now string) bool { return r.LastOutcome != "" && r.Checks != now }

// evaluate decides what a result, which was observed at the given time, means for the node.
func (d *decision) evaluate(pod workerpod.Observation, at time.Time, result attempt.Result) {
	removed := gateRemoved(d.in, pod)
	switch {
	case result.Outcome == attempt.Passed && removed != nil:
		d.record(pod.Attempt, removed)
	case d.recordPassOrSuperseded(pod.Attempt, result):
	case result.Outcome == attempt.Failed && needsControlProbe(d.in):
		d.settle(failure{subject: subjectOf(d.in, pod.Attempt.Number), at: at, attempt: pod.Attempt, result: result,
			unobserved: pod.Attempt.Result != nil && !pod.Seen.UnderWay})
	default:
		d.record(pod.Attempt, &result)
	}
}

// recordPassOrSuperseded handles a pass, and a result that does not count. Neither needs a comparison with another
// node. It reports whether the result was one of them.
func (d *decision) recordPassOrSuperseded(a attempt.Attempt, result attempt.Result) bool {
	if other := superseded(d.in, a.Basis, result, d.now); other != nil {
		d.record(a, other)
		return true
	}
	if result.Outcome == attempt.Passed {
		d.pass(a, result)
		return true
	}
	return false
}

// pass records a pass once the node may be released.
func (d *decision) pass(a attempt.Attempt, result attempt.Result) {
	if d.in.Node.Gated && d.in.Node.Owner.Managed && !d.in.Node.Owner.Registered {
		// Karpenter puts startup taints back until it has registered the node
		// (sigs.k8s.io/karpenter pkg/controllers/nodeclaim/lifecycle/registration.go).
		message := passMessage(result.Reason) + "; the taint stays until Karpenter sets " + owner.LabelRegistered
		d.Unmet = []Unmet{{Kind: UnmetRegistration}}
		d.Condition = unknownCondition(marks.ReasonWaitingForRegistration, message, d.now)
		return
	}
	if d.in.Node.Gated && !d.initialized(passMessage(result.Reason)+"; the taint stays") {
		return
	}
	if d.in.Node.Gated { // a worker may run for minutes
		switch {
		case d.ev.Unmet == nil:
			d.Need = NeedPrerequisites
			return
		case len(*d.ev.Unmet) > 0:
			result = *attempt.NewInconclusive(attempt.ReasonPrerequisitesLost, passMessage(result.Reason)+
				", but a prerequisite no longer holds: "+unmetMessage(*d.ev.Unmet))
		}
	}
	d.record(a, &result)
}

// passMessage describes a pass of the reason.
func passMessage(reason string) string {
	if reason == attempt.ReasonNoChecks {
		return "No checks are configured; all prerequisites hold"
	}
	return "All required checks passed"
}

// passedMessage describes the pass that r records.
func passedMessage(r marks.Record) string {
	text := passMessage(r.LastReason)
	if r.LastReason != attempt.ReasonNoChecks {
		text += " in " + (time.Duration(r.DurationMs) * time.Millisecond).String()
	}
	return fmt.Sprintf("%s, attempt %d", text, r.Sequence)
}

// needsControlProbe reports whether a failure counts only after a control probe has passed.
func needsControlProbe(in Input) bool { return gateAtStake(in) || probesBeforeDeletion(in.Config) }

func probesBeforeDeletion(c *config.Config) bool {
	return c.NodeManagement.DeleteFailedNodes && *c.NodeManagement.Remediation.ControlProbe
}

// gateRemoved is the result of an attempt whose gate was opened after it began; nil if it was not. Its pass must not
// open a gate that is closed later. It is recorded while the attempt still runs, since a later leader cannot know that
// the gate was open. A pass while the gate is open counts: there is no gate that it could open.
func gateRemoved(in Input, pod workerpod.Observation) *attempt.Result {
	switch {
	case !pod.Attempt.Basis.Gated || !in.Closed() && pod.Attempt.Result != nil:
		return nil
	case !in.Closed(), in.GateOpenSeen.After(pod.Seen.First):
		return attempt.NewInconclusive(attempt.ReasonGateRemoved, "the gating taint was removed after the worker started")
	case pod.Terminating && pod.Passed():
		// A node without a record that loses its gate gets no record, and its worker is deleted. Nothing else shows it.
		return attempt.NewInconclusive(attempt.ReasonGateRemoved,
			"the worker was deleted before its pass was recorded, possibly because the gating taint was removed")
	}
	return nil
}

// awaitLocalResult handles the attempt of a process that verifies its own node.
func (d *decision) awaitLocalResult() {
	a := d.in.LocalWorker.Attempt
	if a.Result != nil {
		if !d.recordPassOrSuperseded(a, *a.Result) {
			d.record(a, a.Result)
		}
		return
	}
	message := fmt.Sprintf("The node's own pod runs the checks, attempt %d", a.Number)
	if !d.spent.first {
		message += "; previous result: " + LastFailure(d.in.Node.Record)
	}
	d.Condition = inProgressCondition(d.in, message, d.in.LocalWorker.Began, d.now)
}

// labelledByHand reports whether somebody added the verified label to a gated node by hand, in DaemonSet mode. The
// label ends the DaemonSet's pod on the node, so the pod removes the taints first. Outside of DaemonSet mode, the same
// state means that a taint came back.
func labelledByHand(in Input) bool {
	return in.LocalWorker != nil && !in.LocalWorker.Released && in.Node.Gated && in.Node.Labelled
}

// NextCondition is the node's condition once the plan's change is written; nil if the change records no pass.
func (p *Plan) NextCondition(in Input) *marks.Condition {
	if p.Recorded == nil || p.Recorded.Result.Outcome != attempt.Passed {
		return nil
	}
	in.Node.Record, in.Node.Gated = p.Change.Record, false
	return verifiedCondition(in)
}

// ReleasesLabelled reports whether the plan releases a node that somebody labelled by hand.
func (p *Plan) ReleasesLabelled() bool {
	return p.Step == StepRecord && p.Recorded == nil && p.Change.KeepRecord && p.Change.Gate == marks.GateOpen
}
