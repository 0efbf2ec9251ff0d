package rule

import (
	"fmt"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Reasons of events about rules. Those on Nodes, with their texts, are the node-readiness-controller's.
var (
	EventTaintAdded   = decide.Normal("TaintAdded", "AddTaint", decide.RankOutcome)
	EventTaintRemoved = decide.Normal("TaintRemoved", "RemoveTaint", decide.RankOutcome)
	EventTaintAdopted = decide.Normal("TaintAdopted", "AdoptTaint", decide.RankProgress)
	// EventFailed is ours: the node-readiness-controller says so in the rule's status alone.
	EventFailed = decide.Warning("RuleFailed", "ChangeTaint", decide.RankDecision)
	// The following are on the rule.
	EventRefused     = decide.Warning("RuleRefused", "Refuse", decide.RankDecision)
	EventOverruled   = decide.Warning("RuleOverruled", "Overrule", decide.RankDecision)
	EventStandBack   = decide.Warning("StandingBack", "StandBack", decide.RankDecision)
	EventServed      = decide.Normal("Serving", "Serve", decide.RankDecision)
	EventOtherWriter = decide.Warning("OtherController", "Serve", decide.RankDecision)
	// EventLimited says that rules.maxClosedPercent leaves nodes open that the rule would close again.
	EventLimited = decide.Warning("ClosingLimited", "AddTaint", decide.RankDecision)
)

// ActEvent is the event on the node of what a rule did, on the node's resourceVersion. ok is false for what is none.
func ActEvent(a Act, resourceVersion string) (e decide.Event, ok bool) {
	taint, key := a.Taint, a.Rule.UID+"/"+resourceVersion
	switch a.Operation {
	case Add:
		return decide.Event{Reason: EventTaintAdded, Key: key, Message: fmt.Sprintf("Taint '%s' added by rule '%s'", taint, a.Rule.Name)}, true
	case Remove:
		by := fmt.Sprintf("by rule '%s'", a.Rule.Name)
		if a.Rule.Name == "" {
			by = "since its rule no longer exists"
		}
		return decide.Event{Reason: EventTaintRemoved, Key: key, Message: fmt.Sprintf("Taint '%s' removed %s", taint, by)}, true
	case Adopt:
		return decide.Event{Reason: EventTaintAdopted, Key: a.Rule.UID, Message: fmt.Sprintf("Taint '%s' is now managed by rule '%s'", taint, a.Rule.Name)}, true
	}
	return decide.Event{}, false
}

// FailedEvent is the event on the node of what a rule could not do. It is emitted once for each rule.
func FailedEvent(a Act, message string) decide.Event {
	return decide.Event{Reason: EventFailed, Key: a.Rule.UID, Message: fmt.Sprintf("Rule '%s' cannot be carried out, taint '%s' (%s): %s", a.Rule.Name, a.Taint, a.Operation, message)}
}

// RefusedEvent says why a rule is not obeyed.
func RefusedEvent(r *Rule) decide.Event {
	return decide.Event{Reason: EventRefused, Key: fmt.Sprintf("%d/%s", r.Generation, r.Invalid), Message: "The rule is not obeyed: " + r.Invalid}
}

// OverruledEvent says that an older rule decides about the taint of a younger one.
func OverruledEvent(r, by *Rule) decide.Event {
	return decide.Event{Reason: EventOverruled, Key: by.UID, Message: fmt.Sprintf(
		"Rule '%s' is older, names the same taint '%s' and may select the same nodes: it alone decides on those; give one of the two another taint or selector", by.Name, r.Taint.ID())}
}

// StandBackEvent says that another controller serves the rule.
func StandBackEvent(why string) decide.Event {
	return decide.Event{Reason: EventStandBack, Key: why, Message: "The rule is not served here: " + why}
}

// UnavailableEvent says why a rule is not served: what that takes the API server refuses.
func UnavailableEvent(why string) decide.Event {
	return decide.Event{Reason: decide.EventRulesUnavailable, Key: why, Message: "The rule is not served: " + why}
}
