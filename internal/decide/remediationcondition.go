package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// With remediation.action condition, a condition asks a repairer to act on the node. It is a state, derived at every
// look: it is on the node exactly while requiresRemediation is true. What it needs to remember, that the limits counted
// it, is in the ledger.

// mayChangeCondition reports whether remediationCondition may have something to do: the node carries the condition, or
// its retries are exhausted. It costs nothing.
func mayChangeCondition(in Input) bool {
	return len(in.Node.RemediationConditions) > 0 || exhaustedHere(in)
}

// Remediation decides in two plans what the remediation queue does about a node. condition is what to change so that
// the node carries the condition exactly while it should. Its step is StepRemoveConditions, StepSetCondition or none.
// then is what Next decides, unless condition needs evidence first, or sets the condition. One evaluation of the guards
// serves both.
func Remediation(in Input, ev Evidence, now time.Time) (condition, then Plan) {
	condition, ev.held = remediationCondition(in, ev, now)
	switch {
	case condition.Need != NeedNothing:
		return condition, Plan{Need: condition.Need}
	case condition.Step == StepSetCondition:
		return condition, Plan{}
	}
	return condition, Next(in, ev, now)
}

// remediationCondition decides about the condition alone, and returns what the guards say; nil if they were not
// evaluated. A condition that is set does not wait for the removal of others.
func remediationCondition(in Input, ev Evidence, now time.Time) (Plan, *held) {
	if in.Node.Deleting || !mayChangeCondition(in) || !in.Selected && len(in.Node.RemediationConditions) == 0 {
		return Plan{}, nil
	}
	required, by := requiresRemediation(in, ev, now)
	switch {
	case !in.Selected && ev.Ledger == nil:
		return Plan{Need: NeedLedger}, nil
	case by != nil && by.need != NeedNothing:
		return Plan{Need: by.need}, nil
	}
	p := Plan{}
	if by != nil && by.guard != "" && carriesCondition(in) && !failureConfirmed(in, now) {
		// Else the record and an event say so.
		p.Events = []Event{heldEvent(in.Node.Record, by.guard, by.message+"; the condition is removed")}
	}
	want := in.Config.NodeManagement.Remediation.Condition
	carries := false
	for _, c := range in.Node.RemediationConditions {
		switch {
		case required && c.Type == want.Type:
			carries = c.Status == want.Status
		case in.Selected || setHere(in, ev, c): // else it is another installation's, which serves this node
			p.RemoveConditions = append(p.RemoveConditions, c.Type)
		}
	}
	switch {
	case !required || carries:
		if len(p.RemoveConditions) > 0 {
			p.Step = StepRemoveConditions
		}
	case !ev.Fresh:
		return Plan{Need: NeedFresh}, nil
	default:
		p.Step, p.Cause, p.Target.Kind, p.Target.Name = StepSetCondition, remediationCause(in), marks.KindCondition,
			string(want.Type)
		what := fmt.Sprintf("condition %s=%s was set", want.Type, want.Status)
		p.Events = []Event{remediationStarted(in.Node.Record, what, p.Cause)}
	}
	return p, by
}

// requiresRemediation reports whether the node should carry the condition now: its retries are exhausted under the
// present checks in this boot, and every guard lets an action through. by is what the guards say; nil if they were not
// evaluated. If they lack evidence, the result is false.
func requiresRemediation(in Input, ev Evidence, now time.Time) (required bool, by *held) {
	c := in.Config.NodeManagement
	if !c.DeleteFailedNodes || c.Remediation.Action != config.ActionCondition || !Eligible(in) ||
		in.LocalWorker != nil || !exhaustedHere(in) || heldByProbe(in) {
		return false, nil
	}
	// A condition that is there stays while the next attempt runs. A deletion waits for that attempt, because it cannot be
	// taken back. A condition can, and if it went with each attempt and came back with each failure, the timers of a
	// repairer that escalates would begin anew each time.
	if pod := CurrentPod(in.Node.Record, in.Pods); pod != nil && (pod.Passed() || !carriesCondition(in)) {
		return false, nil // it passed and waits for its release, or its attempt comes first
	}
	if !carriesCondition(in) && (!failureConfirmed(in, now) || in.Node.Leaving != "") {
		return false, nil // another attempt must confirm an old failure; others act already on a node that is leaving
	}
	first := firstGuard(in, ev, now)
	return first == held{}, &first
}

// setHere reports whether the ledger, which is this installation's, shows that it set this condition of the node.
// Another installation may have set it since, at another time.
func setHere(in Input, ev Evidence, c corev1.NodeCondition) bool {
	return slices.ContainsFunc(slices.Concat(ev.Ledger.Entries, ev.Ledger.Earlier), func(e ledger.Entry) bool {
		return e.UID == in.Node.UID && e.Kind == marks.KindCondition && e.Name == string(c.Type) &&
			e.LastSet().Unix() == c.LastTransitionTime.Unix()
	})
}

// exhaustedHere reports whether the node's retries are exhausted, under the present checks and in the present boot. An
// inconclusive attempt changes nothing about that.
func exhaustedHere(in Input) bool {
	spent := budgetOf(in)
	return !spent.first && exhausts(in, spent.attempts) &&
		!otherBoot(in.Node.Record.BootID, in.Node.BootID)
}

// heldByProbe reports whether no control probe passed beside the last failure, although one is needed.
func heldByProbe(in Input) bool {
	r := in.Node.Record
	return r.Held == GuardControlProbe || r.LastOutcome == attempt.Failed && !r.Probed && needsControlProbe(in)
}

// carriesCondition reports whether the node carries the configured condition.
func carriesCondition(in Input) bool {
	want := in.Config.NodeManagement.Remediation.Condition
	return slices.ContainsFunc(in.Node.RemediationConditions, func(c corev1.NodeCondition) bool {
		return c.Type == want.Type && c.Status == want.Status
	})
}

// foreignCondition holds an action whose condition another program already set.
func foreignCondition(in Input, _ Evidence, _ time.Time) string {
	m := in.Config.NodeManagement.Remediation
	if m.Action != config.ActionCondition || !slices.ContainsFunc(in.Node.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == m.Condition.Type && c.Reason != marks.ReasonVerificationFailed
	}) {
		return ""
	}
	return fmt.Sprintf("another program set the condition %s on the node; set remediation.condition.type to one that "+
		"only your repairer uses", m.Condition.Type)
}

// Passed is when the node last passed; zero for never. A time in the future is forged, and ignored.
func Passed(in Input, now time.Time) time.Time {
	if at := ptr.Deref(in.Node.Record.VerifiedTime, time.Time{}); !at.After(now.Add(clockTolerance)) {
		return at
	}
	return time.Time{}
}

// remediationEntry is the ledger's last entry of the node's action of the kind since the node last passed; nil for
// none. All deletions are one action, whatever the owner's kind.
func remediationEntry(in Input, l Ledger, kind string, now time.Time) *ledger.Entry {
	for _, e := range slices.Backward(l.Entries) {
		if e.UID == in.Node.UID && (e.Kind == marks.KindCondition) == (kind == marks.KindCondition) &&
			e.Time.After(Passed(in, now)) {
			return &e
		}
	}
	return nil
}

// RemediationEntered reports whether the ledger already has an action of the kind on the node since it last passed.
func RemediationEntered(in Input, l Ledger, kind string, now time.Time) bool {
	return remediationEntry(in, l, kind, now) != nil
}

// ConditionStays is the event about conditions that the controller cannot remove, and why.
func ConditionStays(types []corev1.NodeConditionType, why string) Event {
	return Event{Reason: EventConditionStays, Key: fmt.Sprint(types), Message: fmt.Sprintf("The node's conditions %v, "+
		"which ask a repairer to act on it, cannot be removed; this is tried again: %s", types, attempt.Text(why))}
}
