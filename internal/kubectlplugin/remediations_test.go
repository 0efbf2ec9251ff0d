package kubectlplugin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// ladder are a condition, an object and a deletion, in this order.
const ladder = `{nodeManagement: {deleteFailedNodes: true, reverify: {onConditions: [{type: KernelDeadlock}]}, remediation: {actions: [
	{condition: {}, waitSeconds: 600}, {object: {template: {apiVersion: batch/v1, kind: Job, metadata: {namespace: repair}}}}, {delete: {}}]}}}`

// acted is an exhausted node on which the condition was set and then the object created, in these states, a minute ago.
func acted(states ...string) marks.Record {
	r := exhausted()
	for i, state := range states {
		a := marks.Remediation{Action: int32(i), State: state, Time: *after(-time.Minute), BootID: "boot", Sequence: r.Sequence}
		if i == 0 {
			a.Condition, a.Status, a.Reason = "node-ready/RemediationRequired", "True", "VerificationFailed"
		} else {
			a.APIVersion, a.Kind, a.Namespace, a.Name = "batch/v1", "Job", "repair", "remediate-n"
		}
		r.Remediations = append(r.Remediations, a)
	}
	return r
}

func entry(kind, name string) ledger.Entry {
	return ledger.Entry{Time: metav1.NewTime(*after(-time.Minute)), Node: "n", UID: "uid", Kind: kind, Name: name, Reason: "5 attempts failed"}
}

// What became of an action follows from the record of its node.
func TestStateOfARemediation(t *testing.T) {
	condition, object, deletion := entry(marks.KindCondition, "node-ready/RemediationRequired"), entry("Job", "repair/remediate-n"), entry("NodeClaim", "c")
	again := acted(marks.RemediationStarted)
	again.Sequence, again.Attempts = again.Sequence+2, 2
	failedAgain := acted(marks.RemediationStarted)
	failedAgain.Sequence += 5
	due := acted(marks.RemediationStarted)
	due.Remediations[0].Time = *after(-time.Hour)
	deleting := acted(marks.RemediationEnded)
	deleting.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "c", Time: now}
	before := passed
	before.VerifiedTime = after(-time.Hour)
	since := passed
	since.VerifiedTime = after(-30 * time.Second)
	earlier := condition // of the round before
	earlier.Time = metav1.NewTime(*after(-time.Hour))
	failing := acted(marks.RemediationStarted)
	failing.VerifiedTime = after(-30 * time.Minute)
	gone := deletion
	gone.Time = earlier.Time
	going := deleting
	going.VerifiedTime = after(-30 * time.Minute)
	for name, test := range map[string]struct {
		entry         ledger.Entry
		record        marks.Record
		action, state string
		waits         bool
	}{
		"intended":               {condition, acted(marks.RemediationIntended), "condition", "intended", false},
		"waited for":             {condition, acted(marks.RemediationStarted), "condition", "waiting", true},
		"the wait is over":       {condition, due, "condition", "verifying", false},
		"the checks run again":   {condition, again, "condition", "verifying", false},
		"they failed again":      {condition, failedAgain, "condition", "failed", false},
		"to be taken back":       {condition, acted(marks.RemediationReverting), "condition", "reverting", false},
		"the next one follows":   {condition, acted(marks.RemediationEnded, marks.RemediationStarted), "condition", "ended", false},
		"the object":             {object, acted(marks.RemediationEnded, marks.RemediationStarted), "object", "waiting", true},
		"the node passed":        {object, since, "object", "recovered", false},
		"it passed before":       {object, before, "object", "withdrawn", false},
		"a guard began to hold":  {condition, exhausted(), "condition", "withdrawn", false},
		"an earlier condition":   {earlier, failing, "condition", "recovered", false},
		"an earlier deletion":    {gone, going, "delete", "recovered", false},
		"the owner goes":         {deletion, deleting, "delete", "deleting", false},
		"the deletion was ended": {deletion, exhausted(), "delete", "withdrawn", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := observe(configuration(t, ladder), makeNode(gated, having(test.record)), nil)
			all := remediationsOf([]ledger.Entry{test.entry}, []nodeState{s}, true, now)
			at := slices.IndexFunc(all, func(r remediationView) bool { return r.Reason != "" })
			if got := all[at]; got.Action != test.action || got.State != test.state || (got.Until != nil) != test.waits {
				t.Errorf("action %s, state %s, until %v; want %s, %s, %v", got.Action, got.State, got.Until, test.action, test.state, test.waits)
			}
			want := max(1, len(test.record.Remediations))
			if name == "an earlier condition" { // the record has one of after the pass
				want++
			}
			if len(all) != want && test.action != "delete" {
				t.Errorf("%d actions, want %d: %+v", len(all), want, all)
			}
		})
	}
	if got := remediationsOf([]ledger.Entry{condition}, nil, true, now)[0].State; got != "gone" {
		t.Errorf("a node that is gone: %s", got)
	}
	if got := remediationsOf([]ledger.Entry{condition}, nil, false, now)[0].State; got != "unknown" {
		t.Errorf("nodes that cannot be read: %s", got)
	}
}

// The names that other commands take.
func TestNamesOfRemediations(t *testing.T) {
	for want, e := range map[string]ledger.Entry{"node/n": entry(marks.KindCondition, "a/B"), "job/remediate-n": entry("Job", "repair/remediate-n"),
		"nodeclaim/c": entry("NodeClaim", "c"), "widget/w": entry("Widget", "w")} {
		if got := (remediationView{Entry: e, Action: actionOf(e.Kind)}).objectName(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The node's view shows the suspicion, what a pass cleared, the request and the actions, as text and for scripts.
func TestSuspicionAndActionsAreShown(t *testing.T) {
	transition := *after(-2 * time.Hour)
	deadlock := accusedBy("KernelDeadlock", transition)
	suspicion := &marks.Suspicion{Type: "KernelDeadlock", Status: "True", Transition: &transition, Time: *after(-time.Minute)}
	suspect := passed
	suspect.Suspicion = suspicion
	cleared := passed
	cleared.Cleared = []marks.Suspicion{*suspicion, {Type: "Other", Status: "True", Transition: &transition, Time: now}}
	asked := passed
	asked.Suspicion, asked.RequestTime = &marks.Suspicion{Request: "42", Time: *after(-time.Minute)}, after(-time.Minute)
	answered := passed
	answered.Request = "42"
	requested := annotated(marks.AnnotationVerifyRequested, "42")
	for name, test := range map[string]struct {
		changes []change
		facts   []string
		json    string
		why     string
	}{
		"suspect": {[]change{labelled, deadlock, having(suspect)},
			[]string{"Suspect condition KernelDeadlock=True since 120m ago (2026-03-01T10:00:00Z); verified again since 60s ago (2026-03-01T11:59:00Z)"},
			`"suspicion":{"condition":"KernelDeadlock","status":"True","transition":"2026-03-01T10:00:00Z","since":"2026-03-01T11:59:00Z"}`,
			"suspect: KernelDeadlock=True"},
		"cleared": {[]change{labelled, deadlock, having(cleared)},
			[]string{"Cleared condition KernelDeadlock=True of 120m ago (2026-03-01T10:00:00Z), by a pass 60s ago (2026-03-01T11:59:00Z); " +
				"the same transition makes the node suspect again in 59m"},
			`"cleared":[{"condition":"KernelDeadlock","status":"True","transition":"2026-03-01T10:00:00Z","since":"2026-03-01T11:59:00Z","again":"2026-03-01T12:59:00Z"}]`, ""},
		"requested": {[]change{labelled, requested, having(passed)},
			[]string{"Request 42: no verification for it has started yet; at most one starts in a minute"}, `"request":{"id":"42","state":"open"}`, "request 42"},
		"a verification for it": {[]change{labelled, requested, having(asked)},
			[]string{"Request 42: a verification for it started 60s ago (2026-03-01T11:59:00Z)"},
			`"request":{"id":"42","state":"verifying","since":"2026-03-01T11:59:00Z"}`, "request 42"},
		"answered": {[]change{labelled, requested, having(answered), annotated(marks.AnnotationVerifyCompleted, "42"), annotated(marks.AnnotationVerifyResult, "passed")},
			[]string{"Request 42: passed"}, `"request":{"id":"42","state":"answered","result":"passed"}`, ""},
		"acted": {[]change{gated, having(acted(marks.RemediationEnded, marks.RemediationStarted))},
			[]string{"Action condition node-ready/RemediationRequired, decided on 60s ago (2026-03-01T11:59:00Z): ended",
				"Action object Job/repair/remediate-n, decided on 60s ago (2026-03-01T11:59:00Z): waiting, the checks run again in 9m (2026-03-01T12:09:00Z), or after a reboot"},
			`"kind":"Job","name":"repair/remediate-n","action":"object","state":"waiting","until":"2026-03-01T12:09:00Z"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := observe(configuration(t, ladder), makeNode(test.changes...), nil), invocation{now: now}
			n := s.summary(now)
			var facts []string
			for _, row := range v.facts(s, n) {
				facts = append(facts, strings.Join(row, " "))
			}
			for _, want := range test.facts {
				if !slices.Contains(facts, want) {
					t.Errorf("no line %q in\n%s", want, strings.Join(facts, "\n"))
				}
			}
			object, err := json.Marshal(n)
			if err != nil || !strings.Contains(string(object), test.json) {
				t.Errorf("no %s in %s", test.json, object)
			}
			if n.suspect() != test.why {
				t.Errorf("why %q, want %q", n.suspect(), test.why)
			}
		})
	}
	if got := suspects([]summary{{Suspicion: &suspicionView{Condition: "B"}}, {Suspicion: &suspicionView{Condition: "A"}, Request: &requestView{State: requestOpen}},
		{Suspicion: &suspicionView{Condition: "B"}}, {Request: &requestView{State: requestAnswered}}}); got != "1 by A, 2 by B, 1 by request" {
		t.Errorf("suspects: %s", got)
	}
}
