package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// conditionDelay is how long an Unknown reason must last before it is written, and an attempt before it is an event. A worker
// that is done by then costs the API server one status write and not two.
const conditionDelay = 5 * time.Second

// maxConditionDelay is how long a node may say something else than what is wanted, whatever that is by then: reasons that take
// turns would never be written.
const maxConditionDelay = 10 * time.Second

// PendingCondition is an account of what a node should say and does not.
type PendingCondition struct {
	Reason string
	// Since is when the reason was first wanted, Unsettled when the node first said anything else than what was wanted.
	Since, Unsettled time.Time
}

// ConditionDue reports whether a condition is to be written now, and if not, when to look again. w is what it returned before.
func ConditionDue(want marks.Condition, have *corev1.NodeCondition, w PendingCondition, now time.Time) (write bool, next PendingCondition, wait time.Duration) {
	switch {
	case want.Same(have):
		return false, PendingCondition{}, 0
	case want.Status != corev1.ConditionUnknown, have != nil && have.Reason == want.Reason:
		return true, PendingCondition{}, 0
	}
	if w.Unsettled.IsZero() {
		w.Unsettled = now
	}
	if w.Reason != want.Reason {
		w.Reason, w.Since = want.Reason, now
	}
	left := min(w.Since.Add(conditionDelay).Sub(now), w.Unsettled.Add(maxConditionDelay).Sub(now))
	if left <= 0 {
		return true, PendingCondition{}, 0
	}
	return false, w, left
}

// verifiedCondition is the condition of a node that needs no verification; nil where there is nothing to say.
func verifiedCondition(in Input) *marks.Condition {
	r := in.Node.Record
	if r.LastOutcome != attempt.Passed || in.Node.Gated || in.Node.Skip {
		return nil
	}
	return &marks.Condition{Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed, Since: lastTime(r), Message: passedMessage(r)}
}

// reportUnsupportedOS has a node that is not Linux say that its gating taint stays, and where to leave such nodes out.
func (p *Plan) reportUnsupportedOS(in Input, now time.Time) {
	var ids []string
	remove := ""
	for _, t := range in.Node.GatedBy {
		ids = append(ids, t.ID().String())
		remove += " " + t.ID().String() + "-"
	}
	message := fmt.Sprintf("Label %s is %q and only Linux nodes are verified: %s stays",
		corev1.LabelOSStable, in.Node.OtherOS, strings.Join(ids, ", "))
	p.Condition = unknownCondition(marks.ReasonUnsupportedOS, message, now)
	if c := in.Node.Condition; c == nil || c.Reason != marks.ReasonUnsupportedOS {
		const fix = "Do not put it on such nodes (kubelet --register-with-taints, a NodePool's startupTaints, a node group's " +
			"taints), and remove it from this one"
		p.Events = []Event{{Reason: EventUnsupportedOS, Key: EventUnsupportedOS.Name + "/" + in.Node.OtherOS,
			Message: fmt.Sprintf("%s. %s: kubectl taint nodes %s%s", message, fix, in.Node.Name, remove)}}
	}
}

func lastTime(r marks.Record) time.Time {
	if r.LastTime == nil {
		return time.Time{}
	}
	return *r.LastTime
}

// inProgressCondition is the condition of a node while an attempt is; one that is held goes on saying so.
func inProgressCondition(in Input, s budget, message string, since, now time.Time) *marks.Condition {
	if in.Node.Record.Held != "" && !s.first {
		return betweenAttempts(in, s, now)
	}
	return unknownCondition(marks.ReasonVerifying, message, since)
}

func workerCondition(in Input, s budget, pod *workerpod.Observation, now time.Time) *marks.Condition {
	message := fmt.Sprintf("Worker %s is %s, attempt %d", pod.Name, pod.State, pod.Attempt.Number)
	if pod.Unschedulable != "" {
		message += "; " + pod.Unschedulable
	}
	if !s.first {
		message += "; before: " + LastFailure(in.Node.Record)
	}
	return inProgressCondition(in, s, message, pod.Seen.First, now)
}

func unknownCondition(reason, message string, since time.Time) *marks.Condition {
	return &marks.Condition{Status: corev1.ConditionUnknown, Reason: reason, Since: since, Message: attempt.Text(message)}
}

// unmetMessage has what does not come by itself first, since a long message is cut.
func unmetMessage(waits []Unmet) string {
	var first, rest []string
	for _, w := range waits {
		if w.Remedy != "" {
			first = append(first, w.String())
		} else {
			rest = append(rest, w.String())
		}
	}
	return "Waiting for " + strings.Join(append(first, rest...), "; ")
}

// betweenAttempts is the condition of a node between attempts, or after its last one: what failed, how often, and what happens
// next and when.
func betweenAttempts(in Input, s budget, now time.Time) *marks.Condition {
	if s.first {
		return nil // past its deadline it has something to say; see expire
	}
	r, most := in.Node.Record, in.Config.Reconciliation.MaxRetries
	then := ""
	if at, ok := nextAttemptTime(in.Config, r, in.Node.UID, now); ok && r.Deletion == nil && !lastTime(r).IsZero() {
		then = "; next attempt at " + at.UTC().Format(time.RFC3339)
	}
	switch {
	case r.Held != "":
		return heldCondition(r, LastFailure(r), then)
	case s.exhausted(in):
		if r.Deletion != nil {
			then = beingDeleted(*r.Deletion)
		}
		if then == "" {
			then = "; no further attempt: kubectl node-ready reverify " + in.Node.Name + " starts afresh"
		}
		return &marks.Condition{Status: corev1.ConditionFalse, Reason: marks.ReasonRetriesExhausted, Since: lastTime(r),
			Message: fmt.Sprintf("%d of %d attempts failed, last: %s%s", min(s.attempts, most), most, LastFailure(r), then)}
	case r.LastOutcome == attempt.Inconclusive:
		return &marks.Condition{Status: corev1.ConditionUnknown, Reason: marks.ReasonWorkerInconclusive, Since: lastTime(r),
			Message: fmt.Sprintf("%s; %d inconclusive, %d of %d retries spent%s", LastFailure(r), s.inconclusive, s.attempts, most, then)}
	}
	return &marks.Condition{Status: corev1.ConditionFalse, Reason: marks.ReasonChecksFailed, Since: lastTime(r),
		Message: fmt.Sprintf("%s; failure %d of %d%s", LastFailure(r), s.attempts, most, then)}
}

func heldCondition(r marks.Record, fault, then string) *marks.Condition {
	return &marks.Condition{Status: corev1.ConditionUnknown, Reason: marks.ReasonRemediationHeld, Since: lastTime(r),
		Message: fmt.Sprintf("%s; deletion is held by %s: %s%s", fault, attempt.Text(r.Held), attempt.Text(r.HeldMessage), then)}
}

func beingDeleted(d marks.Deletion) string {
	return fmt.Sprintf("; %s %s is being deleted", attempt.Text(d.Kind), attempt.Text(d.Name))
}

// RulesUnavailable is what is next for a node that rules concern and that cannot be served: why says the reason. Nothing is
// done on it, for a release could skip the gate of a rule. A node that must be verified says so, and so does one that
// carries a rule's taint (ruled), which nobody takes off meanwhile. Any other node keeps the condition that it has.
func RulesUnavailable(in Input, ruled bool, why string, now time.Time) (p Plan) {
	verify := Eligible(in) && NeedsVerification(in, now)
	if in.Node.Deleting || !in.Selected || !verify && !ruled {
		return Plan{}
	}
	p.Condition = unknownCondition(marks.ReasonRulesUnavailable, "Waiting for NodeReadinessRules to be served: "+why, now)
	p.Events = []Event{{Reason: EventRulesUnavailable, Key: why, Message: attempt.Text(p.Condition.Message)}}
	if verify {
		p.reportDeadline(in, budgetOf(in), Evidence{}, now)
	}
	return p
}

// RequestRefused is the plan for a node that cannot be verified because the API server refuses a request of the controller;
// why is its message. The node says so; the request is tried again.
func RequestRefused(in Input, why string, now time.Time) (p Plan) {
	if in.Node.Deleting || !Eligible(in) || !NeedsVerification(in, now) {
		return Plan{}
	}
	p.Condition = unknownCondition(marks.ReasonVerifying, "The API server refuses a request of the controller: "+why, now)
	p.reportDeadline(in, budgetOf(in), Evidence{}, now)
	return p
}
