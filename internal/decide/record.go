package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// record writes an attempt's outcome into the record and onto the node.
func (p *Plan) record(in Input, s spent, pod *workerpod.Observation, now time.Time) {
	r := in.Node.Record
	r.NodeUID, r.BootID = in.Node.UID, in.Node.BootID
	r.Sequence, r.Attempts, r.Inconclusive = pod.Attempt, s.attempts, s.inconclusive
	r.LastOutcome, r.LastCheck, r.LastReason, r.LastMessage = pod.Outcome, pod.Check, pod.Reason, pod.Message
	r.LastTime, r.DurationMs = ptr.To(metav1.NewTime(now)), pod.Duration().Milliseconds()
	r.NextAttemptTime, r.Probed, r.Deleting = nil, false, ""
	if pod.Outcome != node.OutcomeFailed || !s.exhausted(in) {
		r.Held, r.HeldMessage = "", "" // else the guard has the word again, and tells only of a change
	}
	p.Step, p.Pod, p.Change = StepRecord, pod, node.Change{}
	event := Event{Type: corev1.EventTypeWarning, Sequence: pod.Attempt}
	switch pod.Outcome {
	case node.OutcomePassed:
		r.LastMessage = ""
		r.VerifiedTime = ptr.To(metav1.NewTime(now))
		p.Change.Label = ptr.To(true)
		if in.Node.Gated {
			p.Change.Gate = node.GateOpen
		}
		event.Type, event.Reason = corev1.EventTypeNormal, EventPassed
		event.Message = fmt.Sprintf("All required checks passed in %s, attempt %d", pod.Duration().Round(time.Millisecond), pod.Attempt)
		p.Events = []Event{event}
	case node.OutcomeFailed:
		r.Attempts = min(r.Attempts+1, in.Config.Reconciliation.MaxRetries)
		// A failed re-verification closes the gate again whatever reverify.taint says.
		p.Change.Gate, p.Change.Label = node.GateClose, ptr.To(false)
		event.Reason = EventFailed
		event.Message = fmt.Sprintf("%s (failure %d of %d, attempt %d)", Fault(r), r.Attempts, in.Config.Reconciliation.MaxRetries, pod.Attempt)
		p.Events = []Event{event}
		if done := (spent{attempts: r.Attempts}); done.exhausted(in) && !s.exhausted(in) {
			p.Events = append(p.Events, Event{Type: corev1.EventTypeWarning, Reason: EventExhausted, Sequence: pod.Attempt,
				Message: fmt.Sprintf("All %d attempts failed, last: %s", r.Attempts, Fault(r))})
		}
	default:
		r.Inconclusive++
		event.Reason = EventInconclusive
		event.Message = fmt.Sprintf("%s; this says nothing about the node and spends no retry (attempt %d)", Fault(r), pod.Attempt)
		p.Events = []Event{event}
	}
	if at, again := nextAttempt(in.Config, r, in.Node.UID, now); again {
		r.NextAttemptTime = ptr.To(metav1.NewMicroTime(at))
	}
	p.Change.Record = r
}

// Skip records an attempt that could not have a pod, as inconclusive.
func Skip(in Input, attempt int32, reason, message string, now time.Time) Plan {
	plan := Plan{}
	plan.record(in, run(in), &workerpod.Observation{Attempt: attempt, State: workerpod.Finished,
		Outcome: node.OutcomeInconclusive, Reason: reason, Message: node.Truncate(message)}, now)
	return plan
}
