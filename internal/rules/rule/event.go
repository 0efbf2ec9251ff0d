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
	// EventFailed is ours: the node-readiness-controller reports a failure in the rule's status alone.
	EventFailed = decide.Warning("RuleFailed", "ChangeTaint", decide.RankDecision)
	// The following are on the rule.
	EventRefused     = decide.Warning("RuleRefused", "Refuse", decide.RankDecision)
	EventOverruled   = decide.Warning("RuleOverruled", "Overrule", decide.RankDecision)
	EventStandBack   = decide.Warning("StandingBack", "StandBack", decide.RankDecision)
	EventServed      = decide.Normal("Serving", "Serve", decide.RankDecision)
	EventOtherWriter = decide.Warning("OtherController", "Serve", decide.RankDecision)
	// EventLimited reports that rules.maxClosedPercent leaves nodes open that the rule would close again.
	EventLimited = decide.Warning("ClosingLimited", "AddTaint", decide.RankDecision)
)

func event(reason decide.Reason, key, format string, a ...any) decide.Event {
	return decide.Event{Reason: reason, Key: key, Message: fmt.Sprintf(format, a...)}
}

// ActionEvent is the event on the node of what a rule did at the node's resourceVersion. ok is false if there is none.
func ActionEvent(a Action, resourceVersion string) (e decide.Event, ok bool) {
	key := a.Rule.UID + "/" + resourceVersion
	switch {
	case a.Operation == Add:
		return event(EventTaintAdded, key, "Taint '%s' added by rule '%s'", a.Taint, a.Rule.Name), true
	case a.Operation == Remove && a.Rule.Name == "":
		return event(EventTaintRemoved, key, "Taint '%s' removed since its rule no longer exists", a.Taint), true
	case a.Operation == Remove:
		return event(EventTaintRemoved, key, "Taint '%s' removed by rule '%s'", a.Taint, a.Rule.Name), true
	case a.Operation == Adopt:
		return event(EventTaintAdopted, a.Rule.UID, "Taint '%s' is now managed by rule '%s'", a.Taint, a.Rule.Name), true
	}
	return decide.Event{}, false
}

// FailedEvent is the event on the node about a change that a rule could not make. It is emitted once for each rule.
func FailedEvent(a Action, message string) decide.Event {
	return event(EventFailed, a.Rule.UID, "Rule '%s' cannot be applied, taint '%s' (%s): %s",
		a.Rule.Name, a.Taint, a.Operation, message)
}

// RefusedEvent says why a rule is refused.
func RefusedEvent(r *Rule) decide.Event {
	return event(EventRefused, fmt.Sprintf("%d/%s", r.Generation, r.Invalid), "The rule is refused: %s", r.Invalid)
}

// OverruledEvent says that an older rule decides about the taint of a younger one.
func OverruledEvent(r, by *Rule) decide.Event {
	return event(EventOverruled, by.UID, "Rule '%s' is older, has the same taint '%s' and may select the same nodes. "+
		"Only the older rule decides about them; give one of the two another taint or selector", by.Name, r.Taint.ID())
}

// StandBackEvent says that another controller serves the rule.
func StandBackEvent(why string) decide.Event {
	return event(EventStandBack, why, "The rule is not served here: %s", why)
}

// UnavailableEvent reports why a rule is not served: the API server rejects a request that serving needs.
func UnavailableEvent(why string) decide.Event {
	return event(decide.EventRulesUnavailable, why, "The rule is not served: %s", why)
}

// OtherWriterEvent says that another controller writes the rule's status too, at the rule's resourceVersion.
func OtherWriterEvent(manager, resourceVersion string) decide.Event {
	return event(EventOtherWriter, resourceVersion, "%s also writes the status of this rule. Two controllers that "+
		"serve the same rules undo each other's changes; stop one of them, or set rules.enabled to false here", manager)
}

// ClosingLimitedEvent says that rules.maxClosedPercent leaves nodes open. key tells one such time from another.
func ClosingLimitedEvent(t *Tally, percent int32, key string) decide.Event {
	return event(EventLimited, key, "%s", limitMessage(t, percent))
}
