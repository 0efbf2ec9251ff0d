package decide

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

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
