package kubectlplugin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// asking sets a condition on failed nodes.
const asking = `{nodeManagement: {deleteFailedNodes: true, reverify: {onConditions: [{type: KernelDeadlock}]}, remediation: {action: condition}}}`

func entry(kind, name string) ledger.Entry {
	return ledger.Entry{Time: metav1.NewTime(*after(-time.Minute)), Node: "n", UID: "uid", Kind: kind, Name: name, Reason: "5 attempts failed"}
}

// asked gives a node our condition, of this type, since a minute ago.
func asked(kind corev1.NodeConditionType) change {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "True", Reason: marks.ReasonVerificationFailed,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))})
	}
}

// What became of an action follows from its node.
func TestStateOfARemediation(t *testing.T) {
	set, deletion := entry(marks.KindCondition, "node-ready/RemediationRequired"), entry("NodeClaim", "c")
	deleting, before, since := exhausted(), passed, passed
	deleting.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "c", Time: now}
	before.VerifiedTime, since.VerifiedTime = after(-time.Hour), after(-30*time.Second)
	deletedAgain := deleting
	deletedAgain.VerifiedTime = since.VerifiedTime
	carries := asked("node-ready/RemediationRequired")
	for name, test := range map[string]struct {
		entry   ledger.Entry
		changes []change
		want    string
	}{
		"set":                      {set, []change{having(exhausted()), carries}, "condition set"},
		"under a later type":       {set, []change{having(exhausted()), asked("example.com/Broken")}, "condition set"},
		"removed":                  {set, []change{having(exhausted())}, "condition removed"},
		"another program's":        {set, []change{having(exhausted()), accusedBy("node-ready/RemediationRequired", now)}, "condition removed"},
		"passed, and failed again": {set, []change{having(since), carries}, "condition recovered"},
		"passed before":            {set, []change{having(before)}, "condition removed"},
		"the owner goes":           {deletion, []change{having(deleting)}, "delete deleting"},
		"the node goes":            {deletion, []change{having(exhausted()), leaving}, "delete deleting"},
		"held meanwhile":           {deletion, []change{having(exhausted())}, "delete withdrawn"},
		"an earlier deletion":      {deletion, []change{having(deletedAgain)}, "delete recovered"},
	} {
		s := observe(configuration(t, asking), makeNode(append(test.changes, gated)...), nil)
		got := remediationsOf([]ledger.Entry{test.entry}, []nodeState{s}, true)
		if len(got) != 1 || string(got[0].Action)+" "+got[0].State != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
	if got := remediationsOf([]ledger.Entry{set, deletion}, nil, true); len(got) != 2 || got[0].Kind != "NodeClaim" || got[0].State != "gone" {
		t.Errorf("nodes that are gone, the newest first: %+v", got)
	}
	if got := remediationsOf([]ledger.Entry{set}, nil, false)[0].State; got != "unknown" {
		t.Errorf("nodes that cannot be read: %s", got)
	}
}

// The first lines of status name the action.
func TestOverviewShowsTheAction(t *testing.T) {
	for settings, want := range map[string]string{
		"{}": "off (nodeManagement.deleteFailedNodes)",
		"{nodeManagement: {deleteFailedNodes: true}}": "delete: 0 of at most 10 in the last hour",
		asking: "condition node-ready/RemediationRequired=True: 0 of at most 10 in the last hour",
		"{nodeManagement: {deleteFailedNodes: true, remediation: {dryRun: true}}}": "dry run: nodes say what would be done: delete",
	} {
		v := &invocation{now: now, cluster: &cluster{client: fake.NewClientset(), component: componentController, controllerNamespace: "own",
			config: configuration(t, settings)}}
		rows := v.overview(t.Context()).rows(v, nil)
		if got := strings.Join(rows[len(rows)-1], " "); got != "Remediations "+want {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
	}
}

// The names that other commands take.
func TestNamesOfRemediations(t *testing.T) {
	all := remediationsOf([]ledger.Entry{entry("NodeClaim", "c"), entry(marks.KindCondition, "a/B")}, nil, true)
	if len(all) != 2 || all[0].objectName() != "node/n" || all[1].objectName() != "nodeclaim/c" {
		t.Errorf("%+v", all)
	}
}

// The node's view shows the suspicion, what a pass cleared, the request and the condition, as text and for scripts.
func TestSuspicionAndConditionAreShown(t *testing.T) {
	transition := *after(-2 * time.Hour)
	deadlock := accusedBy("KernelDeadlock", transition)
	suspicion := &marks.Suspicion{Type: "KernelDeadlock", Status: "True", Transition: &transition, Time: *after(-time.Minute)}
	suspect := passed
	suspect.Suspicion = suspicion
	cleared := passed
	cleared.Cleared = []marks.Suspicion{*suspicion, {Type: "Other", Status: "True", Transition: &transition, Time: now}}
	waiting := passed
	waiting.Suspicion, waiting.RequestTime = &marks.Suspicion{Request: "42", Time: *after(-time.Minute)}, after(-time.Minute)
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
		"a verification for it": {[]change{labelled, requested, having(waiting)},
			[]string{"Request 42: a verification for it started 60s ago (2026-03-01T11:59:00Z)"},
			`"request":{"id":"42","state":"verifying","since":"2026-03-01T11:59:00Z"}`, "request 42"},
		"answered": {[]change{labelled, requested, having(answered), annotated(marks.AnnotationVerifyCompleted, "42"), annotated(marks.AnnotationVerifyResult, "passed")},
			[]string{"Request 42: passed"}, `"request":{"id":"42","state":"answered","result":"passed"}`, ""},
		"a repairer is asked": {[]change{gated, having(exhausted()), asked("node-ready/RemediationRequired")},
			[]string{"Action condition node-ready/RemediationRequired=True, set 60s ago (2026-03-01T11:59:00Z)"},
			`"remediationConditions":[{"type":"node-ready/RemediationRequired","status":"True",`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := observe(configuration(t, asking), makeNode(test.changes...), nil), invocation{now: now}
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
