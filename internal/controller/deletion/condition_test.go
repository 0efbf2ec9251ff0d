package deletion_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
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
