package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// ConditionDelay is how long an Unknown reason must last before it is written, and how long an attempt must last before
// it is an event. For a worker that ends earlier, the API server gets one status write instead of two.
const ConditionDelay = 5 * time.Second

// maxConditionDelay is how long a node's condition may differ from the decided one. Without this limit, reasons that
// alternate would never be written.
const maxConditionDelay = 10 * time.Second

// PendingCondition is the condition that a node does not have yet because it is not due.
type PendingCondition struct {
	Reason string
	// Since is when this reason was decided first. Unsettled is when the node's condition began to differ from the decided
	// one.
	Since, Unsettled time.Time
}

// ConditionDue reports whether a condition must be written now and, if not, when to check again. pending is what the
// last call returned as next.
func ConditionDue(want marks.Condition, have *corev1.NodeCondition, pending PendingCondition, now time.Time) (
	write bool, next PendingCondition, wait time.Duration,
) {
	switch {
	case want.Same(have):
		return false, PendingCondition{}, 0
	case want.Status != corev1.ConditionUnknown, have != nil && have.Reason == want.Reason:
		return true, PendingCondition{}, 0
	}
	if pending.Unsettled.IsZero() {
		pending.Unsettled = now
	}
	if pending.Reason != want.Reason {
		pending.Reason, pending.Since = want.Reason, now
	}
	wait = min(pending.Since.Add(ConditionDelay).Sub(now), pending.Unsettled.Add(maxConditionDelay).Sub(now))
	if wait <= 0 {
		return true, PendingCondition{}, 0
	}
	return false, pending, wait
}

func lastTime(r marks.Record) time.Time { return ptr.Deref(r.LastTime, time.Time{}) }

// inProgressCondition is the condition of a node while an attempt runs. A held node stays RemediationHeld.
func inProgressCondition(in Input, message string, since, now time.Time) *marks.Condition {
	if in.Node.Record.Held != "" && !budgetOf(in).first {
		return betweenAttempts(in, now)
	}
	return unknownCondition(marks.ReasonVerifying, message, since)
}

func workerCondition(in Input, ev Evidence, pod *workerpod.Observation, now time.Time) *marks.Condition {
	message := fmt.Sprintf("Worker %s is %s, attempt %d", pod.Name, pod.State, pod.Attempt.Number)
	switch {
	case pod.Unschedulable != "":
		message += "; " + pod.Unschedulable
	case pod.InitContainer != "":
		message += ", in init container " + pod.InitContainer
	}
	if ev.Warning != nil {
		message = withDetail(message, pod.Startup)
	}
	message = withDetail(message, pod.Beside, ptr.Deref(ev.Warning, ""))
	if !budgetOf(in).first {
		message += "; previous result: " + LastFailure(in.Node.Record)
	}
	return inProgressCondition(in, message, pod.Seen.First, now)
}

// addToCondition adds what else is known to the condition, if there is one that does not say it.
func (p *Plan) addToCondition(detail string) {
	if p.Condition != nil && !strings.Contains(p.Condition.Message, detail) {
		p.Condition.Message = attempt.Text(withDetail(p.Condition.Message, detail))
	}
}

// withDetail adds what else is known to a message. Each of the details may be empty.
func withDetail(message string, details ...string) string {
	for _, detail := range details {
		if detail != "" {
			message += "; " + detail
		}
	}
	return message
}

func unknownCondition(reason, message string, since time.Time) *marks.Condition {
	return &marks.Condition{Status: corev1.ConditionUnknown, Reason: reason, Since: since, Message: attempt.Text(message)}
}

// unmetMessage starts with what needs a person, because a long message is cut.
func unmetMessage(unmet []Unmet) string {
	var first, rest []string
	for _, u := range unmet {
		if u.Remedy != "" {
			first = append(first, u.String())
		} else {
			rest = append(rest, u.String())
		}
	}
	return "Waiting for " + strings.Join(append(first, rest...), "; ")
}

// betweenAttempts is the condition of a node between attempts, or after its last one. It says what failed, how often,
// and what happens next and when. It is nil for a node without an attempt of this run; withDeadline may set one.
func betweenAttempts(in Input, now time.Time) *marks.Condition {
	r, then := in.Node.Record, ""
	if at, ok := nextAttemptAt(in, now); ok && r.Deletion == nil && r.LastTime != nil {
		then = "; next attempt at " + at.UTC().Format(time.RFC3339)
	}
	return lastAttempt(in, then)
}

// lastAttempt is betweenAttempts of a node of which then says what happens next.
func lastAttempt(in Input, then string) *marks.Condition {
	r, spent, most := in.Node.Record, budgetOf(in), in.Config.Reconciliation.MaxRetries
	switch {
	case spent.first:
		return nil
	case r.Held != "":
		return heldCondition(r, LastFailure(r), then)
	case spentAll(in):
		return exhaustedCondition(in, then)
	case r.LastOutcome == attempt.Inconclusive:
		shared := ""
		if SharesFailure(in) {
			shared = fmt.Sprintf("; %d nodes of its pool and profile share a failure, and their gates stay as they are",
				max(1, in.Sharing))
		}
		return &marks.Condition{Status: corev1.ConditionUnknown, Reason: marks.ReasonWorkerInconclusive, Since: lastTime(r),
			Message: fmt.Sprintf("%s%s; %d inconclusive, %d of %d retries spent%s",
				LastFailure(r), shared, spent.inconclusive, spent.attempts, most, then)}
	}
	if inService(in) {
		then = "; another failure in a row closes its gate" + then
	}
	return &marks.Condition{Status: corev1.ConditionFalse, Reason: marks.ReasonChecksFailed, Since: lastTime(r),
		Message: fmt.Sprintf("%s; failure %d of %d%s", LastFailure(r), spent.attempts, most, then)}
}

// exhaustedCondition is the condition of a node that exhausted its retries, while no guard holds it.
func exhaustedCondition(in Input, then string) *marks.Condition {
	r, most := in.Node.Record, in.Config.Reconciliation.MaxRetries
	switch {
	case r.Deletion != nil:
		then = beingDeleted(*r.Deletion)
	case carriesCondition(in):
		then = fmt.Sprintf("; condition %s asks for remediation%s", in.Config.NodeManagement.Remediation.Condition.Type,
			then)
	case then == "":
		then = "; no further attempt follows; to start again, run kubectl node-ready reverify " + in.Node.Name
	}
	why := fmt.Sprintf("%d of %d attempts failed, last: %s", min(budgetOf(in).attempts, most), most, LastFailure(r))
	if recordsDeadline(r) {
		why = overdue(in, r)
	}
	return &marks.Condition{Status: corev1.ConditionFalse, Reason: marks.ReasonRetriesExhausted, Since: lastTime(r),
		Message: why + then}
}

func beingDeleted(d marks.Deletion) string {
	return fmt.Sprintf("; %s %s is being deleted", attempt.Text(d.Kind), attempt.Text(d.Name))
}

// RulesUnavailable is the plan for a node that a rule selects while rules cannot be served, for the given reason. It
// takes no step, since a release could skip the rule's gate. The condition is set on a node that must be verified, or
// that carries a rule's taint, which nobody removes meanwhile. Any other node keeps its condition.
func RulesUnavailable(in Input, hasRuleTaint bool, reason string, now time.Time) Plan {
	verify := Eligible(in) && NeedsVerification(in, now)
	if in.Node.Deleting || !in.Selected || !verify && !hasRuleTaint {
		return Plan{}
	}
	text := "Waiting for NodeReadinessRules to be served: " + reason
	p := Plan{Condition: unknownCondition(marks.ReasonRulesUnavailable, text, now)}
	p.Events = []Event{{Reason: EventRulesUnavailable, Key: reason, Message: attempt.Text(p.Condition.Message)}}
	if verify {
		return withDeadline(in, Evidence{}, p, now)
	}
	return p
}

const podRejected = "the API server rejects its worker pod, which is sent again: "

// PodDelayed is the plan for a node whose next attempt is due and whose pod the API server rejects with the given
// message. The attempt is not recorded yet, because the pod is created again soon.
func PodDelayed(in Input, message string, now time.Time) Plan {
	c := lastAttempt(in, "; the next attempt is due, and "+podRejected+message)
	if c == nil {
		c = unknownCondition(marks.ReasonVerifying, "An attempt is due, and "+podRejected+message, now)
	}
	c.Message = attempt.Text(c.Message)
	return withDeadline(in, Evidence{}, Plan{Condition: c}, now)
}

// RequestRefused is the plan for a node that cannot be verified because the API server refuses a request of the
// controller with the given message. The request is tried again.
func RequestRefused(in Input, message string, now time.Time) Plan {
	return refused(in, marks.ReasonVerifying, "The API server refuses a request of the controller: "+message, now)
}

// ReleaseRefused is RequestRefused for a patch that removes the gating taint. Its event is one for each verification.
func ReleaseRefused(in Input, message string, now time.Time) Plan {
	text := "The API server refuses the patch that removes the gating taint: " + message
	return refused(in, marks.ReasonReleaseRefused, text, now)
}

func refused(in Input, reason, text string, now time.Time) Plan {
	if in.Node.Deleting || !Eligible(in) || !NeedsVerification(in, now) {
		return Plan{}
	}
	p := Plan{Condition: unknownCondition(reason, text, now)}
	if reason == marks.ReasonReleaseRefused {
		began, _ := RoundStart(in, now)
		p.Events = []Event{{Reason: EventReleaseRefused, Key: fmt.Sprintf("refused@%d", began.UnixMicro()),
			Message: p.Condition.Message}}
	}
	return withDeadline(in, Evidence{}, p, now)
}
