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
	current, plan := tidy(in, now)
	verified := !Eligible(in) || !NeedsVerification(in, now)
	switch {
	case !verified || current == nil:
	case current.Terminating:
		plan.forceEnd(*current, now)
	default:
		plan.Delete = append(plan.Delete, *current)
	}
	if !ev.Fresh && (unrecorded(in.Node.Record, plan.Delete, ev.Current) || len(plan.ForceDelete) > 0) {
		// A cache that missed the last record would end a worker whose result nobody has, and one that missed that the record was
		// removed would take it for a worker of long ago; one that missed a start would take what runs for a pod that never started.
		return Plan{Need: NeedFresh}
	}
	switch {
	case in.DryRunDone:
	case verified:
		plan.settle(in, now)
	default:
		plan.verify(in, current, ev, now)
	}
	return plan.withoutEviction(in, ev)
}

// settle is for a node that needs no verification. One that is not selected may be another installation's, and so are its marks.
func (p *Plan) settle(in Input, now time.Time) {
	if !in.Selected {
		return
	}
	p.Condition = settled(in)
	if unsupported(in) {
		p.unsupported(in, now)
	}
	p.ClearCondition = p.Condition == nil && in.Node.Condition != nil
	if at, ok := ages(in, now); ok && in.Node.Labelled {
		p.requeueAfter(at.Sub(now))
	}
}

func (p *Plan) verify(in Input, current *workerpod.Observation, ev Evidence, now time.Time) {
	s := spentOf(in)
	switch {
	case forced(in):
		p.force()
	case p.begin(in, s, current, now):
	case p.intended(in, s, current, ev, now):
	case in.LocalWorker != nil && in.LocalWorker.Attempt.Number == in.Node.Record.Sequence+1:
		p.self(in, s, now)
	case current == nil && in.VanishedAttempt == in.Node.Record.Sequence+1:
		p.record(in, s, attempt.Attempt{Number: in.VanishedAttempt}, attempt.NewInconclusive(attempt.ReasonPodDeleted, "the pod was deleted before it had a result"), now)
	case current == nil:
		p.next(in, s, ev, now)
	case current.Attempt.Result == nil:
		p.await(in, s, current, ev, now)
	default:
		p.judge(in, s, *current, current.Seen.Result, *current.Attempt.Result, ev, now)
	}
	p.expire(in, s, ev, now)
}

// spent is what the run under way has used of its budget.
type spent struct {
	attempts, inconclusive int32
	shared                 int32 // failures since a control probe last passed beside one; see marks.Record
	first                  bool  // no attempt of this run is recorded yet
}

// spentOf: a run begins after a pass and after a reboot.
func spentOf(in Input) spent {
	r := in.Node.Record
	if r.LastOutcome == "" || r.LastOutcome == attempt.Passed || rebooted(in) {
		return spent{first: true}
	}
	return spent{attempts: r.Attempts, inconclusive: r.Inconclusive, shared: r.Shared}
}

func (s spent) exhausted(in Input) bool { return s.attempts >= in.Config.Reconciliation.MaxRetries }

// next decides what comes after the last attempt, with none under way.
func (p *Plan) next(in Input, s spent, ev Evidence, now time.Time) {
	if r := in.Node.Record; !in.Config.NodeManagement.DeleteFailedNodes && (r.Held != "" || r.Deletion != nil) {
		// Deletion was switched off: nothing is held any more, and nothing is to be deleted.
		r.Held, r.HeldMessage, r.Deletion = "", "", nil
		p.Step, p.Change = StepRecord, marks.Change{Record: r}
		return
	}
	if in.Profile.Unchecked() && in.Node.Record.Deletion == nil {
		p.release(in, s, ev, now)
		return
	}
	p.Condition = between(in, s, now)
	due := true
	if !s.first && !unstuck(in, now) {
		at, again := nextAttempt(in.Config, in.Node.Record, in.Node.UID, now)
		due = again && !now.Before(at)
		if again && !due {
			p.requeueAfter(at.Sub(now))
		}
	}
	overdue := atFault(in, s, now)
	if overdue && awaitsPrerequisites(in, s) {
		if ev.Unmet == nil {
			p.need(NeedPrerequisites)
			return
		}
		overdue = len(*ev.Unmet) > 0 // else it is tried
	}
	if overdue || mayDelete(in, s) {
		sure := overdue || confirmed(in, s, now)
		// A node past its deadline is due all the time, or waits for prerequisites: while nothing holds its deletion, that comes first.
		if r := in.Node.Record; r.Deletion != nil || sure && !due || overdue && (r.Held == "" || awaitsPrerequisites(in, s)) {
			p.remediate(in, s, sure, ev, now)
			return
		}
		due = due || !sure
	}
	if due {
		p.start(in, s, ev, now)
	}
}

// awaitsPrerequisites reports whether the next attempt waits for them: other checks may be another profile's, whose
// prerequisites nobody has looked at.
func awaitsPrerequisites(in Input, s spent) bool { return s.first || in.Node.Record.Superseded > 0 }

// mayDelete reports whether what is next for a node whose checks failed may be its deletion. One that is leaving others remove.
func mayDelete(in Input, s spent) bool {
	r := in.Node.Record
	return in.Node.Leaving == "" && in.Config.NodeManagement.DeleteFailedNodes && (r.Deletion != nil || !s.first && s.exhausted(in) && r.LastOutcome == attempt.Failed)
}

// confirmed reports whether the last failure may lead to a deletion: it is the last of the budget, fresh, and a probe passed
// beside it. Any other is followed by an attempt first.
func confirmed(in Input, s spent, now time.Time) bool {
	r := in.Node.Record
	return !in.Profile.Unchecked() && !unstuck(in, now) && !s.first && s.exhausted(in) &&
		r.LastOutcome == attempt.Failed && fresh(r.LastTime, now) && (!controlled(in.Config) || r.Probed)
}

// fresh reports whether what was seen at the time may still lead to a deletion: it is not so old that it has to be confirmed.
func fresh(at *time.Time, now time.Time) bool {
	return at != nil && !at.After(now.Add(clockTolerance)) && now.Sub(*at) < freshFor
}

// start begins the next attempt once nothing holds it back.
func (p *Plan) start(in Input, s spent, ev Evidence, now time.Time) {
	if !p.present(in, now) {
		return
	}
	if awaitsPrerequisites(in, s) && !p.prerequisites(in, ev, now) {
		if ev.Unmet != nil {
			p.compare(in, s, ev, now)
		}
		return
	}
	if last := ending(in); last != nil {
		// Two workers of one node would disturb each other, and the limit on workers would not hold.
		p.awaitEnd(in, s, last, ev, now)
		return
	}
	if !p.alone(in, now) || !p.slot(ev, now) {
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

// release passes a node that has nothing to check once its prerequisites hold, without a worker and so without a slot.
func (p *Plan) release(in Input, s spent, ev Evidence, now time.Time) {
	if !p.present(in, now) || !p.prerequisites(in, ev, now) {
		return
	}
	p.pass(in, s, in.NextAttempt(), attempt.Result{Outcome: attempt.Passed, Reason: attempt.ReasonNoChecks}, now)
}

// prerequisites reports whether all of them hold and the node's minimum hold is over; if that is not known, or one does not, the
// plan says so.
func (p *Plan) prerequisites(in Input, ev Evidence, now time.Time) bool {
	if ev.Unmet == nil {
		p.need(NeedPrerequisites)
		return false
	}
	waits := *ev.Unmet
	if w, left := hold(in, now); left > 0 {
		waits = append(slices.Clone(waits), w)
		p.requeueAfter(left)
	}
	if len(waits) == 0 {
		return true
	}
	p.Unmet, p.Condition = waits, waiting(marks.ReasonWaitingForPrerequisites, waitsFor(waits), now)
	p.Events = stuckEvent(waits)
	return false
}

// present reports whether the node is there to be verified; if not, the plan says so.
func (p *Plan) present(in Input, now time.Time) bool {
	why := absent(in)
	if why != "" && in.Node.Record.Deletion == nil { // else it leaves because we had it deleted, and says so
		p.Condition = waiting(marks.ReasonWaitingForPrerequisites, why, now)
	}
	return why == ""
}

// absent says why no worker starts on the node whatever else holds: it is leaving, or its kubelet is gone. A worker that is under
// way when that begins is let end, for what it finds is still true; one that vanishes with the node is inconclusive.
func absent(in Input) string {
	switch {
	case in.Node.Leaving != "":
		return "The node is leaving: " + in.Node.Leaving + "; no worker starts meanwhile"
	case in.Node.Lost:
		return "Waiting for the kubelet: the node's condition Ready is Unknown"
	}
	return ""
}

// slot reports whether there is room for one more worker pod; if it is not known, or there is none, the plan says so.
func (p *Plan) slot(ev Evidence, now time.Time) bool {
	switch {
	case ev.Slot == nil:
		p.need(NeedSlot)
		return false
	case !*ev.Slot:
		p.Unmet, p.Condition = []Unmet{{Kind: UnmetSlot}}, waiting(marks.ReasonWaitingForSlot, "Waiting for one of reconciliation.maxConcurrentVerifications", now)
		return false
	}
	return true
}
