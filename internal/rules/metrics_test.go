package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// ruleSeries are the series of the rules as name{labels' values}=value, sorted.
func ruleSeries(t *testing.T, perNode config.PerNode, view View) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	shows := func(context.Context) (View, error) { return view, nil }
	if err := registry.Register(NewCollector(perNode, shows, func() bool { return true })); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s}=%v", f.GetName(), strings.Join(labels, ","), m.GetGauge().GetValue()))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestSeriesOfRules(t *testing.T) {
	continuous := rule.Rule{Name: "cont", UID: "c", Continuous: true, Conditions: []v1alpha1.ConditionRequirement{{Type: "a"}, {Type: "b"}}}
	bootstrap := rule.Rule{Name: "boot", UID: "b", Conditions: []v1alpha1.ConditionRequirement{{Type: "a"}}}
	dry := rule.Rule{Name: "dry", UID: "d", DryRun: true, Conditions: []v1alpha1.ConditionRequirement{{Type: "a"}}}
	refused := rule.Rule{Name: "refused", UID: "r", Invalid: "fault", Conditions: []v1alpha1.ConditionRequirement{{Type: "a"}}}
	view := View{State: rule.Serving, Rules: []rule.Rule{continuous, bootstrap, dry, refused},
		Tallies: map[string]*rule.Tally{
			"c": {Released: 4, LeftOpen: map[string]bool{"o": true, "p": true}, Blocked: map[string]int{"b": 1}, Held: map[string]rule.Evaluation{"n": {}}},
			"b": {}, "d": {DryRun: rule.DryRunTally{Affected: 3}}, "r": {},
		}, Matched: map[string]int{"b": 7}}
	want := []string{
		"node_readiness_rules{false,bootstrap-only}=2", "node_readiness_rules{false,continuous}=1",
		"node_readiness_rules{true,bootstrap-only}=1", "node_readiness_rules{true,continuous}=0",
		"node_readiness_rule_matched_nodes{cont}=5", "node_readiness_rule_matched_nodes{boot}=7", "node_readiness_rule_matched_nodes{dry}=3",
		"node_readiness_blocked_nodes{a,cont}=0", "node_readiness_blocked_nodes{b,cont}=1", "node_readiness_blocked_nodes{a,boot}=0",
		"kube_node_ready_rule_left_open_nodes{cont}=2", "kube_node_ready_rule_left_open_nodes{boot}=0",
		"node_readiness_nodes_by_state{cont,ready}=2", "node_readiness_nodes_by_state{cont,not_ready}=3",
		"kube_node_ready_rule_held{n,cont}=1",
	}
	all := ruleSeries(t, config.PerNodeAll, view)
	for _, line := range want {
		if !slices.Contains(all, line) {
			t.Errorf("%s is missing in\n%s", line, strings.Join(all, "\n"))
		}
	}
	for _, line := range all {
		if strings.Contains(line, "matched_nodes{refused") || strings.Contains(line, "blocked_nodes{a,dry") {
			t.Error(line)
		}
	}
	none := ruleSeries(t, config.PerNodeNone, view)
	if slices.ContainsFunc(none, func(line string) bool { return strings.HasPrefix(line, "kube_node_ready_rule_held") }) || len(none) != len(all)-1 {
		t.Errorf("with metrics.perNode none:\n%s", strings.Join(none, "\n"))
	}
}
