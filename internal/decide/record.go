package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// Verdict is the node's first verdict, if this attempt led to it; otherwise empty.
	Verdict Verdict
	// Suspicion is the type of the condition that made the node suspect, and Suspect the result of this attempt for it.
	// Both are empty if there is none.
	Suspicion corev1.NodeConditionType
	Suspect   SuspicionResult
	// Answer is the answer to a request; empty if the attempt answers none.
	Answer attempt.Outcome
}

// Verdict is the first verdict on a new node: it passed, or exhausted its retries.
type Verdict string

// The verdicts. VerdictShared is that of a node with as many failures that verified nodes share, or that could not be
// compared; those spend no retry.
const (
	VerdictVerified  Verdict = "verified"
	VerdictExhausted Verdict = "exhausted"
	VerdictShared    Verdict = "shared"
)

// Verdicts lists them.
func Verdicts() []Verdict { return []Verdict{VerdictVerified, VerdictExhausted, VerdictShared} }

// firstVerdict is the verdict that the attempt of r led to: it passed, or was the one too many. It is empty if the node
// passed before or had a verdict in this run, or has none yet. So a reboot or other checks may lead to another one.
func firstVerdict(in Input, before, r marks.Record) Verdict {
	most, spent := in.Config.Reconciliation.MaxRetries, budgetOf(in)
	switch {
	case before.MayHaveVerified() || spent.attempts >= most || spent.shared >= most:
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

// recordResult is the plan that writes an attempt's result into the record and onto the node. spent is what the run had
// spent before the attempt.
func recordResult(in Input, spent budget, a attempt.Attempt, result attempt.Result, now time.Time) Plan {
	if ran := a.Basis.Checks; ran != "" && ran != in.Checks {
		spent = budget{first: true} // the present checks begin a run of their own
	}
	before, r := in.Node.Record, withResult(in, spent, a, result, now)
	p := Plan{Step: StepRecord, Recorded: &Recorded{Number: a.Number, Result: result, First: !before.MayHaveVerified()},
		Change: marks.Change{GateTaints: in.Profile.Taints}}
	exhausted := false
	switch result.Outcome {
	case attempt.Passed:
		if p.Change.Label = ptr.To(true); in.Node.Gated {
			p.Change.Gate = marks.GateOpen
		}
	case attempt.Failed:
		closes := closesGate(in, spent, r.Attempts)
		if closes {
			closeGate(&p.Change, in) // a failed re-verification closes the gate even without reverify.taint
		}
		exhausted = r.Attempts >= in.Config.Reconciliation.MaxRetries && (closes || !inService(in))
	}
	r, p.Change.Answer = settleSuspicion(in, r, a.Basis.Request, result.Outcome, now)
	p.Recorded.Answer = p.Change.Answer
	p.Recorded.Suspicion, p.Recorded.Suspect = suspicionResult(spent, before, result.Outcome)
	p.Recorded.Verdict = firstVerdict(in, before, r)
	p.Events = append(outcomeEvents(in, spent, before, r, result, exhausted), bornVerifiedEvents(in, r)...)
	if result.Outcome == attempt.Passed {
		p.Events = append(p.Events, suspicionClearedEvents(in, r)...)
	}
	if at, ok := nextAttemptTime(in, r, exhausted, now); ok {
		r.NextAttemptTime = ptr.To(at)
	}
	p.Change.Record = r
	return p
}

// withResult is the node's record with an attempt's result, without what follows from it.
func withResult(in Input, spent budget, a attempt.Attempt, result attempt.Result, now time.Time) marks.Record {
	r, most := in.Node.Record, in.Config.Reconciliation.MaxRetries
	r.NodeUID, r.BootID, r.Checks = in.Node.UID, in.Node.BootID, in.Checks
	r.Profile = in.Config.Choice(in.Profile.Profile)
	if otherBoot(a.Basis.BootID, in.Node.BootID) {
		r.BootID = a.Basis.BootID // so that the present boot begins a run of its own, with prerequisites and all retries
	}
	if ran := a.Basis.Checks; ran != "" {
		r.Checks = ran
	}
	r.Sequence, r.Attempts, r.Inconclusive = a.Number, spent.attempts, spent.inconclusive
	r.LastOutcome, r.LastCheck, r.LastReason, r.LastMessage = result.Outcome, result.Check, result.Reason, result.Message
	// The node's clock, which may be set while a worker runs, measures the duration.
	r.LastTime, r.DurationMs = ptr.To(timestamp(now)), min(max(result.Duration, 0), marks.MaxDuration).Milliseconds()
	r.NextAttemptTime, r.Probed, r.Deletion, r.Shared = nil, false, nil, 0
	if result.Outcome != attempt.Failed || !exhausts(in, spent.attempts) {
		r.Held, r.HeldMessage = "", "" // else the guard is evaluated again, and only a change emits an event
	}
	switch result.Outcome {
	case attempt.Passed:
		r.LastMessage, r.VerifiedTime, r.Since, r.Released, r.Label = "", r.LastTime, nil, nil, LabelOf(in.Config)
	case attempt.Failed:
		r.Attempts = min(r.Attempts+1, most)
		if recordsStuck(r) || recordsDeadline(r) {
			r.Attempts = most // no further attempt can start
		}
	default:
		r.Inconclusive++
		r.Shared = spent.shared
	}
	return r
}

// closeGate removes the label and puts the gating taints back, unless the node must never be tainted.
func closeGate(c *marks.Change, in Input) {
	c.Label, c.GateTaints = ptr.To(false), in.Profile.Taints
	if !protected(in) {
		c.Gate = marks.GateClose
	}
}

// recording is the plan q, which records a result, of a node of which p said before what it waits for.
func (p Plan) recording(q Plan) Plan {
	q.Unmet, q.Probe = p.Unmet, p.Probe
	q.requeueAfter(p.RequeueAfter)
	return q
}

// PodRefused records as inconclusive an attempt whose pod the API server refused.
func PodRefused(in Input, number int32, reason, message string, now time.Time) Plan {
	return recordResult(in, budgetOf(in), attempt.Attempt{Number: number}, *attempt.NewInconclusive(reason, message), now)
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
