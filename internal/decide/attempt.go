package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// awaitResult looks after an attempt that has no result yet.
func (p *Plan) awaitResult(in Input, s budget, pod *workerpod.Observation, ev Evidence, now time.Time) {
	if lost := gateRemoved(in, *pod); lost != nil {
		p.record(in, s, pod.Attempt, lost, now)
		return
	}
	end := podDeadline(in, *pod)
	past := !now.Before(end)
	switch {
	case pod.Attempt.Basis.Checks != in.Checks:
		// Its result would not count, so the node need not wait for it.
		p.record(in, s, pod.Attempt, checksChanged(), now)
	case past && !ev.Fresh:
		p.need(NeedFresh) // a cache that lags would take a worker that has ended for one that hangs
	case past && in.Node.Lost:
		p.record(in, s, pod.Attempt, attempt.NewInconclusive(attempt.ReasonNodeLost, "the kubelet stopped reporting while the worker was under way"), now)
	case past && pod.Terminating:
		p.record(in, s, pod.Attempt, attempt.NewInconclusive(attempt.ReasonPodDeleted, "the pod was deleted before it had a result"), now)
	case past && pod.State == workerpod.Running:
		p.evaluate(in, s, *pod, end, attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonTimeout, Duration: now.Sub(pod.Seen.Running),
			Message: fmt.Sprintf("the worker started and ran past worker.timeoutSeconds (%s)", end.Sub(pod.Seen.Running)-deadlineGrace)}, ev, now)
	case past:
		p.evaluate(in, s, *pod, end, *attempt.NewInconclusive(attempt.ReasonStartTimeout, fmt.Sprintf("the worker did not start within worker.startTimeoutSeconds (%s)", end.Sub(pod.Seen.First))), ev, now)
	case pod.Unschedulable != "" && !now.Before(pod.Seen.Unschedulable.Add(unschedulableFor)):
		p.record(in, s, pod.Attempt, attempt.NewInconclusive(attempt.ReasonUnschedulable, pod.Unschedulable), now)
	default:
		p.requeueAfter(end.Sub(now))
		if pod.Unschedulable != "" {
			p.requeueAfter(pod.Seen.Unschedulable.Add(unschedulableFor).Sub(now))
		}
		p.Condition = workerCondition(in, s, pod, now)
		if loud := pod.Seen.First.Add(conditionDelay); now.Before(loud) {
			p.requeueAfter(loud.Sub(now))
		} else {
			p.Events = []Event{started(pod)}
		}
	}
}

func checksChanged() *attempt.Result {
	return attempt.NewInconclusive(attempt.ReasonChecksChanged, "the worker ran other checks than the node's present ones: its labels or the configuration changed meanwhile")
}

// superseded replaces a result that was made under what no longer holds; nil where it counts.
func superseded(in Input, b attempt.Basis, r attempt.Result) *attempt.Result {
	switch {
	case r.Outcome == attempt.Inconclusive:
	case otherBoot(b.BootID, in.Node.BootID):
		return attempt.NewInconclusive(attempt.ReasonNodeRebooted, "the node rebooted after the worker began")
	case b.Checks != in.Checks:
		return checksChanged()
	case r.Outcome == attempt.Passed && in.Node.Gated && !b.Gated:
		return attempt.NewInconclusive(attempt.ReasonGateReturned, "the worker passed before the gating taint came back")
	}
	return nil
}

// isSuperseded reports whether the reason is one of superseded's or of gateLost's.
func isSuperseded(reason string) bool {
	return slices.Contains([]string{attempt.ReasonNodeRebooted, attempt.ReasonChecksChanged,
		attempt.ReasonGateReturned, attempt.ReasonGateRemoved}, reason)
}

// evaluate decides what a result, which came at the given time, means for the node.
func (p *Plan) evaluate(in Input, s budget, pod workerpod.Observation, at time.Time, result attempt.Result, ev Evidence, now time.Time) {
	gate := gateRemoved(in, pod)
	switch {
	case result.Outcome == attempt.Passed && gate != nil:
		p.record(in, s, pod.Attempt, gate, now)
	case p.recordPassOrSuperseded(in, s, pod.Attempt, result, now):
	case result.Outcome == attempt.Failed && needsControlProbe(in.Config):
		unseen := pod.Attempt.Result != nil && !pod.Seen.UnderWay
		f := failure{subject: attemptSubject(in, pod), at: at, unobserved: unseen, attempt: pod.Attempt, result: &result}
		p.attribute(in, s, f, ev, now)
	case in.Config.NodeManagement.DeleteFailedNodes && deadlinePassed(in, now) && mayBeNodeFault(in, pod, result):
		p.evaluatePastDeadline(in, s, pod, at, result, ev, now)
	default:
		p.record(in, s, pod.Attempt, &result, now)
	}
}

// recordPassOrSuperseded handles a result that no other node need be asked about: one that does not count, and a pass. It reports whether it did.
func (p *Plan) recordPassOrSuperseded(in Input, s budget, a attempt.Attempt, result attempt.Result, now time.Time) bool {
	if other := superseded(in, a.Basis, result); other != nil {
		p.record(in, s, a, other, now)
		return true
	}
	if result.Outcome == attempt.Passed {
		p.pass(in, s, a, result, now)
		return true
	}
	return false
}

// pass records a pass, once its node may be released.
func (p *Plan) pass(in Input, s budget, a attempt.Attempt, result attempt.Result, now time.Time) {
	if in.Node.Gated && in.Node.Owner.Managed && !in.Node.Owner.Registered {
		// Karpenter merges startup taints back until it has registered the node
		// (sigs.k8s.io/karpenter pkg/controllers/nodeclaim/lifecycle/registration.go).
		p.Unmet, p.Condition = []Unmet{{Kind: UnmetRegistration}}, unknownCondition(marks.ReasonWaitingForRegistration, passMessage(result.Reason)+"; the taint stays until Karpenter sets "+owner.LabelRegistered, now)
		return
	}
	p.record(in, s, a, &result, now)
}

// passMessage says what a pass of the reason came of.
func passMessage(reason string) string {
	if reason == attempt.ReasonNoChecks {
		return "No checks are configured; all prerequisites hold"
	}
	return "All required checks passed"
}

// passedMessage says what the pass that r records came of, and how it came.
func passedMessage(r marks.Record) string {
	text := passMessage(r.LastReason)
	if r.LastReason != attempt.ReasonNoChecks {
		text += " in " + (time.Duration(r.DurationMs) * time.Millisecond).String()
	}
	return fmt.Sprintf("%s, attempt %d", text, r.Sequence)
}

// needsControlProbe reports whether a failure is held against a node only after a probe passed elsewhere.
func needsControlProbe(c *config.Config) bool {
	return c.NodeManagement.DeleteFailedNodes && *c.NodeManagement.Remediation.ControlProbe
}

// gateRemoved is the result of an attempt that began under a gate which was opened since; nil where it was not. Its pass
// must not open a gate that is closed later. That is recorded while the attempt is still under way, since the successor
// of a controller that saw the gate open cannot know it. A pass while the gate is open counts, as there is no gate that
// it could open.
func gateRemoved(in Input, pod workerpod.Observation) *attempt.Result {
	switch {
	case !pod.Attempt.Basis.Gated || !in.Node.Gated && pod.Attempt.Result != nil:
		return nil
	case !in.Node.Gated, in.GateOpenSeen.After(pod.Seen.First):
		return attempt.NewInconclusive(attempt.ReasonGateRemoved, "the gating taint was taken off after the worker began")
	case pod.Terminating && pod.Passed():
		// Where a node without a record loses its gate, nothing is recorded, and the worker is deleted. That is all
		// that shows it.
		return attempt.NewInconclusive(attempt.ReasonGateRemoved,
			"the worker was deleted before its pass was recorded, maybe because the gating taint was taken off")
	}
	return nil
}

// awaitLocalResult looks after the attempt of a process that verifies its own node: what pods and probes have to do with it is the controller's.
func (p *Plan) awaitLocalResult(in Input, s budget, now time.Time) {
	a := in.LocalWorker.Attempt
	if a.Result != nil {
		if !p.recordPassOrSuperseded(in, s, a, *a.Result, now) {
			p.record(in, s, a, a.Result, now)
		}
		return
	}
	message := fmt.Sprintf("The node's own pod runs the checks, attempt %d", a.Number)
	if !s.first {
		message += "; before: " + LastFailure(in.Node.Record)
	}
	p.Condition = inProgressCondition(in, s, message, in.LocalWorker.Began, now)
}

// labelledByHand reports whether somebody gave a gated node the verified label by hand. Its DaemonSet takes the process off the node for
// that, so nobody would come to remove the taints. That a controller sees the same is another thing: there the taint came back.
func labelledByHand(in Input) bool {
	return in.LocalWorker != nil && !in.LocalWorker.Released && in.Node.Gated && in.Node.Labelled
}

// releaseLabelled removes the taints and nothing else: record and condition go on saying what the checks found.
func (p *Plan) releaseLabelled() {
	p.Step, p.Change = StepRecord, marks.Change{KeepRecord: true, Gate: marks.GateOpen}
}

// NextCondition is the condition of the node once the plan's change is written; nil where the change is no pass.
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
