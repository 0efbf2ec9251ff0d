package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Fault says in one line why the last attempt did not pass.
func Fault(r node.Record) string {
	switch {
	case r.LastCheck != "":
		return fmt.Sprintf("check %s: %s: %s", r.LastCheck, r.LastReason, r.LastMessage)
	case r.LastMessage != "":
		return fmt.Sprintf("%s: %s", r.LastReason, r.LastMessage)
	}
	return r.LastReason
}

// settled is the condition of a node that needs no verification; nil where we never had a say.
func settled(in Input) *node.Condition {
	r := in.Node.Record
	if r.LastOutcome != node.OutcomePassed || in.Node.Gated {
		return nil
	}
	return passed(r)
}

func passed(r node.Record) *node.Condition {
	return &node.Condition{Status: corev1.ConditionTrue, Reason: node.ReasonChecksPassed, Since: since(r),
		Message: fmt.Sprintf("All required checks passed in %s, attempt %d", time.Duration(r.DurationMs)*time.Millisecond, r.Sequence)}
}

func since(r node.Record) time.Time {
	if r.LastTime == nil {
		return time.Time{}
	}
	return r.LastTime.Time
}

func verifying(in Input, s spent, pod *workerpod.Observation) *node.Condition {
	message := fmt.Sprintf("Worker %s is %s, attempt %d", pod.Name, pod.State, pod.Attempt)
	if !pod.UnschedulableSince.IsZero() {
		message += "; kube-scheduler: " + node.Truncate(pod.UnschedulableMessage)
	}
	if !s.first {
		message += "; before: " + Fault(in.Node.Record)
	}
	return &node.Condition{Status: corev1.ConditionUnknown, Reason: node.ReasonVerifying, Since: pod.Created, Message: message}
}

func waiting(in Input, now time.Time) *node.Condition {
	return &node.Condition{Status: corev1.ConditionUnknown, Reason: node.ReasonWaitingForPrerequisites, Since: now,
		Message: node.Truncate("Waiting for " + strings.Join(in.Waiting, "; "))}
}

// between is the condition of a node between attempts, or after its last one: what failed, how often, and what
// happens next and when.
func between(in Input, s spent) *node.Condition {
	if s.first {
		return nil
	}
	r, rc := in.Node.Record, in.Config.Reconciliation
	then := ""
	if r.NextAttemptTime != nil {
		then = fmt.Sprintf("; next attempt at %s", r.Next().UTC().Format(time.RFC3339))
	}
	switch {
	case r.Held != "":
		return &node.Condition{Status: corev1.ConditionUnknown, Reason: node.ReasonRemediationHeld, Since: since(r),
			Message: fmt.Sprintf("%s; deletion is held by %s: %s%s", Fault(r), r.Held, r.HeldMessage, then)}
	case s.exhausted(in):
		if r.Deleting != "" {
			then = "; NodeClaim " + r.Deleting + " is being deleted"
		}
		if then == "" {
			then = "; no further attempt: kubectl node-ready reverify " + in.Node.Name + " starts afresh"
		}
		return &node.Condition{Status: corev1.ConditionFalse, Reason: node.ReasonRetriesExhausted, Since: since(r),
			Message: fmt.Sprintf("%d of %d attempts failed, last: %s%s", s.attempts, rc.MaxRetries, Fault(r), then)}
	case r.LastOutcome == node.OutcomeInconclusive:
		return &node.Condition{Status: corev1.ConditionUnknown, Reason: node.ReasonWorkerInconclusive, Since: since(r),
			Message: fmt.Sprintf("%s; %d inconclusive, %d of %d retries spent%s", Fault(r), s.inconclusive, s.attempts, rc.MaxRetries, then)}
	}
	return &node.Condition{Status: corev1.ConditionFalse, Reason: node.ReasonChecksFailed, Since: since(r),
		Message: fmt.Sprintf("%s; failure %d of %d%s", Fault(r), s.attempts, rc.MaxRetries, then)}
}
