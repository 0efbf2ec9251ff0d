package decide

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// lookAtExhausted remediates the node, or starts the attempt that confirms its failure. Until then it waits.
func lookAtExhausted(in Input, ev Evidence, now time.Time) Plan {
	p, due := between(in, now)
	if remediationDue(in) {
		confirmed := failureConfirmed(in, now)
		if confirmed && !due {
			return remedied(in, ev, p, confirmed, now)
		}
		due = due || !confirmed
	}
	if due {
		return start(in, ev, p, now)
	}
	return p
}

// remediationDue reports whether an action on a failed node may be next. A node that is already leaving is removed by
// others.
func remediationDue(in Input) bool {
	r := in.Node.Record
	return in.Node.Leaving == "" && in.Config.NodeManagement.DeleteFailedNodes &&
		(r.Deletion != nil || !budgetOf(in).first && spentAll(in) && r.LastOutcome == attempt.Failed)
}

// failureConfirmed reports whether the last failure may lead to an action: it exhausted the retries, it is recent, and
// a control probe passed beside it. Otherwise another attempt comes first.
func failureConfirmed(in Input, now time.Time) bool {
	r := in.Node.Record
	return !in.Profile.Unchecked() && !stuckResolved(in, now) && !budgetOf(in).first && spentAll(in) &&
		r.LastOutcome == attempt.Failed && recent(r.LastTime, now) && (!needsControlProbe(in) || r.Probed)
}

// recent reports whether a finding from the given time may lead to an action without another attempt.
func recent(at *time.Time, now time.Time) bool {
	return at != nil && !at.After(now.Add(clockTolerance)) && now.Sub(*at) < maxFailureAge
}
