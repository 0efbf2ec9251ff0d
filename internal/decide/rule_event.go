package decide

import "fmt"

// Reasons of events about rules. Those on Nodes, with their texts, are the node-readiness-controller's.
const (
	EventTaintAdded   = "TaintAdded"
	EventTaintRemoved = "TaintRemoved"
	EventTaintAdopted = "TaintAdopted"
	// EventRuleFailed is ours: the node-readiness-controller says so in the rule's status alone.
	EventRuleFailed = "RuleFailed"
	// The following are on the rule.
	EventRuleRefused     = "RuleRefused"
	EventRuleOverruled   = "RuleOverruled"
	EventRuleStandBack   = "StandingBack"
	EventRuleServed      = "Serving"
	EventRuleOtherWriter = "OtherController"
)

// RuleEvent is the event on the node of what a rule did, on the node's resourceVersion. ok is false for what is none.
func RuleEvent(a RuleAct, resourceVersion string) (e Event, ok bool) {
	taint, key := a.Rule.Taint.ID(), a.Rule.UID+"/"+resourceVersion
	switch a.Operation {
	case RuleAdd:
		return Event{Reason: EventTaintAdded, Key: key, Message: fmt.Sprintf("Taint '%s' added by rule '%s'", taint, a.Rule.Name)}, true
	case RuleRemove:
		return Event{Reason: EventTaintRemoved, Key: key, Message: fmt.Sprintf("Taint '%s' removed by rule '%s'", taint, a.Rule.Name)}, true
	case RuleAdopt:
		return Event{Reason: EventTaintAdopted, Key: a.Rule.UID, Message: fmt.Sprintf("Taint '%s' is now managed by rule '%s'", taint, a.Rule.Name)}, true
	}
	return Event{}, false
}

// RuleFailedEvent is the event on the node of what a rule could not do. It is emitted once for each rule.
func RuleFailedEvent(a RuleAct, message string) Event {
	return Event{Reason: EventRuleFailed, Key: a.Rule.UID, Message: fmt.Sprintf("Rule '%s' cannot be carried out, taint '%s' (%s): %s", a.Rule.Name, a.Rule.Taint.ID(), a.Operation, message)}
}

// RefusedEvent says why a rule is not obeyed.
func RefusedEvent(r *Rule) Event {
	return Event{Reason: EventRuleRefused, Key: fmt.Sprintf("%d/%s", r.Generation, r.Fault), Message: "The rule is not obeyed: " + r.Fault}
}

// OverruledEvent says that an older rule decides about the taint of a younger one.
func OverruledEvent(r, by *Rule) Event {
	return Event{Reason: EventRuleOverruled, Key: by.UID, Message: fmt.Sprintf(
		"Rule '%s' is older, names the same taint '%s' and may select the same nodes: it alone decides on those; give one of the two another taint or selector", by.Name, r.Taint.ID())}
}

// StandBackEvent says that another controller serves the rule.
func StandBackEvent(why string) Event {
	return Event{Reason: EventRuleStandBack, Key: why, Message: "The rule is not served here: " + why}
}
