package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// decision is the input of Next, and the plan that it makes.
type decision struct {
	in    Input
	ev    Evidence
	now   time.Time
	spent budget
	Plan
}

func newDecision(in Input, ev Evidence, now time.Time) *decision {
	return &decision{in: in, ev: ev, now: now, spent: budgetOf(in)}
}

// Next decides the next step for one node. If it needs evidence that is costly to load, it names the evidence in
// Plan.Need. Resolve then loads it and calls Next again.
func Next(in Input, ev Evidence, now time.Time) Plan {
	if in.Node.Deleting {
		return Plan{} // the garbage collector deletes its pods
	}
	d := newDecision(in, ev, now)
	current := d.cleanUpPods()
	verify := Eligible(in) && NeedsVerification(in, now)
	switch {
	case verify || current == nil:
	case current.Terminating:
		d.forceDelete(*current)
	default:
		d.Delete = append(d.Delete, *current)
	}
	if !ev.Fresh && (hasUnrecorded(in.Node.Record, d.Delete) || len(d.ForceDelete) > 0) {
		// A stale cache may lack the last record, the removal of the record, or the start of the pod. Then the controller
		// would end a worker whose result is not recorded, or delete a running one without grace.
		return Plan{Need: NeedFresh}
	}
	switch {
	case in.DryRunDone:
	case (verify || in.Node.HasRecord && Eligible(in)) && d.recordFlapping():
	case verify:
		d.verify(current)
	default:
		d.Plan = looks[StateOf(in, now)](in, ev, now).with(d.Plan)
	}
	d.avoidEviction()
	return d.Plan
}

// looks are the decisions about a node in one state, without its pods.
var looks = map[State]func(in Input, ev Evidence, now time.Time) Plan{
	StateNotOurs:  lookAtNotOurs,
	StateVerified: lookAtVerified,
}

// with adds what happens to the node's pods, and when to look at them again.
func (p Plan) with(pods Plan) Plan {
	p.Delete, p.Keep, p.ForceDelete = pods.Delete, pods.Keep, pods.ForceDelete
	p.requeueAfter(pods.RequeueAfter)
	return p
}

func (d *decision) verify(current *workerpod.Observation) {
	switch {
	case labelledByHand(d.in):
		// Record and condition keep the result of the checks.
		d.Step, d.Change = StepRecord, marks.Change{KeepRecord: true, Gate: marks.GateOpen}
	case current == nil && d.recordSuspicion(): // an attempt under way began before it
	case d.recordTakenBack():
	case d.beginRound(current):
	case d.resolveIntent(current):
	case d.in.LocalWorker != nil && d.in.LocalWorker.Attempt.Number == d.in.NextAttempt().Number:
		d.awaitLocalResult()
	case current == nil && d.in.VanishedAttempt == d.in.NextAttempt().Number:
		d.record(attempt.Attempt{Number: d.in.VanishedAttempt}, podDeleted())
	case current == nil:
		d.startOrRemediate()
	case current.Attempt.Result == nil:
		d.awaitResult(current)
	default:
		d.evaluate(*current, current.Seen.Result, *current.Attempt.Result)
	}
	d.reportFlapping()
	d.addToCondition(reselected(d.in))
	d.reportDeadline()
}

// budget is how many retries the present run has spent. A run begins after a pass, after a reboot, and when the node
// gets other checks.
type budget struct {
	attempts, inconclusive int32
	shared                 int32 // see marks.Record.Shared
	first                  bool  // no attempt of this run is recorded yet
}

func budgetOf(in Input) budget {
	r := in.Node.Record
	if r.LastOutcome == "" || r.LastOutcome == attempt.Passed || rebooted(in) || r.Checks != in.Checks {
		return budget{first: true}
	}
	return budget{attempts: r.Attempts, inconclusive: r.Inconclusive, shared: r.Shared}
}

// spentAll reports whether the run has no retries left.
func spentAll(in Input) bool { return exhausts(in, budgetOf(in).attempts) }

// startOrRemediate decides what follows the last attempt, if no attempt is in progress.
func (d *decision) startOrRemediate() {
	r := d.in.Node.Record
	if (r.Held != "" || r.Deletion != nil) && !d.in.Config.NodeManagement.DeleteFailedNodes {
		// deleteFailedNodes was switched off.
		r.Held, r.HeldMessage, r.Deletion = "", "", nil
		d.Step, d.Change = StepRecord, marks.Change{Record: r}
		return
	}
	if d.awaitOneMachine() || d.awaitTakenBack() {
		return
	}
	if d.in.Profile.Unchecked() && d.in.Node.Record.Deletion == nil {
		d.passUnchecked()
		d.expire(true)
		return
	}
	d.Condition = betweenAttempts(d.in, d.now)
	wait, due := nextAttempt(d.in, d.now)
	d.requeueAfter(wait)
	if d.spent.first && !due {
		d.Condition = unknownCondition(marks.ReasonWorkerInconclusive, fmt.Sprintf("Attempt %d ran other checks than the "+
			"node has now; next attempt at %s", r.Sequence, d.now.Add(wait).UTC().Format(time.RFC3339)), lastTime(r))
	}
	// Past the deadline, an attempt that proved nothing needs no other after it.
	if inconclusiveAttempt(d.in) && expires(d.in, d.now) {
		d.expire(false)
		return
	}
	if remediationDue(d.in) {
		confirmed := failureConfirmed(d.in, d.now)
		if r.Deletion != nil || confirmed && !due {
			d.remediate(confirmed)
			return
		}
		due = due || !confirmed
	}
	if due {
		d.startAttempt()
		d.expire(true)
	}
}

// awaitsPrerequisites reports whether the next attempt waits for prerequisites. These are the first attempt of a run,
// and the one after a superseded attempt, because the node's profile may have changed.
func awaitsPrerequisites(in Input) bool {
	r := in.Node.Record
	return budgetOf(in).first || recordsSuperseded(r) || recordsDeadline(r)
}

// remediationDue reports whether a failed node may be deleted next. A node that is already leaving is removed by
// others.
func remediationDue(in Input) bool {
	r := in.Node.Record
	return in.Node.Leaving == "" && in.Config.NodeManagement.DeleteFailedNodes &&
		(r.Deletion != nil || !budgetOf(in).first && spentAll(in) && r.LastOutcome == attempt.Failed)
}

// failureConfirmed reports whether the last failure may lead to a deletion: it exhausted the retries, it is recent, and
// a control probe passed beside it. Otherwise another attempt comes first.
func failureConfirmed(in Input, now time.Time) bool {
	r := in.Node.Record
	return !in.Profile.Unchecked() && !stuckResolved(in, now) && !budgetOf(in).first && spentAll(in) &&
		r.LastOutcome == attempt.Failed && recent(r.LastTime, now) && (!needsControlProbe(in) || r.Probed)
}

// recent reports whether a finding from the given time may lead to a deletion without another attempt.
func recent(at *time.Time, now time.Time) bool {
	return at != nil && !at.After(now.Add(clockTolerance)) && now.Sub(*at) < maxFailureAge
}

// startAttempt starts the next attempt. If something prevents that, it reports the reason.
func (d *decision) startAttempt() {
	if !d.available() {
		return
	}
	if awaitsPrerequisites(d.in) && !d.prerequisitesMet() {
		return
	}
	if last := occupyingWorker(d.in); last != nil {
		// Two workers on one node would disturb each other, and exceed maxConcurrentVerifications.
		d.awaitTermination(last)
		return
	}
	if !d.slotFree() {
		return
	}
	if !d.ev.Fresh {
		d.Need = NeedFresh // a stale cache may lack the last record, and its attempt would start again
		return
	}
	r := d.in.Node.Record
	d.Step, d.Number, d.Scheduling = StepStart, r.Sequence+1, d.in.Profile.Scheduling
	// A kubelet that knows nothing of an extended resource admits a pod that is bound directly and asks for it
	// (removeMissingExtendedResources in k8s.io/kubernetes pkg/kubelet/lifecycle), and the worker would run without.
	offered := d.in.Node.Offers(d.in.Profile.ExtendedResources())
	if !d.in.Closed() || !offered || r.LastReason == attempt.ReasonKubeletRejected {
		d.Scheduling = config.SchedulingScheduler
	}
}

// passUnchecked passes a node without checks once its prerequisites hold. It takes no worker and no slot.
func (d *decision) passUnchecked() {
	if !d.available() || !d.prerequisitesMet() {
		return
	}
	d.pass(d.in.NextAttempt(), attempt.Result{Outcome: attempt.Passed, Reason: attempt.ReasonNoChecks})
}

// prerequisitesMet reports whether all prerequisites hold and the minimum hold is over. If they do not, or if that is
// unknown, the plan gives the reason.
func (d *decision) prerequisitesMet() bool {
	if d.ev.Unmet == nil {
		d.Need = NeedPrerequisites
		return false
	}
	unmet := *d.ev.Unmet
	if hold, left := minimumHold(d.in, d.now); left > 0 {
		unmet = append(slices.Clone(unmet), hold)
		d.requeueAfter(left)
	}
	if len(unmet) == 0 {
		return true
	}
	for _, u := range unmet {
		if !u.Until.IsZero() {
			d.requeueAfter(max(u.Until.Sub(d.now), time.Millisecond))
		}
	}
	unmet, left := withHints(unmet, d.in.NeedsVerificationSince, d.now)
	if left > 0 {
		d.requeueAfter(left)
	}
	d.Unmet, d.Condition = unmet, unknownCondition(marks.ReasonWaitingForPrerequisites, unmetMessage(unmet), d.now)
	d.Events = prerequisiteStuckEvents(unmet)
	return false
}

// available reports whether a worker may start on the node. If not, the plan gives the reason.
func (d *decision) available() bool {
	reason := unavailableReason(d.in)
	if reason != "" && d.in.Node.Record.Deletion == nil { // else it is leaving because we deleted it, and says so
		d.Condition = unknownCondition(marks.ReasonWaitingForPrerequisites, reason, d.now)
	}
	return reason == "" && d.initialized("No worker starts on this node yet")
}

// initialized reports whether the node has the labels that select its profile. If it may not have them yet, the plan
// says so, and what waits for them.
func (d *decision) initialized(waits string) bool {
	taint := d.in.Node.Uninitialized
	if taint == "" {
		return true
	}
	d.Unmet = []Unmet{{Kind: UnmetInitialization}}
	d.Condition = unknownCondition(marks.ReasonWaitingForRegistration, fmt.Sprintf("%s: it has the taint %s, so labels "+
		"that select its profile may be missing", waits, taint), d.now)
	return false
}

// unavailableReason says why no worker may start on the node: it is leaving, or its kubelet is gone. A worker that
// already runs may finish, because its result is still valid.
func unavailableReason(in Input) string {
	switch {
	case in.Node.Leaving != "":
		return "No worker starts on this node: " + in.Node.Leaving
	case in.Node.Lost:
		return "Waiting for the kubelet: the node's condition Ready is Unknown"
	}
	return ""
}

// slotFree reports whether a slot for one more worker pod is reserved. If not, or if that is unknown, the plan gives
// the reason.
func (d *decision) slotFree() bool {
	switch {
	case d.ev.Slot == nil:
		d.Need = NeedSlot
		return false
	case !*d.ev.Slot:
		d.Unmet = []Unmet{{Kind: UnmetSlot}}
		d.awaitSlot()
		return false
	}
	return true
}

// awaitSlot reports that the node waits for a slot, and lists the pods that hold a slot although they should have
// ended. A held node keeps the reason RemediationHeld.
func (d *decision) awaitSlot() {
	message := "Waiting for a free slot (reconciliation.maxConcurrentVerifications)"
	if d.ev.SlotHolders != nil && len(*d.ev.SlotHolders) > 0 { // a long message is cut, so the next one to go is named
		message += "; " + (*d.ev.SlotHolders)[0].String()
		if more := len(*d.ev.SlotHolders) - 1; more > 0 {
			message += fmt.Sprintf("; and so do %d more", more)
		}
	}
	if d.spent.first {
		d.Condition = unknownCondition(marks.ReasonWaitingForSlot, message, d.now)
		return
	}
	if d.in.Node.Record.Held != "" {
		d.Condition = betweenAttempts(d.in, d.now)
		d.Condition.Message = attempt.Text(d.Condition.Message + "; " + message)
		return
	}
	message += "; previous result: " + LastFailure(d.in.Node.Record)
	d.Condition = unknownCondition(marks.ReasonWaitingForSlot, message, d.now)
}

// String says which pod holds a slot, until when, why it does, and what to do.
func (h SlotHolder) String() string {
	text := fmt.Sprintf("worker %s on node %s should have ended at %s and holds a slot until %s at the latest",
		h.Pod, h.Node, h.Due.UTC().Format(time.RFC3339), h.Until.UTC().Format(time.RFC3339))
	switch {
	case h.Refused != "":
		text += ": its deletion is refused (" + h.Refused + "); let the controller delete pods in its namespace"
	case len(h.Finalizers) > 0:
		text += ": finalizers keep it: " + strings.Join(h.Finalizers, ", ")
	case h.Terminating:
		text += ": it is deleted, and the kubelet does not confirm its end; see kubelet and container runtime there"
	}
	return text
}
