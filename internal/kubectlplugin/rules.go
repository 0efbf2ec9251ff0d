package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// notServed is the reason why a rule is not served, as its condition Serving reports it; empty if it is served or
// refused, or has no such condition.
func notServed(r *v1alpha1.NodeReadinessRule) string {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionServing)
	if c == nil || c.Reason != v1alpha1.ReasonStandingBack && c.Reason != v1alpha1.ReasonForbidden {
		return ""
	}
	return fmt.Sprintf("NodeReadinessRule %s is not served (%s): %s", r.Name, c.Reason, c.Message)
}

// waitsForRules is what a node's condition reports while the node waits for rules that are not served; empty if it does
// not wait.
func waitsForRules(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == marks.ConditionType && c.Reason == marks.ReasonRulesUnavailable {
			return fmt.Sprintf("Node %s: %s", n.Name, c.Message)
		}
	}
	return ""
}

// ruleView is the state of a node under a NodeReadinessRule that selects it and decides about its taint.
type ruleView struct {
	Name string `json:"name"`
	// State is held, released, or dry-run for a rule that changes no node.
	State rule.State `json:"state"`
	// Why is why the node is held or left open.
	Why string `json:"why,omitempty"`
	// Taint is the rule's, as key:effect; Tainted reports whether it is on the node.
	Taint   string `json:"taint"`
	Tainted bool   `json:"tainted"`
	// LeftOpen: rules.maxClosedPercent leaves the node open although the conditions fail.
	LeftOpen bool `json:"leftOpen,omitempty"`
	// Conditions are the rule's as they count on the node.
	Conditions []v1alpha1.ConditionResult `json:"conditions"`
}

// addRules adds to nodes their state under the NodeReadinessRules that exist, as the controller decides it, and finds
// out whether rules are not served. Where there are no rules, or they may not be read, nothing is added.
func (v *invocation) addRules(ctx context.Context, list []nodeState) {
	if len(list) == 0 || !*v.cluster.config.Rules.Enabled {
		return
	}
	v.ruleSet, v.notServed = nil, ""
	rules := v.cluster.dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource))
	_ = each(ctx, rules.List, "", func(o *unstructured.Unstructured) {
		r := &v1alpha1.NodeReadinessRule{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, r) == nil {
			v.ruleSet = append(v.ruleSet, rule.Compile(r, v.cluster.config.Vocabulary().Gating))
			v.notServed = cmp.Or(v.notServed, notServed(r))
		}
	})
	rule.Sort(v.ruleSet)
	for i := range list {
		list[i].rules = v.evaluateRules(list[i].node)
		v.notServed = cmp.Or(v.notServed, waitsForRules(list[i].node))
	}
}

// evaluateRules evaluates a node under the rules that were read. What only the controller can know, for example since
// when a condition was not renewed (rules.staleAfter), is left out.
func (v *invocation) evaluateRules(n *corev1.Node) (views []ruleView) {
	cfg := v.cluster.config
	observed := rule.Node{Node: n, Gating: cfg.Vocabulary().Gating, Limited: cfg.Rules.MaxClosedPercent > 0}
	for _, e := range rule.Next(observed, v.ruleSet, 0, v.now).Evaluations {
		views = append(views, ruleView{Name: e.Rule.Name, State: e.State, Why: e.Why(),
			Taint: e.Rule.Taint.ID().String(), Tainted: e.Tainted, LeftOpen: e.LeftOpen, Conditions: e.Results})
	}
	return views
}

// heldByRule is the rule that holds a node, with why; empty for none. Of several it names the first and counts the
// others.
func heldByRule(rules []ruleView) string {
	held := slices.DeleteFunc(slices.Clone(rules), func(r ruleView) bool { return r.State != rule.Held })
	if len(held) == 0 {
		return ""
	}
	text := "Rule " + held[0].Name + ": " + held[0].Why
	if more := len(held) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// heldByRules counts the nodes that each rule holds; empty for none.
func heldByRules(list []nodeState) string {
	counts := map[string]int{}
	for _, s := range list {
		for _, r := range s.rules {
			if r.State == rule.Held {
				counts[r.Name]++
			}
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// refusedRules lists the rules that are refused, a line each.
func (v *invocation) refusedRules() (lines []string) {
	for _, r := range v.ruleSet {
		if r.Invalid != "" {
			lines = append(lines, fmt.Sprintf("NodeReadinessRule %s is refused: %s", r.Name, r.Invalid))
		}
	}
	return lines
}
