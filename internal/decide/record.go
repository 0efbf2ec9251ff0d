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

// record plans to write an attempt's result into the record and onto the node.
func (d *decision) record(a attempt.Attempt, result *attempt.Result) {
	before := d.in.Node.Record
	r := before
	r.NodeUID, r.BootID, r.Checks = d.in.Node.UID, d.in.Node.BootID, d.in.Checks
	r.Profile = d.in.Config.Choice(d.in.Profile.Profile)
	if otherBoot(a.Basis.BootID, d.in.Node.BootID) {
		r.BootID = a.Basis.BootID // so that the present boot begins a run of its own, with prerequisites and all retries
	}
	if ran := a.Basis.Checks; ran != "" && ran != d.in.Checks {
		r.Checks, d.spent = ran, budget{first: true} // so that the present checks begin a run of their own
	}
	r.Sequence, r.Attempts, r.Inconclusive = a.Number, d.spent.attempts, d.spent.inconclusive
	r.LastOutcome, r.LastCheck, r.LastReason, r.LastMessage = result.Outcome, result.Check, result.Reason, result.Message
	// The node's clock, which may be set while a worker runs, measures the duration.
	r.LastTime, r.DurationMs = ptr.To(timestamp(d.now)), min(max(result.Duration, 0), marks.MaxDuration).Milliseconds()
	r.NextAttemptTime, r.Probed, r.Deletion = nil, false, nil
	exhausted := false
	if result.Outcome != attempt.Failed || !exhausts(d.in, d.spent.attempts) {
		r.Held, r.HeldMessage = "", "" // else the guard is evaluated again, and only a change emits an event
	}
	r.Shared = 0
	if result.Outcome == attempt.Inconclusive {
		r.Shared = d.spent.shared
	}
	d.Step = StepRecord
	d.Recorded = &Recorded{Number: a.Number, Result: *result, First: !before.MayHaveVerified()}
	d.Change, d.Events, d.Condition = marks.Change{GateTaints: d.in.Profile.Taints}, nil, nil
	switch result.Outcome {
	case attempt.Passed:
		r.LastMessage, r.VerifiedTime, r.Since, r.Released = "", r.LastTime, nil, nil
		d.Change.Label, r.Label = ptr.To(true), LabelOf(d.in.Config)
		if d.in.Node.Gated {
			d.Change.Gate = marks.GateOpen
		}
	case attempt.Failed:
		r.Attempts = min(r.Attempts+1, d.in.Config.Reconciliation.MaxRetries)
		if recordsStuck(r) || recordsDeadline(r) {
			r.Attempts = d.in.Config.Reconciliation.MaxRetries // no further attempt can start
		}
		closes := closesGate(d.in, d.spent, r.Attempts)
		if closes {
			d.closeGate() // a failed re-verification closes the gate even without reverify.taint
		}
		exhausted = r.Attempts >= d.in.Config.Reconciliation.MaxRetries && (closes || !inService(d.in))
	default:
		r.Inconclusive++
	}
	d.settleSuspicion(&r, a.Basis.Request, result.Outcome)
	d.Recorded.Answer = d.Change.Answer
	d.Recorded.Suspicion, d.Recorded.Suspect = suspicionResult(d.spent, before, result.Outcome)
	d.Recorded.Verdict = firstVerdict(d.in, before, r)
	d.Events = append(outcomeEvents(d.in, d.spent, before, r, *result, exhausted), bornVerifiedEvents(d.in, r)...)
	if result.Outcome == attempt.Passed {
		d.Events = append(d.Events, suspicionClearedEvents(d.in, r)...)
	}
	if at, ok := nextAttemptTime(d.in, r, exhausted, d.now); ok {
		r.NextAttemptTime = ptr.To(at)
	}
	d.Change.Record = r
}

// closeGate removes the label and puts the gating taints back, unless the node must never be tainted.
func (d *decision) closeGate() {
	d.Change.Label, d.Change.GateTaints = ptr.To(false), d.in.Profile.Taints
	if !protected(d.in) {
		d.Change.Gate = marks.GateClose
	}
}

// PodRefused records as inconclusive an attempt whose pod the API server refused.
func PodRefused(in Input, number int32, reason, message string, now time.Time) Plan {
	d := newDecision(in, Evidence{}, now)
	d.record(attempt.Attempt{Number: number}, attempt.NewInconclusive(reason, message))
	return d.Plan
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
