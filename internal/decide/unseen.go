package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// recordUnobserved records as inconclusive a failure that no controller saw come, and reports whether it did. A control probe
// that runs now says nothing of the time at which the worker failed: an outage that ended since explains the failure,
// and would pass the probe. It does so once until the next failure is counted, or a controller that is restarted during
// every attempt would never exhaust a node. A probe that was made for this failure shows that an earlier leader saw it
// come.
func (p *Plan) recordUnobserved(in Input, s budget, f failure, probes []workerpod.Observation, now time.Time) bool {
	before := in.Node.Record
	own := func(o workerpod.Observation) bool { return o.Subject == f.subject }
	if !f.unobserved || before.Unseen && !s.first || slices.ContainsFunc(probes, own) {
		return false
	}
	result := *f.result
	why := LastFailure(marks.Record{LastCheck: result.Check, LastReason: result.Reason, LastMessage: result.Message})
	result.Outcome, result.Check, result.Reason = attempt.Inconclusive, "", attempt.ReasonFailureUnseen
	result.Message = attempt.Text(fmt.Sprintf(
		"the worker failed before this controller first saw it, so no control probe ran at the same time (%s)", why))
	p.record(in, s, f.attempt, &result, now)
	r := &p.Change.Record
	r.Unseen = true
	if before.Held == GuardControlProbe {
		r.Held, r.HeldMessage = before.Held, before.HeldMessage // the shared outage may not have ended
	}
	if before.MayHaveVerified() {
		p.closeGate(in) // a failed re-verification closes the gate
	}
	return true
}
