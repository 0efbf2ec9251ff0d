package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// lookAtVerified takes no step. The condition of the node shows what it passed. A node that was adopted passed nothing.
func lookAtVerified(in Input, _ Evidence, now time.Time) Plan {
	p := Plan{Condition: verifiedCondition(in)}
	p.addToCondition(flapping(in))
	p.ClearCondition = p.Condition == nil && in.Node.Condition != nil
	p.requeueAfter(nextReason(in, now))
	return p
}

// showsPass reports whether the condition of a node that needs no verification tells of a pass.
func showsPass(in Input) bool {
	return in.Node.Record.LastOutcome == attempt.Passed && !in.Node.Gated && !in.Node.Skip
}

// verifiedCondition is the condition of a node that needs no verification, or nil if the node never passed.
func verifiedCondition(in Input) *marks.Condition {
	r := in.Node.Record
	if !showsPass(in) {
		return nil
	}
	return &marks.Condition{Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed, Since: lastTime(r),
		Message: passedMessage(r)}
}

// nextReason is how long it takes until a verified node that does not change has a reason to be verified again: its
// age, or a condition that makes it suspect. It is 0 if there is none.
func nextReason(in Input, now time.Time) time.Duration {
	_, _, wait := newSuspicion(in, now)
	if at, ok := reverifyTime(in, now); ok && in.Node.Labelled {
		if left := at.Sub(now); left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}
