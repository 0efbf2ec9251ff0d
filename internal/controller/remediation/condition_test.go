package remediation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// asks asks a repairer to act, after the first failure.
const asks = `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false, "action": "condition"}}}`

// required reports whether the node has the condition that asks for its remediation.
func required(w *world.World, n *corev1.Node) bool {
	w.Helper()
	have, _ := w.Get(n.Name)
	return have != nil && slices.ContainsFunc(have.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == "node-ready/RemediationRequired" && c.Status == corev1.ConditionTrue && c.Reason == marks.ReasonVerificationFailed
	})
}

// A node that fails for good gets the condition, and loses it when it passes, whatever disturbs a write.
func TestConditionWritesDisturbed(t *testing.T) {
	fails := func(w *world.World) *corev1.Node {
		w.Exit = func(*corev1.Pod) int { return 1 }
		return w.Node("n")
	}
	failed := world.Result{Gated: true, Record: "failed ChecksFailed held= verified=false", Sequence: 1, Attempts: 1, Condition: "False RetriesExhausted", Ledger: 1}
	world.DisturbEveryWrite(t, map[string]world.Path{
		"set": {Settings: asks, Begin: fails,
			Check: func(w *world.World, n *corev1.Node) {
				if !required(w, n) {
					w.Error("the condition is missing")
				}
			},
			Most:   world.Requests{Reads: 9, Lists: 33},
			Want:   failed,
			Events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventExhausted: 1, decide.EventRemediationStarted: 1}},
		"removed after a pass": {Settings: asks, Rounds: 3,
			Begin: func(w *world.World) *corev1.Node {
				n := w.Node("n")
				w.Exit = func(*corev1.Pod) int { // the repairer helps
					if required(w, n) {
						return 0
					}
					return 1
				}
				return n
			},
			Check: func(w *world.World, n *corev1.Node) {
				if required(w, n) {
					w.Error("the condition stays")
				}
			},
			Most:   world.Requests{Reads: 14, Lists: 42},
			Want:   world.Result{Labelled: true, Record: "passed  held= verified=true", Sequence: 2, Condition: "True ChecksPassed", Attempts: 1, Ledger: 1},
			Events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventExhausted: 1, decide.EventPassed: 1, decide.EventRemediationStarted: 1}},
	})
}

// With a limit of one action an hour, a node that fails for ten minutes gets the condition once, and the ledger is
// written once.
func TestConditionIsSetOnce(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, strings.Replace(asks, `"controlProbe": false`, `"controlProbe": false, "maxDeletionsPerHour": 1`, 1))
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Node("n")
	l := w.Lead()
	if _, ok := l.Until(time.Minute, func() bool { return required(w, n) }); !ok {
		t.Fatalf("the condition is not set: record %+v", w.Record(n.Name))
	}
	before := len(l.Writes)
	for end := w.Clock.Now().Add(10 * time.Minute); w.Clock.Now().Before(end); {
		l.Deliver()
		wait := l.ReconcileAll()
		w.Kubelets(l)
		if !required(w, n) {
			t.Fatalf("the condition goes, held by %q", w.Record(n.Name).Held)
		}
		w.Clock.Advance(min(max(wait, time.Second), 30*time.Second))
	}
	for _, write := range l.Writes[before:] {
		if strings.Contains(write, "ConfigMap") {
			t.Errorf("the ledger is written again: %v", l.Writes[before:])
		}
	}
	if len(w.Ledger()) != 1 || w.Record(n.Name).Held != "" {
		t.Errorf("ledger %v, record %+v", w.Ledger(), w.Record(n.Name))
	}
}

// A person who pauses remediation stops a repairer, too: the condition is removed, and set again after the pause. The
// ledger has it once.
func TestPauseRemovesTheCondition(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, asks)
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Node("n")
	l := w.Lead()
	reaches := func(what string, done func() bool) {
		t.Helper()
		if _, ok := l.Until(5*time.Minute, done); !ok {
			t.Fatalf("%s: record %+v", what, w.Record(n.Name))
		}
	}
	reaches("the condition is set", func() bool { return required(w, n) })
	w.AnnotateLedger(ledger.AnnotationPaused, "for a while")
	reaches("it is removed", func() bool { return !required(w, n) && w.Record(n.Name).Held == decide.GuardPaused })
	w.AnnotateLedger(ledger.AnnotationPaused, "false")
	l = w.Lead() // the one before has read the ledger a moment ago
	reaches("it is set again", func() bool { return required(w, n) && w.Record(n.Name).Held == "" })
	if len(w.Ledger()) != 1 {
		t.Errorf("ledger %v", w.Ledger())
	}
	// The ledger has the time of the second condition, so it goes from a node that is not selected any more.
	w.Configure(asks, `{"nodeManagement": {"nodeSelector": {"matchLabels": {"served": "here"}}}}`)
	l = w.Lead()
	reaches("it goes with the selector", func() bool { return !required(w, n) })
}

// A node moves from one installation to another. The second sets the condition again, at another time, and the first
// leaves it: its ledger has the time of its own.
func TestConditionOfAnotherInstallationStays(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, asks)
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Node("n")
	l := w.Lead()
	if _, ok := l.Until(time.Minute, func() bool { return required(w, n) }); !ok {
		t.Fatalf("the condition is not set: record %+v", w.Record(n.Name))
	}
	w.Must(w.API.Status().Patch(w.Ctx, n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"node-ready/RemediationRequired","lastTransitionTime":%q}]}}`,
		w.Clock.Now().Add(30*time.Second).UTC().Format(time.RFC3339)))))
	w.Configure(asks, `{"nodeManagement": {"nodeSelector": {"matchLabels": {"served": "here"}}}}`)
	l = w.Lead()
	l.RunFor(5 * time.Minute)
	if !required(w, n) {
		t.Error("the other installation's condition is removed")
	}
}

// Checks that were wrong exhaust a node. A person pauses remediation, corrects the checks, and resumes: nothing is
// deleted before an attempt under the corrected checks has failed.
func TestCorrectedChecksDeleteNothing(t *testing.T) {
	for name, exit := range map[string]int{"the node passes them": 0, "the node fails them": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const deletes = `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false}}}`
			w := world.Begin(t, deletes)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n := w.Node("n")
			w.AnnotateLedger(ledger.AnnotationPaused, "the checks are wrong")
			l := w.Lead()
			l.Until(time.Minute, func() bool { return w.Record(n.Name).Held == decide.GuardPaused })
			w.Configure(deletes, `{"worker": {"dnsTestDomains": ["corrected.example"]}}`)
			w.AnnotateLedger(ledger.AnnotationPaused, "false")
			sequence := w.Record(n.Name).Sequence
			w.Exit = func(*corev1.Pod) int {
				if have, _ := w.Get(n.Name); have == nil || len(w.Ledger()) > 0 {
					t.Errorf("the node is deleted before an attempt under the corrected checks has ended: %t, ledger %v", have == nil, w.Ledger())
				}
				return exit
			}
			l = w.Lead()
			l.Until(5*time.Minute, func() bool { have, _ := w.Get(n.Name); return have == nil || w.Record(n.Name).LastOutcome == "passed" })
			have, f := w.Get(n.Name)
			if (have == nil) != (exit == 1) || have != nil && f.Record.Sequence <= sequence {
				t.Errorf("node %v, record %+v", have != nil, f.Record)
			}
		})
	}
}

// A condition that the API server does not let the controller remove is reported once. It holds up neither the
// verification of the node nor that of others, and goes once its removal is allowed.
func TestRefusedRemovalHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, asks)
	n := w.Node("n")
	w.Exit = func(*corev1.Pod) int {
		if required(w, n) {
			return 0
		}
		return 1
	}
	refuse := true
	l := w.Lead(func(l *world.Leader) {
		l.Forbid = func(write string) bool {
			return refuse && write == "patch Node/status" && w.Record(n.Name).LastOutcome == "passed"
		}
	})
	l.Until(30*time.Minute, func() bool { return w.Record(n.Name).LastOutcome == "passed" })
	l.RunFor(2 * time.Minute)
	if _, f := w.Get(n.Name); f.Gated || !f.Labelled || !required(w, n) {
		t.Errorf("gated %t, condition %t, record %+v", f.Gated, required(w, n), f.Record)
	}
	if count := w.EventCount(n.Name, decide.EventConditionStays); count != 1 {
		t.Errorf("%d events about the condition that stays", count)
	}
	refuse = false
	if _, ok := l.Until(2*time.Minute, func() bool { return !required(w, n) }); !ok {
		t.Error("the condition stays after its removal is allowed")
	}
}

// refusing refuses patches of a status that contain a text.
type refusing struct {
	client.Client
	text string // nothing is refused where it is empty
	code int    // of the answer; 0 for no answer
}

func (r refusing) Status() client.SubResourceWriter {
	return refusingStatus{r.Client.Status(), r}
}

type refusingStatus struct {
	client.SubResourceWriter
	refusing
}

func (r refusingStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	switch data, err := p.Data(o); {
	case err != nil:
		return err
	case r.text == "" || !strings.Contains(string(data), r.text):
	case r.code == 0:
		return io.ErrUnexpectedEOF
	default:
		return world.Refusal(r.code, "patch Node/status")
	}
	return r.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// After a change of the condition's type, neither the removal of the earlier one waits for the configured one to be
// set, nor that one for the removal. And one removal that is refused holds no other one up.
func TestConditionTypesWaitForNoneOther(t *testing.T) {
	const earlier = "example.com/Earlier"
	has := func(w *world.World, n *corev1.Node, of corev1.NodeConditionType) bool {
		have, _ := w.Get(n.Name)
		return slices.ContainsFunc(have.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == of })
	}
	for name, tc := range map[string]struct {
		refuses     string
		earlier, is bool // which are on the node meanwhile
	}{
		"the removal is refused": {refuses: `"$patch":"delete","type":"` + earlier, earlier: true, is: true},
		"the setting is refused": {refuses: `"status":"True"`},
		"both are":               {refuses: "{", earlier: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, asks)
			w.Configure(asks, `{"nodeManagement": {"remediation": {"condition": {"type": "`+earlier+`"}}}}`)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n, l := w.Node("n"), w.Lead()
			if _, ok := l.Until(time.Minute, func() bool { return has(w, n, earlier) }); !ok {
				t.Fatalf("the condition is not set: record %+v", w.Record(n.Name))
			}
			w.Configure(asks)
			lead := func(refuses string) { // one that has not read the ledger a moment ago
				l := w.Lead()
				l.Remediations.Writer = refusing{l.Remediations.Writer, refuses, 403}
				l.RunFor(2 * time.Minute)
			}
			lead(tc.refuses)
			if has(w, n, earlier) != tc.earlier || required(w, n) != tc.is {
				t.Errorf("the earlier one is there: %t, the configured one: %t", has(w, n, earlier), required(w, n))
			}
			want := map[bool]int{true: 1}[tc.earlier]
			if count := w.EventCount(n.Name, decide.EventConditionStays); count != want {
				t.Errorf("%d events about a condition that stays, want %d", count, want)
			}
			w.AnnotateLedger(ledger.AnnotationPaused, "for a while")
			lead(tc.refuses)
			if has(w, n, earlier) != tc.earlier || required(w, n) {
				t.Errorf("in a pause, the earlier one is there: %t, the configured one: %t", has(w, n, earlier), required(w, n))
			}
			w.AnnotateLedger(ledger.AnnotationPaused, "false")
			lead("")
			if has(w, n, earlier) || !required(w, n) || len(w.Ledger()) != 1 {
				t.Errorf("once all is allowed, the earlier one is there: %t, the configured one: %t, ledger %v", has(w, n, earlier), required(w, n), w.Ledger())
			}
		})
	}
}

// A removal that fails, as with a webhook whose operator is gone, holds up nothing else of the look: the record shows the
// pause that asks for it. Once it has failed for a minute, the node's condition and an event say so, until it succeeds.
func TestFailingRemovalIsReported(t *testing.T) {
	const removal = `"$patch":"delete"`
	for name, tc := range map[string]struct {
		code     int
		lasts    time.Duration
		reported bool
	}{
		"refused":             {code: 422, lasts: 90 * time.Second, reported: true},
		"a failing webhook":   {code: 500, lasts: 5 * time.Minute, reported: true},
		"an overloaded one":   {code: 503, lasts: 5 * time.Minute, reported: true},
		"too many requests":   {code: 429, lasts: 5 * time.Minute, reported: true},
		"no answer":           {lasts: 5 * time.Minute, reported: true},
		"for a moment":        {code: 500, lasts: 30 * time.Second},
		"another writer wins": {code: 409, lasts: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, asks)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n, l := w.Node("n"), w.Lead()
			if _, ok := l.Until(time.Minute, func() bool { return required(w, n) }); !ok {
				t.Fatalf("the condition is not set: record %+v", w.Record(n.Name))
			}
			w.AnnotateLedger(ledger.AnnotationPaused, "for a while")
			l = w.Lead()
			writer := l.Remediations.Writer
			l.Remediations.Writer = refusing{writer, removal, tc.code}
			l.RunFor(tc.lasts)
			if held := w.Record(n.Name).Held; !required(w, n) || (held == decide.GuardPaused) != (tc.code != 409) {
				t.Errorf("the condition is there: %t, the record is held by %q", required(w, n), held)
			}
			said := strings.Contains(w.ConditionText(n.Name), "remediation failed: ")
			if events := w.EventCount(n.Name, decide.EventConditionStays); said != tc.reported || events != map[bool]int{true: 1}[tc.reported] {
				t.Errorf("reported: %d events, %s", events, w.ConditionText(n.Name))
			}
			l.Remediations.Writer = writer
			l.RunFor(2 * time.Minute)
			if required(w, n) || strings.Contains(w.ConditionText(n.Name), "remediation failed: ") {
				t.Errorf("the condition is there: %t, %s", required(w, n), w.ConditionText(n.Name))
			}
		})
	}
}

// unserved are rules that concern every node and cannot be served.
type unserved struct{}

func (unserved) Plan(*corev1.Node) (rule.Plan, func()) {
	return rule.Plan{Unavailable: "why"}, func() {}
}
func (unserved) RecordWrite(*corev1.Node, rule.Plan)          {}
func (unserved) RecordFailure(*corev1.Node, rule.Plan, error) {}
func (unserved) Concern(*corev1.Node) bool                    { return true }
func (unserved) ForgetNode(string)                            {}
func (unserved) Confirm(context.Context, client.Reader, rule.Plan, bool) (bool, error) {
	return true, nil
}

// While a rule that concerns a node cannot be served, a new leader still derives whether the node should have the
// condition. It opens no gate meanwhile, and records no result.
func TestConditionGoesWhileRulesCannotBeServed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world.World, *corev1.Node)
		forbid string
		stays  bool
	}{
		"nothing changes": {change: func(*world.World, *corev1.Node) {}, stays: true},
		"paused":          {change: func(w *world.World, _ *corev1.Node) { w.AnnotateLedger(ledger.AnnotationPaused, "for a while") }},
		"do-not-delete":   {change: func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, marks.AnnotationDoNotDelete, "true") }},
		"skip":            {change: func(w *world.World, n *corev1.Node) { w.Annotate(n.Name, marks.AnnotationSkip, "true") }},
		"deletions off": {change: func(w *world.World, _ *corev1.Node) {
			w.Configure(asks, `{"nodeManagement": {"deleteFailedNodes": false}}`)
		}},
		"released at its deadline": {change: func(w *world.World, _ *corev1.Node) { // if it were not for the rule
			w.Configure(asks, `{"reconciliation": {"maxRetries": 3, "onDeadline": "release", "verificationDeadlineSeconds": 60}}`)
		}, forbid: "patch Node/status", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, asks)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n, l := w.Node("n"), w.Lead()
			if _, ok := l.Until(time.Minute, func() bool { return required(w, n) }); !ok {
				t.Fatalf("the condition is not set: record %+v", w.Record(n.Name))
			}
			tc.change(w, n)
			l = w.Lead(func(l *world.Leader) { l.Forbid = func(write string) bool { return write == tc.forbid } })
			l.Nodes.Rules = unserved{}
			l.RunFor(20 * time.Minute)
			if required(w, n) != tc.stays {
				t.Errorf("the condition is there: %t, record %+v", required(w, n), w.Record(n.Name))
			}
			if _, f := w.Get(n.Name); !f.Gated {
				t.Errorf("the gate is opened before the rule is served: %s", w.ConditionText(n.Name))
			}
		})
	}
}

// A guard takes the condition back after an inconclusive attempt, which the record of a failure does not show. An event
// says so, once.
func TestGuardAfterAnInconclusiveAttempt(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, asks)
	w.Exit = func(*corev1.Pod) int {
		if w.Record(w.NodeNames[0]).Attempts > 0 {
			return 3
		}
		return 1
	}
	n := w.Node("n")
	l := w.Lead()
	if _, ok := l.Until(15*time.Minute, func() bool { return w.Record(n.Name).Inconclusive > 0 }); !ok || !required(w, n) {
		t.Fatalf("the condition is there: %t, record %+v", required(w, n), w.Record(n.Name))
	}
	w.Annotate(n.Name, marks.AnnotationDoNotDelete, "true")
	l.RunFor(time.Minute)
	if count := w.EventCount(n.Name, decide.EventHeld); required(w, n) || count != 1 {
		t.Errorf("the condition is there: %t, %d events about the guard", required(w, n), count)
	}
}

// In a dry run, a condition is neither set nor removed, and the log does not say that it was.
func TestDryRunLogsNoCondition(t *testing.T) {
	for name, carries := range map[string]bool{"set": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, asks)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n := w.Node("n")
			l := w.Lead(func(l *world.Leader) {
				l.Forbid = func(write string) bool {
					return !carries && write == "patch Node/status" && w.Record(n.Name).Attempts > 0
				}
			})
			l.Until(time.Minute, func() bool { return carries && required(w, n) || !carries && w.Record(n.Name).Attempts > 0 })
			if carries {
				w.AnnotateLedger(ledger.AnnotationPaused, "for a while")
			}
			var lines []string
			w.Ctx = log.IntoContext(w.Ctx, funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
			l = w.Lead(func(l *world.Leader) { l.DryRun = true })
			l.RunFor(time.Minute)
			if required(w, n) != carries {
				t.Fatalf("the condition is there: %t", required(w, n))
			}
			said := slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "dry run: ") })
			if all := strings.Join(lines, "\n"); !said || strings.Contains(all, `"condition set"`) || strings.Contains(all, `"conditions removed"`) {
				t.Errorf("the log says\n%s", all)
			}
		})
	}
}

// What a worker reports, a check's name, a reason or a message, reaches no pod and no other object that somebody
// executes: only the node's marks, events and the ledger's reason.
func TestReportReachesNothingExecuted(t *testing.T) {
	t.Parallel()
	const marker = "$(touch /tmp/owned); {{node}}"
	w := world.Begin(t, strings.Replace(asks, `"maxRetries": 1`, `"maxRetries": 3`, 1))
	n := w.Node("n")
	report, err := json.Marshal(result.Report{Version: 1, Node: n.Name, Outcome: result.Failed, Checks: []result.Check{
		{Name: marker, Type: "dns", Severity: "required", Outcome: result.Failed, Reason: "Reported", Message: marker}}})
	w.Must(err)
	w.Exit = func(p *corev1.Pod) int {
		status, err := json.Marshal(map[string]any{"status": map[string]any{"phase": "Failed", "containerStatuses": []any{map[string]any{
			"name": "worker", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": map[string]any{
				"terminated": map[string]any{"exitCode": 1, "message": string(report)}}}}}})
		w.Must(err)
		w.Status(p, string(status))
		return world.Stays
	}
	var created []string
	l := w.Lead(func(l *world.Leader) {
		l.Refuse = func(o client.Object) error {
			content, err := json.Marshal(o)
			created = append(created, string(content))
			return err
		}
	})
	l.Until(5*time.Minute, func() bool { return required(w, n) })
	if r := w.Record(n.Name); !strings.Contains(r.LastMessage, marker) || r.LastCheck != marker {
		t.Fatalf("the report did not arrive: %+v", r)
	}
	if len(created) < 3 {
		t.Fatalf("created %d pods", len(created))
	}
	for _, pod := range created {
		if strings.Contains(pod, "touch") || strings.Contains(pod, "Reported") {
			t.Errorf("the report is in a pod: %s", pod)
		}
	}
	for _, write := range l.Writes {
		if !slices.Contains([]string{"create Pod", "patch Pod", "delete Pod", "patch Node", "patch Node/status", "update ConfigMap"}, write) {
			t.Errorf("the controller does %q", write)
		}
	}
}
