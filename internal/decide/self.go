package decide

import (
	"fmt"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

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
