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

// lookAtVerifying waits for the result of the attempt that is under way, or says what the result means for the node.
func lookAtVerifying(in Input, ev Evidence, now time.Time) Plan {
	current := CurrentPod(in.Node.Record, in.Pods)
	switch {
	case localUnderWay(in):
		return localResult(in, ev, now)
	case current == nil:
		return recordResult(in, budgetOf(in), in.Vanished, *podDeleted(), now)
	case current.Attempt.Result == nil:
		return awaitResult(in, ev, *current, now)
	}
	return evaluate(in, ev, *current, current.Seen.Result, *current.Attempt.Result, now)
}

// awaitResult handles an attempt without a result: it waits, or ends the attempt.
func awaitResult(in Input, ev Evidence, pod workerpod.Observation, now time.Time) Plan {
	removed, end := gateRemoved(in, pod), podDeadline(in, pod)
	past := !now.Before(end)
	ends := func(result *attempt.Result) Plan { return recordResult(in, budgetOf(in), pod.Attempt, *result, now) }
	switch {
	case removed != nil:
		return ends(removed)
	case pod.Attempt.Basis.Checks != in.Checks:
		return ends(checksChanged()) // its result would not count
	case past && !ev.Fresh:
		return Plan{Need: NeedFresh} // a stale cache may show a worker that has ended
	case past && in.Node.Lost:
		return ends(attempt.NewInconclusive(attempt.ReasonNodeLost, "the kubelet stopped reporting before the worker ended"))
	case past && pod.Terminating:
		return ends(podDeleted())
	case slowToStart(pod, past, now) && ev.Warning == nil:
		return Plan{Need: NeedWarning}
	case past:
		return evaluate(in, ev, pod, end, timeUp(in, ev, pod, end, now), now)
	case pod.Unschedulable != "" && !now.Before(pod.Seen.Unschedulable.Add(unschedulableFor)):
		return ends(attempt.NewInconclusive(attempt.ReasonUnschedulable, pod.Unschedulable))
	}
	return inProgress(in, ev, pod, end, now)
}

// timeUp is the result of an attempt that has none at the end of its time.
func timeUp(in Input, ev Evidence, pod workerpod.Observation, end, now time.Time) attempt.Result {
	warning := ptr.Deref(ev.Warning, "")
	switch {
	case pod.State == workerpod.Running:
		message := fmt.Sprintf("the worker started and ran past worker.timeoutSeconds (%s)",
			end.Sub(pod.Seen.Running)-deadlineGrace)
		return attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonTimeout,
			Message: attempt.Text(withDetail(message, pod.Beside)), Duration: now.Sub(pod.Seen.Running)}
	case pod.InitContainer != "":
		message := fmt.Sprintf("init container %s did not end within worker.initTimeoutSeconds (%s)",
			pod.InitContainer, end.Sub(pod.Seen.Init))
		return *attempt.NewInconclusive(attempt.ReasonInitTimeout, withDetail(message, pod.Startup, pod.Beside, warning))
	}
	message := fmt.Sprintf("the worker did not start within worker.startTimeoutSeconds (%s)", startTimeout(in, pod))
	return *attempt.NewInconclusive(attempt.ReasonStartTimeout, withDetail(message, pod.Startup, pod.Beside, warning))
}

// inProgress says how the attempt goes, and looks again when its time is over or its condition changes.
func inProgress(in Input, ev Evidence, pod workerpod.Observation, end, now time.Time) Plan {
	p := Plan{Condition: workerCondition(in, ev, &pod, now)}
	p.requeueAfter(end.Sub(now))
	if pod.Unschedulable != "" {
		p.requeueAfter(pod.Seen.Unschedulable.Add(unschedulableFor).Sub(now))
	}
	switch slow := pod.Seen.First.Add(slowStart); {
	case pod.State != workerpod.Pending:
	case now.Before(slow):
		p.requeueAfter(slow.Sub(now))
	case ev.Warning != nil && *ev.Warning == "":
		p.requeueAfter(warningAgain)
	}
	if due := pod.Seen.First.Add(ConditionDelay); now.Before(due) {
		p.requeueAfter(due.Sub(now))
	} else {
		p.Events = []Event{started(&pod)}
	}
	return p
}

// slowToStart reports whether a pod has not started for slowStart, or within its time (past), so that its message says
// what its kubelet reports. Nobody reports more about a pod that is unschedulable or terminating.
func slowToStart(pod workerpod.Observation, past bool, now time.Time) bool {
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
func evaluate(in Input, ev Evidence, pod workerpod.Observation, at time.Time, result attempt.Result,
	now time.Time) Plan {
	if removed := gateRemoved(in, pod); result.Outcome == attempt.Passed && removed != nil {
		return recordResult(in, budgetOf(in), pod.Attempt, *removed, now)
	}
	f := failure{subject: subjectOf(in, pod.Attempt.Number), at: at, attempt: pod.Attempt, result: result,
		unobserved: pod.Attempt.Result != nil && !pod.Seen.UnderWay}
	switch {
	case result.Outcome != attempt.Failed, superseded(in, pod.Attempt.Basis, result, now) != nil:
	case needsControlProbe(in):
		return settle(in, ev, Plan{}, f, now)
	case f.unobserved:
		return unseenFault(in, f, fmt.Sprintf("the worker failed before this controller observed it (%s)", f.what()), now)
	}
	return uncompared(in, ev, pod.Attempt, result, now)
}

// uncompared records a result that is not compared with that of another node, or one that replaces it because its basis
// no longer holds.
func uncompared(in Input, ev Evidence, a attempt.Attempt, result attempt.Result, now time.Time) Plan {
	if other := superseded(in, a.Basis, result, now); other != nil {
		result = *other
	} else if result.Outcome == attempt.Passed {
		return pass(in, ev, a, result, now)
	}
	return recordResult(in, budgetOf(in), a, result, now)
}

// pass records a pass once the node may be released.
func pass(in Input, ev Evidence, a attempt.Attempt, result attempt.Result, now time.Time) Plan {
	message := passMessage(result.Reason)
	switch n := in.Node; {
	case !n.Gated:
	case n.Owner.Managed && !n.Owner.Registered:
		// Karpenter puts startup taints back until it has registered the node
		// (sigs.k8s.io/karpenter pkg/controllers/nodeclaim/lifecycle/registration.go).
		message += "; the taint stays until Karpenter sets " + owner.LabelRegistered
		return Plan{Unmet: []Unmet{{Kind: UnmetRegistration}},
			Condition: unknownCondition(marks.ReasonWaitingForRegistration, message, now)}
	case n.Uninitialized != "":
		return uninitialized(in, Plan{}, message+"; the taint stays", now)
	case ev.Unmet == nil: // a worker may run for minutes
		return Plan{Need: NeedPrerequisites}
	case len(*ev.Unmet) > 0:
		result = *attempt.NewInconclusive(attempt.ReasonPrerequisitesLost,
			message+", but a prerequisite no longer holds: "+unmetMessage(*ev.Unmet))
	}
	return recordResult(in, budgetOf(in), a, result, now)
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
func needsControlProbe(in Input) bool { return gateAtStake(in) || probesBeforeRemediation(in.Config) }

func probesBeforeRemediation(c *config.Config) bool {
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

// localUnderWay reports whether the process that verifies its own node has begun the next attempt.
func localUnderWay(in Input) bool {
	return in.LocalWorker != nil && in.LocalWorker.Attempt.Number == in.NextAttempt().Number
}

// localResult handles the attempt of a process that verifies its own node.
func localResult(in Input, ev Evidence, now time.Time) Plan {
	a := in.LocalWorker.Attempt
	if a.Result != nil {
		return uncompared(in, ev, a, *a.Result, now)
	}
	message := fmt.Sprintf("The node's own pod runs the checks, attempt %d", a.Number)
	if !budgetOf(in).first {
		message += "; previous result: " + LastFailure(in.Node.Record)
	}
	return Plan{Condition: inProgressCondition(in, message, in.LocalWorker.Began, now)}
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
