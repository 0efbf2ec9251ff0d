package decide

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Recorded is an attempt whose result is being recorded.
type Recorded struct {
	Number int32
	Result attempt.Result
	// First: the node has not passed before.
	First bool
	// Verdict is the node's first one, where this attempt brought it; empty for any other attempt.
	Verdict Verdict
}

// Verdict is what came first of the attempts at a new node: it passed, or failed as often as it may.
type Verdict string

// The verdicts. VerdictShared is that of a node whose failures others shared, or could not be compared with: those spend no retry.
const (
	VerdictVerified  Verdict = "verified"
	VerdictExhausted Verdict = "exhausted"
	VerdictShared    Verdict = "shared"
)

// Verdicts lists them.
func Verdicts() []Verdict { return []Verdict{VerdictVerified, VerdictExhausted, VerdictShared} }

// firstVerdict is what the attempt that r records came to; empty where the node had a verdict before, or has none yet.
func firstVerdict(in Input, s budget, before, r marks.Record) Verdict {
	most := in.Config.Reconciliation.MaxRetries
	switch {
	case before.MayHaveVerified() || before.Concluded || s.exhausted(in):
		return ""
	case r.LastOutcome == attempt.Passed:
		return VerdictVerified
	case r.Attempts >= most:
		return VerdictExhausted
	case r.Shared >= most:
		return VerdictShared
	}
	return ""
}

// record writes an attempt's result into the record and onto the node.
func (p *Plan) record(in Input, s budget, a attempt.Attempt, result *attempt.Result, now time.Time) {
	before := in.Node.Record
	r := before
	r.NodeUID, r.BootID = in.Node.UID, in.Node.BootID
	if otherBoot(a.Basis.BootID, in.Node.BootID) {
		r.BootID = a.Basis.BootID // the boot after it begins a run of its own, with prerequisites and a whole budget
	}
	r.Sequence, r.Attempts, r.Inconclusive = a.Number, s.attempts, s.inconclusive
	r.LastOutcome, r.LastCheck, r.LastReason, r.LastMessage = result.Outcome, result.Check, result.Reason, result.Message
	r.LastTime, r.DurationMs = ptr.To(now.UTC().Truncate(time.Microsecond)), result.Duration.Milliseconds()
	r.NextAttemptTime, r.Probed, r.Deletion, r.DeadlineCause = nil, false, nil, nil
	if result.Outcome != attempt.Failed || !s.exhausted(in) {
		r.Held, r.HeldMessage = "", "" // else the guard decides again, and only a change is an event
	}
	r.Shared = 0
	if result.Outcome == attempt.Inconclusive {
		r.Shared = s.shared
	}
	r.Unseen = before.Unseen && !s.first && result.Outcome == attempt.Inconclusive
	r.Superseded = 0
	if result.Check == "" && isSuperseded(result.Reason) { // a check's reason is the worker's word
		r.Superseded = before.Superseded + 1
	}
	p.Step = StepRecord
	p.Recorded = &Recorded{Number: a.Number, Result: *result, First: !before.MayHaveVerified()}
	p.Change, p.Events, p.Condition = marks.Change{GateTaints: in.Profile.Taints}, nil, nil
	switch result.Outcome {
	case attempt.Passed:
		r.LastMessage, r.VerifiedTime, r.HistoryLost, r.Since = "", r.LastTime, false, nil
		p.Change.Label = ptr.To(true)
		if in.Node.Gated {
			p.Change.Gate = marks.GateOpen
		}
	case attempt.Failed:
		r.Attempts = min(r.Attempts+1, in.Config.Reconciliation.MaxRetries)
		if recordsStuck(r) {
			r.Attempts = in.Config.Reconciliation.MaxRetries // no further attempt can start
		}
		p.closeGate(in) // a failed re-verification closes the gate whatever reverify.taint says
	default:
		r.Inconclusive++
	}
	p.Recorded.Verdict = firstVerdict(in, s, before, r)
	r.Concluded = before.Concluded || p.Recorded.Verdict == VerdictExhausted || p.Recorded.Verdict == VerdictShared
	p.Events = outcomeEvents(in, s, before, r, *result)
	if at, ok := nextAttemptTime(in.Config, r, in.Node.UID, now); ok {
		r.NextAttemptTime = ptr.To(at)
	}
	p.Change.Record = r
}

// closeGate puts the gating taints back and takes the label away, but for a node that is never tainted.
func (p *Plan) closeGate(in Input) {
	p.Change.Label, p.Change.GateTaints = ptr.To(false), in.Profile.Taints
	if !protected(in) {
		p.Change.Gate = marks.GateClose
	}
}

// PodRefused records an attempt whose pod the API server did not take: an operator has to see it, and the node has no part in it.
func PodRefused(in Input, number int32, reason, message string, now time.Time) Plan {
	p := Plan{}
	p.record(in, budgetOf(in), attempt.Attempt{Number: number}, attempt.NewInconclusive(reason, message), now)
	return p
}

// LastFailure says in one line why the last attempt did not pass.
func LastFailure(r marks.Record) string {
	message := attempt.Text(r.LastMessage) // the record may be forged
	switch {
	case r.LastCheck != "":
		return fmt.Sprintf("check %s: %s: %s", attempt.Text(r.LastCheck), attempt.Text(r.LastReason), message)
	case message != "":
		return fmt.Sprintf("%s: %s", attempt.Text(r.LastReason), message)
	}
	return attempt.Text(r.LastReason)
}
