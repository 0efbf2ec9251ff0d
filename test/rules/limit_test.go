package rules

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// stands says how a rule's condition differs from what is wanted; empty where it does not.
func (w *world) stands(rule, condition string, status metav1.ConditionStatus, reason, message string) string {
	w.Helper()
	r := w.read(rule)
	c := meta.FindStatusCondition(r.Status.Conditions, condition)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) || c.ObservedGeneration != r.Generation {
		return fmt.Sprintf("%+v", r.Status.Conditions)
	}
	return ""
}

// An agent's bad rollout fails the rule's condition on all nodes at once. At most rules.maxClosedPercent of the nodes
// that the rule released before are closed, at any time and by any successor. A node that joins is still gated.
func TestMaxClosedPercent(t *testing.T) {
	const count, limit = 9, 2
	w := in(t)
	w.config["rules"] = map[string]any{"maxClosedPercent": 25}
	name := func(i int) string { return fmt.Sprintf("closed-%d", i) }
	for i := range count {
		w.node(name(i), isReady)
	}
	w.node("closed-new")
	w.rule("closed")
	w.controller()
	w.tainted("closed-new", "closed", true)
	for i := range count {
		w.eventually("the release is written down", func() string {
			if n := w.get(name(i)); n.Annotations[marks.AnnotationReleased] == "" {
				return fmt.Sprint(n.Annotations)
			}
			return ""
		})
	}
	w.eventually("the limit is not reached", func() string {
		return w.stands("closed", v1alpha1.ConditionClosingLimited, "False", v1alpha1.ReasonBelowLimit, "")
	})
	history := w.watch()
	closed := func() (names []string) {
		var list corev1.NodeList
		w.must(api.List(w.ctx, &list, client.MatchingLabels{testLabel: w.name}))
		for i := range list.Items {
			if n := &list.Items[i]; n.Name != "closed-new" && carries(n, "readiness.k8s.io/closed") {
				names = append(names, n.Name)
			}
		}
		return names
	}
	reaches := func() (names []string) {
		w.eventually("the limit is reached", func() string {
			if names = closed(); len(names) != limit {
				return fmt.Sprint(names)
			}
			return ""
		})
		return names
	}
	all := sync.WaitGroup{}
	for i := range count {
		all.Go(func() { w.condition(name(i), "False") })
	}
	all.Wait()
	reaches()
	w.eventually("the others are left open", func() string { return w.scraped(`kube_node_ready_rule_left_open_nodes{rule="closed"} 7`) })
	w.said("closed", "Warning ClosingLimited/AddTaint rules.maxClosedPercent is 25: of 9 nodes that the rule has released before, ")
	w.eventually("the status says so", func() string {
		return w.stands("closed", v1alpha1.ConditionClosingLimited, "True", v1alpha1.ReasonLimitReached, "2 are closed again, and 7 are left open")
	})
	w.stop()
	w.controller()
	w.eventually("the successor counts", func() string { return w.scraped(`kube_node_ready_rule_left_open_nodes{rule="closed"} 7`) })
	first := reaches()
	w.condition(first[0], "True") // makes room for another one
	w.tainted(first[0], "closed", false)
	for _, n := range reaches() {
		if n == first[0] {
			t.Errorf("%s is closed, and its condition holds", n)
		}
	}
	w.node("closed-newest")
	w.tainted("closed-newest", "closed", true)
	w.must(api.Delete(w.ctx, w.get("closed-newest")))
	for i := range count {
		w.condition(name(i), "True")
	}
	w.eventually("all are released", func() string { return strings.Join(closed(), " ") })
	w.eventually("the status says so", func() string {
		return w.stands("closed", v1alpha1.ConditionClosingLimited, "False", v1alpha1.ReasonBelowLimit, "")
	})
	most, tainted := 0, map[string]bool{}
	history.each(func(n *corev1.Node) {
		if !strings.HasPrefix(n.Name, "closed-new") {
			tainted[n.Name] = carries(n, "readiness.k8s.io/closed")
		}
		now := 0
		for _, is := range tainted {
			if is {
				now++
			}
		}
		most = max(most, now)
	})
	if most != limit {
		t.Errorf("%d nodes were closed at a time, want %d", most, limit)
	}
}

// What a rule's status says of the rule itself: people and kubectl wait for it.
func TestConditionsOfRules(t *testing.T) {
	w := beside(t)
	w.node("cond-1", isReady)
	w.node("cond-2")
	w.rule("cond")
	w.eventually("it is served", func() string {
		s := w.read("cond").Status.Summary
		if s == nil || *s != (v1alpha1.RuleSummary{Held: 1, Released: 1}) {
			return fmt.Sprintf("%+v", s)
		}
		return w.stands("cond", v1alpha1.ConditionServing, "True", v1alpha1.ReasonServing, "") +
			w.stands("cond", v1alpha1.ConditionAccepted, "True", v1alpha1.ReasonAccepted, "")
	})
	if out, err := kubectl("wait", "--for=condition=Serving", "nrr/cond", "--timeout=10s"); err != nil {
		t.Errorf("%s", out)
	}
	if c := meta.FindStatusCondition(w.read("cond").Status.Conditions, v1alpha1.ConditionClosingLimited); c != nil {
		t.Errorf("there is no limit: %+v", c)
	}
	time.Sleep(time.Second) // creations are told apart by the second
	w.rule("cond-younger", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = "readiness.k8s.io/cond" })
	w.rule("cond-dry", dryRun)
	w.rule("cond-refused", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = rival })
	for _, want := range []struct {
		rule, condition, reason, message string
		status                           metav1.ConditionStatus
	}{
		{"cond-younger", v1alpha1.ConditionAccepted, v1alpha1.ReasonOverruled, "the older rule cond has the same taint", "True"},
		{"cond-dry", v1alpha1.ConditionServing, v1alpha1.ReasonDryRun, "dryRunResults", "True"},
		{"cond-refused", v1alpha1.ConditionAccepted, v1alpha1.ReasonRefused, "is a gating taint", "False"},
		{"cond-refused", v1alpha1.ConditionServing, v1alpha1.ReasonRefused, "it adds no taint", "False"},
	} {
		w.eventually(want.rule, func() string { return w.stands(want.rule, want.condition, want.status, want.reason, want.message) })
	}
	since := meta.FindStatusCondition(w.read("cond").Status.Conditions, v1alpha1.ConditionServing).LastTransitionTime
	w.condition("cond-2", "True")
	w.eventually("the counts follow", func() string {
		if s := w.read("cond").Status.Summary; s == nil || *s != (v1alpha1.RuleSummary{Released: 2}) {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if now := meta.FindStatusCondition(w.read("cond").Status.Conditions, v1alpha1.ConditionServing).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("since %s, and now %s", since, now)
	}
}

// A rule that was served here says so no longer once NRC is at work; nothing else is written on it.
func TestServedNoLonger(t *testing.T) {
	w := in(t)
	w.node("nolonger-1")
	w.rule("nolonger")
	w.controller()
	w.eventually("it is served", func() string {
		return w.stands("nolonger", v1alpha1.ConditionServing, "True", v1alpha1.ReasonServing, "")
	})
	before := w.read("nolonger").Status
	w.renews("kube-system")
	w.eventually("it is not", func() string {
		return w.stands("nolonger", v1alpha1.ConditionServing, "False", v1alpha1.ReasonStandingBack, "is renewed")
	})
	now := w.read("nolonger").Status
	if before.Conditions, now.Conditions = nil, nil; fmt.Sprint(before.AppliedNodes, before.Summary) != fmt.Sprint(now.AppliedNodes, now.Summary) {
		t.Errorf("%+v, and before %+v", now, before)
	}
}
