package rules_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

func TestRuleWritesDisturbed(t *testing.T) { world.DisturbEveryWrite(t, rulePaths()) }

func deletesRule(w *world.World, _ string) {
	w.Helper()
	w.Must(w.API.Delete(w.Ctx, &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: w.RuleNames[0]}}))
}

func rulePaths() map[string]world.Path {
	agent := func(statuses ...corev1.ConditionStatus) (steps []func(*world.World, string)) {
		for i, s := range statuses {
			steps = append(steps, world.AgentReports(s, fmt.Sprint("boot-", i)))
		}
		return steps
	}
	untouched := world.Result{Record: "  held= verified=false"}
	with := func(r world.Result, rules string, added, removed int) world.Result {
		r.Rules, r.Added, r.Removed = rules, added, removed
		return r
	}
	return map[string]world.Path{
		"rule holds, releases and holds": {
			Begin: func(w *world.World) *corev1.Node { w.Rule(); return w.Node("n", world.Untainted) },
			Then:  agent("True", "False"),
			Writes: []string{"patch NodeReadinessRule", "patch Node", "patch NodeReadinessRule/status",
				"patch Node", "patch NodeReadinessRule/status", "patch Node", "patch NodeReadinessRule/status"},
			Want:   with(untouched, "r holds 1 fails 0, taint r by r", 2, 1),
			Events: map[decide.Reason]int{rule.EventTaintAdded: 2, rule.EventTaintRemoved: 1}},

		"bootstrap-only rule is passed": {
			Begin:  func(w *world.World) *corev1.Node { w.Rule(world.BootstrapOnly); return w.Node("n", world.Untainted) },
			Then:   agent("True", "False"),
			Want:   with(untouched, "r holds 0 fails 0, completed r", 1, 1),
			Events: map[decide.Reason]int{rule.EventTaintAdded: 1, rule.EventTaintRemoved: 1}},

		"rule adopts": {
			Begin: func(w *world.World) *corev1.Node {
				w.Rule(world.InPool)
				return w.Node("n", world.Untainted, w.RegistersWithRuleTaint(), func(n *corev1.Node) { n.Labels["pool"] = "gated" })
			},
			Want:   with(untouched, "r holds 1 fails 0, taint r by r", 0, 0),
			Events: map[decide.Reason]int{rule.EventTaintAdopted: 1}},

		"node leaves the selector": {
			Begin: func(w *world.World) *corev1.Node {
				w.Rule(world.InPool)
				return w.Node("n", world.Untainted, w.RegistersWithRuleTaint(), func(n *corev1.Node) { n.Labels["pool"] = "gated" })
			},
			Then:   []func(*world.World, string){world.Labels("pool", "free")},
			Want:   with(untouched, "r holds 0 fails 0", 0, 1),
			Events: map[decide.Reason]int{rule.EventTaintRemoved: 1}},

		"rule is deleted": {
			Begin:  func(w *world.World) *corev1.Node { w.Rule(); return w.Node("n", world.Untainted) },
			Then:   []func(*world.World, string){deletesRule},
			Most:   world.Requests{Lists: 1},
			Want:   with(untouched, "r gone", 1, 1),
			Events: map[decide.Reason]int{rule.EventTaintAdded: 1, rule.EventTaintRemoved: 1}},

		"rule and verification": {
			Begin: func(w *world.World) *corev1.Node {
				w.Rule(func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].Type = string(marks.ConditionType) })
				return w.Node("n")
			},
			Most:   world.Requests{Reads: 2},
			Want:   with(world.Result{Labelled: true, Record: "passed  held= verified=true", Sequence: 1, Condition: "True ChecksPassed"}, "r holds 0 fails 0", 1, 1),
			Events: map[decide.Reason]int{decide.EventPassed: 1, rule.EventTaintAdded: 1, rule.EventTaintRemoved: 1}},
	}
}

// A node reboots after the decision that it passed a bootstrap-only rule, and before the write. The API server refuses
// the write, and the rule holds the node until it is ready in its present boot. A reboot after the write changes
// nothing.
func TestBootstrapCompletionAndAReboot(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, "")
	w.Rule(world.BootstrapOnly)
	n := w.Node("n", world.Untainted, w.RegistersWithRuleTaint())
	reboot, reboots := false, 0
	l := w.Lead(func(l *world.Leader) {
		l.Before = func(write string) {
			if write == "patch Node" && reboot {
				reboot = false
				reboots++
				world.AgentReports("Unknown", fmt.Sprint("boot-", reboots))(w, n.Name)
			}
		}
	})
	l.Drive()
	rules := func(want string, removed int) {
		t.Helper()
		have, _ := w.Get(n.Name)
		if got, added, off := w.RulesOn(have); got != want || added != 0 || off != removed {
			b, _ := json.Marshal(have.Annotations)
			t.Fatalf("after %d reboots: %s, %d put on, %d taken off, %s; want %s, %d taken off", reboots, got, added, off, b, want, removed)
		}
	}
	held := "r holds 1 fails 0, taint r by r"
	rules(held, 0)
	for range 3 {
		reboot = true
		world.AgentReports("True", fmt.Sprint("boot-", reboots))(w, n.Name)
		l.Drive()
		rules(held, 0)
	}
	if reboots != 3 || len(l.Errs) > 0 {
		t.Errorf("%d reboots, %v", reboots, l.Errs)
	}
	world.AgentReports("True", "boot-3")(w, n.Name)
	l.Drive()
	completed := "r holds 0 fails 0, completed r"
	rules(completed, 1)
	world.AgentReports("False", "boot-4")(w, n.Name)
	l.Drive()
	w.Lead().Drive()
	rules(completed, 1)
}

// A condition whose heartbeat was renewed before, and is no longer, counts as missing after rules.staleAfter. A
// condition that was never renewed does not, nor one that is written only when its reason changes or its agent restarts.
func TestStaleAfter(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, "")
	w.Rule()
	renewed, never := w.Node("renewed", world.Untainted), w.Node("never", world.Untainted)
	starts, restarts := w.Node("starts", world.Untainted), w.Node("restarts", world.Untainted)
	reportAs := func(node, reason string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":%q,"lastHeartbeatTime":%q}]}}`, world.AgentReady, reason, w.Clock.Now().UTC().Format(time.RFC3339))
		w.Must(w.API.Status().Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
	report := func(node string) { t.Helper(); reportAs(node, "Agent") }
	l := w.Lead(func(l *world.Leader) { l.StaleAfter = 3 * time.Minute })
	held := func() (names []string) {
		t.Helper()
		for range 4 {
			l.Step()
		}
		for _, n := range []*corev1.Node{renewed, never, starts, restarts} {
			if now, _ := w.Get(n.Name); len(world.RuleTaints(now)) > 0 {
				names = append(names, strings.TrimPrefix(n.Name, w.Namespace+"-"))
			}
		}
		return names
	}
	report(never.Name)
	report(restarts.Name)
	reportAs(starts.Name, "Starting") // and then once more, when it has started
	for i := range 3 {
		report(renewed.Name)
		if h := held(); len(h) > 0 {
			t.Fatalf("held while it is renewed: %v", h)
		}
		w.Clock.Advance(2 * time.Minute)
		if i == 0 {
			report(starts.Name)
		}
	}
	if h := held(); len(h) > 0 {
		t.Fatalf("held too soon: %v", h)
	}
	report(restarts.Name) // six minutes after it reported first
	w.Clock.Advance(time.Minute + time.Second)
	if h := held(); !slices.Equal(h, []string{"renewed"}) {
		t.Fatalf("held: %v", h)
	}
	w.Clock.Advance(3 * time.Minute)
	if h := held(); !slices.Equal(h, []string{"renewed"}) {
		t.Fatalf("held without a renewal: %v", h)
	}
	report(renewed.Name)
	if h := held(); len(h) > 0 {
		t.Errorf("held although it is back: %v", h)
	}
}

// The API server keeps refusing the finalizer of a rule. Only the nodes that the rule selects wait for it, without a
// taint of the rule. Their conditions name the missing permission within a minute. They continue once the permission is
// granted.
func TestRefusedFinalizer(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, "")
	w.Rule(world.InPool)
	member := func(n *corev1.Node) { n.Labels["pool"] = "gated" }
	other, selected, before := w.Node("other"), w.Node("selected", member), w.Verified("before")
	world.Labels("pool", "gated")(w, before.Name)
	l := w.Lead(func(l *world.Leader) {
		l.Forbid = func(write string) bool { return write == "patch NodeReadinessRule" }
	})
	l.RunFor(3 * time.Second)
	w.ExpectCondition(selected.Name, "")
	l.RunFor(57 * time.Second)
	w.ExpectCondition(other.Name, "True ChecksPassed")
	w.ExpectCondition(before.Name, "True ChecksPassed")
	w.ExpectCondition(selected.Name, "Unknown RulesUnavailable: Waiting for NodeReadinessRules to be served: cannot add the finalizer to rule ")
	if said := w.ConditionText(selected.Name); !strings.Contains(said, `user "controller" may not patch NodeReadinessRule`) {
		t.Errorf("it does not say who may not do what: %s", said)
	}
	if n := w.EventCount(selected.Name, decide.EventRulesUnavailable); n != 1 {
		t.Errorf("%d events on the node", n)
	}
	// A worker may have started before the API server refused the finalizer. Its result is not acted on.
	if n, facts := w.Get(selected.Name); !facts.Gated || facts.Labelled || facts.HasRecord || len(world.RuleTaints(n)) > 0 || len(w.Pods(selected.Name)) > 1 {
		t.Errorf("a node that waits for its rules changed: %v, record %+v, %d workers", n.Spec.Taints, facts.Record, len(w.Pods(selected.Name)))
	}

	l.Forbid = nil
	l.RunFor(time.Minute)
	w.ExpectCondition(selected.Name, "True ChecksPassed")
	if n, _ := w.Get(selected.Name); len(world.RuleTaints(n)) != 1 {
		t.Errorf("the rule does not hold the node: %v", n.Spec.Taints)
	}
}

// A deleted rule keeps our finalizer while a node carries its taint, because nothing else would remove the taint.
func TestFinalizerStaysWhileNodesAreHeld(t *testing.T) {
	w := world.Begin(t, "")
	w.Rule()
	n := w.Node("n", world.Untainted)
	l := w.Lead()
	l.Drive()
	l.Forbid = func(write string) bool { return write == "patch Node" }
	deletesRule(w, "")
	l.Steps(5)
	now, _ := w.Get(n.Name)
	r := &v1alpha1.NodeReadinessRule{}
	if err := w.API.Get(w.Ctx, client.ObjectKey{Name: w.RuleNames[0]}, r); err != nil || len(world.RuleTaints(now)) != 1 {
		t.Errorf("%v, finalizers %v, taints %v", err, r.Finalizers, world.RuleTaints(now))
	}
	l.Forbid = nil
	l.Drive()
	now, _ = w.Get(n.Name)
	if got, _, _ := w.RulesOn(now); got != "r gone" {
		t.Errorf("then: %s", got)
	}
}
