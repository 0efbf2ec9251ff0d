package rule

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Every event has a type and an action, because the API server refuses it otherwise. Users rely on the reasons and
// types.
func TestEventsAreComplete(t *testing.T) {
	r, tally := &Rule{Name: "r", UID: "u", Invalid: "spec"}, &Tally{}
	action := func(o Operation) decide.Event {
		e, ok := ActionEvent(Action{Rule: r, Operation: o}, "1")
		if !ok {
			t.Errorf("%s has no event", o)
		}
		return e
	}
	for _, c := range []struct {
		event        decide.Event
		reason, kind string
	}{
		{action(Add), "TaintAdded", corev1.EventTypeNormal},
		{action(Remove), "TaintRemoved", corev1.EventTypeNormal},
		{action(Adopt), "TaintAdopted", corev1.EventTypeNormal},
		{FailedEvent(Action{Rule: r}, "why"), "RuleFailed", corev1.EventTypeWarning},
		{RefusedEvent(r), "RuleRefused", corev1.EventTypeWarning},
		{OverruledEvent(r, r), "RuleOverruled", corev1.EventTypeWarning},
		{StandBackEvent("why"), "StandingBack", corev1.EventTypeWarning},
		{UnavailableEvent("why"), "RulesUnavailable", corev1.EventTypeWarning},
		{OtherWriterEvent("manager", "1"), "OtherController", corev1.EventTypeWarning},
		{ClosingLimitedEvent(tally, 10, "key"), "ClosingLimited", corev1.EventTypeWarning},
		{decide.Event{Reason: EventServed, Message: "m", Key: "k"}, "Serving", corev1.EventTypeNormal},
	} {
		e := c.event
		if e.Reason.Name != c.reason || e.Reason.Type != c.kind {
			t.Errorf("%s %s, want %s %s", e.Reason.Type, e.Reason.Name, c.kind, c.reason)
		}
		if e.Reason.Action == "" || e.Message == "" || e.Key == "" {
			t.Errorf("%s is incomplete: %+v", c.reason, e)
		}
	}
	if _, ok := ActionEvent(Action{Rule: r, Operation: Complete}, "1"); ok {
		t.Error("completion has an event of its own")
	}
}
