package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// lookAtWaiting starts the next attempt, or says what it waits for. A node without checks passes.
func lookAtWaiting(in Input, ev Evidence, now time.Time) Plan {
	if in.Profile.Unchecked() {
		return expired(in, ev, passUnchecked(in, ev, now), true, now)
	}
	p, _ := between(in, now)
	return start(in, ev, p, now)
}

// start is the plan p of a node whose next attempt is due, with the start of that attempt or the reason why it does not
// start. Past the deadline, it is what onDeadline asks for.
func start(in Input, ev Evidence, p Plan, now time.Time) Plan {
	return expired(in, ev, startAttempt(in, ev, p, now), true, now)
}

// startAttempt starts the next attempt. If something prevents that, it reports the reason.
func startAttempt(in Input, ev Evidence, p Plan, now time.Time) Plan {
	p, ok := available(in, p, now)
	if ok && awaitsPrerequisites(in) {
		p, ok = prerequisitesMet(in, ev, p, now)
	}
	if !ok {
		return p
	}
	if last := occupyingWorker(in); last != nil {
		// Two workers on one node would disturb each other, and exceed maxConcurrentVerifications.
		return awaitTermination(in, ev, p, last, now)
	}
	if p, ok = takesSlot(in, ev, p, now); !ok {
		return p
	}
	if !ev.Fresh {
		p.Need = NeedFresh // a stale cache may lack the last record, and its attempt would start again
		return p
	}
	r := in.Node.Record
	p.Step, p.Number, p.Scheduling = StepStart, r.Sequence+1, in.Profile.Scheduling
	// A kubelet that knows nothing of an extended resource admits a pod that is bound directly and asks for it
	// (removeMissingExtendedResources in k8s.io/kubernetes pkg/kubelet/lifecycle), and the worker would run without.
	offered := in.Node.Offers(in.Profile.ExtendedResources())
	if !in.Closed() || !offered || r.LastReason == attempt.ReasonKubeletRejected {
		p.Scheduling = config.SchedulingScheduler
	}
	return p
}

// awaitsPrerequisites reports whether the next attempt waits for prerequisites. These are the first attempt of a run,
// and the one after a superseded attempt, because the node's profile may have changed.
func awaitsPrerequisites(in Input) bool {
	r := in.Node.Record
	return budgetOf(in).first || recordsSuperseded(r) || recordsDeadline(r)
}

// passUnchecked passes a node without checks once its prerequisites hold. It takes no worker and no slot.
func passUnchecked(in Input, ev Evidence, now time.Time) Plan {
	p, ok := available(in, Plan{}, now)
	if ok {
		p, ok = prerequisitesMet(in, ev, p, now)
	}
	if !ok {
		return p
	}
	return pass(in, ev, in.NextAttempt(), attempt.Result{Outcome: attempt.Passed, Reason: attempt.ReasonNoChecks}, now)
}

// prerequisitesMet reports whether all prerequisites hold and the minimum hold is over. If they do not, or if that is
// unknown, the plan gives the reason.
func prerequisitesMet(in Input, ev Evidence, p Plan, now time.Time) (Plan, bool) {
	if ev.Unmet == nil {
		p.Need = NeedPrerequisites
		return p, false
	}
	unmet := *ev.Unmet
	if hold, left := minimumHold(in, now); left > 0 {
		unmet = append(slices.Clone(unmet), hold)
		p.requeueAfter(left)
	}
	if len(unmet) == 0 {
		return p, true
	}
	for _, u := range unmet {
		if !u.Until.IsZero() {
			p.requeueAfter(max(u.Until.Sub(now), time.Millisecond))
		}
	}
	unmet, left := withHints(unmet, in.NeedsVerificationSince, now)
	if left > 0 {
		p.requeueAfter(left)
	}
	p.Unmet, p.Condition = unmet, unknownCondition(marks.ReasonWaitingForPrerequisites, unmetMessage(unmet), now)
	p.Events = prerequisiteStuckEvents(unmet)
	return p, false
}

// available reports whether a worker may start on the node. If not, the plan gives the reason.
func available(in Input, p Plan, now time.Time) (Plan, bool) {
	if reason := unavailableReason(in); reason != "" {
		p.Condition = unknownCondition(marks.ReasonWaitingForPrerequisites, reason, now)
		return p, false
	}
	if in.Node.Uninitialized != "" {
		return uninitialized(in, p, "No worker starts on this node yet", now), false
	}
	return p, true
}

// uninitialized is the plan p of a node that may not have the labels yet that select its profile. waits is what waits
// for them.
func uninitialized(in Input, p Plan, waits string, now time.Time) Plan {
	p.Unmet = []Unmet{{Kind: UnmetInitialization}}
	p.Condition = unknownCondition(marks.ReasonWaitingForRegistration, fmt.Sprintf("%s: it has the taint %s, so labels "+
		"that select its profile may be missing", waits, in.Node.Uninitialized), now)
	return p
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

// takesSlot reports whether a slot for one more worker pod is reserved. If not, or if that is unknown, the plan gives
// the reason.
func takesSlot(in Input, ev Evidence, p Plan, now time.Time) (Plan, bool) {
	switch {
	case ev.Slot == nil:
		p.Need = NeedSlot
		return p, false
	case !*ev.Slot:
		p.Unmet, p.Condition = []Unmet{{Kind: UnmetSlot}}, slotCondition(in, ev, now)
		return p, false
	}
	return p, true
}

// slotCondition reports that the node waits for a slot, and lists the pods that hold a slot although they should have
// ended. A held node keeps the reason RemediationHeld.
func slotCondition(in Input, ev Evidence, now time.Time) *marks.Condition {
	message := "Waiting for a free slot (reconciliation.maxConcurrentVerifications)"
	if ev.SlotHolders != nil && len(*ev.SlotHolders) > 0 { // a long message is cut, so the next one to go is named
		message += "; " + (*ev.SlotHolders)[0].String()
		if more := len(*ev.SlotHolders) - 1; more > 0 {
			message += fmt.Sprintf("; and so do %d more", more)
		}
	}
	switch first := budgetOf(in).first; {
	case !first && in.Node.Record.Held != "":
		c := betweenAttempts(in, now)
		c.Message = attempt.Text(c.Message + "; " + message)
		return c
	case !first:
		message += "; previous result: " + LastFailure(in.Node.Record)
	}
	return unknownCondition(marks.ReasonWaitingForSlot, message, now)
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
