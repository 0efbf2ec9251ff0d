package decide

import (
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Next is what is next for one node, given what is known. Where it lacks evidence that costs something it says so in
// Plan.Need; Resolve has just that loaded and asks again.
func Next(in Input, ev Evidence, now time.Time) Plan {
	if in.Node.Deleting {
		return Plan{} // its pods die with it
	}
	current, plan := cleanUpPods(in, now)
	verified := !Eligible(in) || !NeedsVerification(in, now)
	switch {
	case !verified || current == nil:
	case current.Terminating:
		plan.forceDelete(*current, now)
	default:
		plan.Delete = append(plan.Delete, *current)
	}
	if !ev.Fresh && (hasUnrecorded(in.Node.Record, plan.Delete, ev.Current) || len(plan.ForceDelete) > 0) {
		// A cache that missed the last record would end a worker whose result nobody has, and one that missed that the record was
		// removed would take it for a worker of long ago; one that missed a start would take what runs for a pod that never started.
		return Plan{Need: NeedFresh}
	}
	switch {
	case in.DryRunDone:
	case verified:
		plan.idle(in, now)
	default:
		plan.verify(in, current, ev, now)
	}
	return plan.withoutEviction(in, ev)
}

// idle is for a node that needs no verification. One that is not selected may be another installation's, and so are its marks.
func (p *Plan) idle(in Input, now time.Time) {
	if !in.Selected {
		return
	}
	p.Condition = verifiedCondition(in)
	if hasUnsupportedOS(in) {
		p.reportUnsupportedOS(in, now)
	}
	p.ClearCondition = p.Condition == nil && in.Node.Condition != nil
	if at, ok := reverifyTime(in, now); ok && in.Node.Labelled {
		p.requeueAfter(at.Sub(now))
	}
}

func (p *Plan) verify(in Input, current *workerpod.Observation, ev Evidence, now time.Time) {
	s := budgetOf(in)
	switch {
	case labelledByHand(in):
		p.releaseLabelled()
	case p.beginRound(in, s, current, now):
	case p.resolveIntent(in, s, current, ev, now):
	case in.LocalWorker != nil && in.LocalWorker.Attempt.Number == in.Node.Record.Sequence+1:
		p.awaitLocalResult(in, s, now)
	case current == nil && in.VanishedAttempt == in.Node.Record.Sequence+1:
		p.record(in, s, attempt.Attempt{Number: in.VanishedAttempt}, attempt.NewInconclusive(attempt.ReasonPodDeleted, "the pod was deleted before it had a result"), now)
	case current == nil:
		p.startOrRemediate(in, s, ev, now)
	case current.Attempt.Result == nil:
		p.awaitResult(in, s, current, ev, now)
	default:
		p.evaluate(in, s, *current, current.Seen.Result, *current.Attempt.Result, ev, now)
	}
	p.reportDeadline(in, s, ev, now)
}

// budget is what the run under way has used of its budget.
type budget struct {
	attempts, inconclusive int32
	shared                 int32 // failures since a control probe last passed beside one; see marks.Record
	first                  bool  // no attempt of this run is recorded yet
}

// budgetOf: a run begins after a pass and after a reboot.
func budgetOf(in Input) budget {
	r := in.Node.Record
	if r.LastOutcome == "" || r.LastOutcome == attempt.Passed || rebooted(in) {
		return budget{first: true}
	}
	return budget{attempts: r.Attempts, inconclusive: r.Inconclusive, shared: r.Shared}
}

func (s budget) exhausted(in Input) bool { return s.attempts >= in.Config.Reconciliation.MaxRetries }

// startOrRemediate decides what comes after the last attempt, with none under way.
func (p *Plan) startOrRemediate(in Input, s budget, ev Evidence, now time.Time) {
	if r := in.Node.Record; !in.Config.NodeManagement.DeleteFailedNodes && (r.Held != "" || r.Deletion != nil) {
		// Deletion was switched off: nothing is held any more, and nothing is to be deleted.
		r.Held, r.HeldMessage, r.Deletion = "", "", nil
		p.Step, p.Change = StepRecord, marks.Change{Record: r}
		return
	}
	if in.Profile.Unchecked() && in.Node.Record.Deletion == nil {
		p.passUnchecked(in, s, ev, now)
		return
	}
	p.Condition = betweenAttempts(in, s, now)
	due := true
	if !s.first && !stuckResolved(in, now) {
		at, again := nextAttemptTime(in.Config, in.Node.Record, in.Node.UID, now)
		due = again && !now.Before(at)
		if again && !due {
			p.requeueAfter(at.Sub(now))
		}
	}
	overdue := nodeAtFault(in, s, now)
	if overdue && awaitsPrerequisites(in, s) {
		if ev.Unmet == nil {
			p.need(NeedPrerequisites)
			return
		}
		overdue = len(*ev.Unmet) > 0 // else it is tried
	}
	if overdue || remediationDue(in, s) {
		sure := overdue || failureConfirmed(in, s, now)
		// A node past its deadline is due all the time, or waits for prerequisites: while nothing holds its deletion, that comes first.
		if r := in.Node.Record; r.Deletion != nil || sure && !due || overdue && (r.Held == "" || awaitsPrerequisites(in, s)) {
			p.remediate(in, s, sure, ev, now)
			return
		}
		due = due || !sure
	}
	if due {
		p.startAttempt(in, s, ev, now)
	}
}

// awaitsPrerequisites reports whether the next attempt waits for them: other checks may be another profile's, whose
// prerequisites nobody has looked at.
func awaitsPrerequisites(in Input, s budget) bool { return s.first || in.Node.Record.Superseded > 0 }

// remediationDue reports whether what is next for a node whose checks failed may be its deletion. One that is leaving others remove.
func remediationDue(in Input, s budget) bool {
	r := in.Node.Record
	return in.Node.Leaving == "" && in.Config.NodeManagement.DeleteFailedNodes && (r.Deletion != nil || !s.first && s.exhausted(in) && r.LastOutcome == attempt.Failed)
}

// failureConfirmed reports whether the last failure may lead to a deletion: it is the last of the budget, fresh, and a probe passed
// beside it. Any other is followed by an attempt first.
func failureConfirmed(in Input, s budget, now time.Time) bool {
	r := in.Node.Record
	return !in.Profile.Unchecked() && !stuckResolved(in, now) && !s.first && s.exhausted(in) &&
		r.LastOutcome == attempt.Failed && recent(r.LastTime, now) && (!needsControlProbe(in.Config) || r.Probed)
}

// recent reports whether what was seen at the time may still lead to a deletion: it is not so old that it has to be confirmed.
func recent(at *time.Time, now time.Time) bool {
	return at != nil && !at.After(now.Add(clockTolerance)) && now.Sub(*at) < maxFailureAge
}

// startAttempt begins the next attempt once nothing holds it back.
func (p *Plan) startAttempt(in Input, s budget, ev Evidence, now time.Time) {
	if !p.available(in, now) {
		return
	}
	if awaitsPrerequisites(in, s) && !p.prerequisitesMet(in, ev, now) {
		if ev.Unmet != nil {
			p.comparePrerequisites(in, s, ev, now)
		}
		return
	}
	if last := occupyingWorker(in); last != nil {
		// Two workers of one node would disturb each other, and the limit on workers would not hold.
		p.awaitTermination(in, s, last, ev, now)
		return
	}
	if !p.noOrphanedWorker(in, now) || !p.slotFree(ev, now) {
		return
	}
	if !ev.Fresh && !ev.Current {
		p.need(NeedFresh) // a cache that missed the last record would start an attempt that is recorded already
		return
	}
	r := in.Node.Record
	p.Step, p.Number, p.Scheduling = StepStart, r.Sequence+1, in.Config.Worker.Scheduling
	if !in.Node.Gated || r.LastReason == attempt.ReasonKubeletRejected {
		p.Scheduling = config.SchedulingScheduler
	}
}

// passUnchecked passes a node that has nothing to check once its prerequisites hold, without a worker and so without a slot.
func (p *Plan) passUnchecked(in Input, s budget, ev Evidence, now time.Time) {
	if !p.available(in, now) || !p.prerequisitesMet(in, ev, now) {
		return
	}
	p.pass(in, s, in.NextAttempt(), attempt.Result{Outcome: attempt.Passed, Reason: attempt.ReasonNoChecks}, now)
}

// prerequisitesMet reports whether all of them hold and the node's minimum hold is over; if that is not known, or one does not, the
// plan says so.
func (p *Plan) prerequisitesMet(in Input, ev Evidence, now time.Time) bool {
	if ev.Unmet == nil {
		p.need(NeedPrerequisites)
		return false
	}
	waits := *ev.Unmet
	if w, left := minimumHold(in, now); left > 0 {
		waits = append(slices.Clone(waits), w)
		p.requeueAfter(left)
	}
	if len(waits) == 0 {
		return true
	}
	p.Unmet, p.Condition = waits, unknownCondition(marks.ReasonWaitingForPrerequisites, unmetMessage(waits), now)
	p.Events = prerequisiteStuckEvents(waits)
	return false
}

// available reports whether the node is there to be verified; if not, the plan says so.
func (p *Plan) available(in Input, now time.Time) bool {
	why := unavailableReason(in)
	if why != "" && in.Node.Record.Deletion == nil { // else it leaves because we had it deleted, and says so
		p.Condition = unknownCondition(marks.ReasonWaitingForPrerequisites, why, now)
	}
	return why == ""
}

// unavailableReason says why no worker starts on the node whatever else holds: it is leaving, or its kubelet is gone. A worker that is under
// way when that begins is let end, for what it finds is still true; one that vanishes with the node is inconclusive.
func unavailableReason(in Input) string {
	switch {
	case in.Node.Leaving != "":
		return "The node is leaving: " + in.Node.Leaving + "; no worker starts meanwhile"
	case in.Node.Lost:
		return "Waiting for the kubelet: the node's condition Ready is Unknown"
	}
	return ""
}

// slotFree reports whether there is room for one more worker pod; if it is not known, or there is none, the plan says so.
func (p *Plan) slotFree(ev Evidence, now time.Time) bool {
	switch {
	case ev.Slot == nil:
		p.need(NeedSlot)
		return false
	case !*ev.Slot:
		p.Unmet, p.Condition = []Unmet{{Kind: UnmetSlot}}, unknownCondition(marks.ReasonWaitingForSlot, "Waiting for one of reconciliation.maxConcurrentVerifications", now)
		return false
	}
	return true
}
