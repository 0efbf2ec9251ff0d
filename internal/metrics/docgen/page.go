package main

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

//go:embed page.md
var text string

// page is page.md with the table of metrics in its place.
func page() ([]byte, error) {
	registry, err := sample()
	if err != nil {
		return nil, err
	}
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, family := range families {
		kind := strings.ToLower(family.GetType().String())
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", family.GetName(), kind, labels(family), family.GetHelp())
	}
	page := strings.Replace(text, "<!-- metrics -->\n", table.String(), 1)
	return []byte(strings.Replace(page, "<!-- guards -->\n", guards(), 1)), nil
}

func guards() string {
	var table strings.Builder
	table.WriteString("| guard | holds when | asks for |\n|---|---|---|\n")
	for _, g := range decide.Guards() {
		var needs []string
		for _, need := range g.Needs {
			needs = append(needs, string(need))
		}
		if len(needs) == 0 {
			needs = []string{"–"}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", g.Name, g.About, strings.Join(needs, ", "))
	}
	return table.String()
}

func labels(family *dto.MetricFamily) string {
	var names []string
	for _, pair := range family.GetMetric()[0].GetLabel() {
		names = append(names, "`"+pair.GetName()+"`")
	}
	if len(names) == 0 {
		return "–"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// sample is the metrics of a controller with one node, so chosen that every metric has a sample.
func sample() (*prometheus.Registry, error) {
	now := time.Unix(0, 0)
	cfg := &config.Config{}
	cfg.SetDefaults()
	in := decide.Input{
		Config: cfg, Selected: true,
		Node: marks.Facts{Name: "n", UID: "u", Gated: true, HasRecord: true, Record: marks.Record{
			NodeUID: "u", Sequence: 1, Attempts: 1, LastOutcome: attempt.Failed, LastTime: &now, Held: decide.GuardDryRun,
		}, Condition: &corev1.NodeCondition{Type: marks.ConditionType, Reason: marks.ReasonDeadlineExceeded}},
	}
	counters := metrics.NewCounters(map[string]string{"dns": "dns"},
		map[corev1.NodeConditionType]bool{"KernelDeadlock": true})
	counters.Recorded(decide.Recorded{Result: attempt.Result{Outcome: attempt.Passed, Report: &result.Report{
		Checks: []result.Check{{Name: "dns", Type: "dns", Outcome: result.Passed}},
	}}}, now, now)
	counters.Released(map[decide.Phase]time.Duration{}, "p")
	counters.UnknownTaints([]decide.UnknownTaint{{Pool: "p"}})
	always := func() bool { return true }
	registry := prometheus.NewPedanticRegistry()
	snapshot := func(context.Context) (iter.Seq[decide.Input], int, error) {
		return slices.Values([]decide.Input{in}), 0, nil
	}
	waiting := func() map[decide.WaitingLabels]int { return map[decide.WaitingLabels]int{} }
	clock := func() time.Time { return now }
	collector := metrics.NewCollector(config.PerNodeAll, snapshot, waiting, always, always, clock)
	rules, ruleCollector := sampleRules(now)
	for _, c := range append(append(counters.Collectors(), rules.Collectors()...), collector, ruleCollector) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

// sampleRules are the metrics of one rule that has done all that a rule does.
func sampleRules(now time.Time) (*rules.Counters, *rules.Collector) {
	r := rule.Rule{Name: "r", UID: "u", Conditions: []v1alpha1.ConditionRequirement{{Type: "c"}}}
	refused := rule.Rule{Name: "refused", UID: "v", Invalid: "fault"}
	plan := rule.Plan{
		Actions: []rule.Action{
			{Rule: &r, Operation: rule.Add}, {Rule: &r, Operation: rule.Remove}, {Rule: &r, Operation: rule.Complete},
		},
		Evaluations: []rule.Evaluation{
			{Rule: &r, State: rule.Held, Results: []v1alpha1.ConditionResult{
				{Type: "c", CurrentStatus: "False", RequiredStatus: "True"},
			}},
			{Rule: &r, State: rule.Released, Met: true, Since: now.Add(-time.Second)},
		},
	}
	c := rules.NewCounters()
	c.Evaluated(plan, time.Millisecond)
	c.RecordWrite(&corev1.Node{}, plan, now, now)
	c.RecordFailure(plan)
	c.Reconciled(r.Name, now)
	view := rules.View{State: rule.Serving, Rules: []rule.Rule{r, refused},
		Overruled: map[string]*rule.Rule{"u": &refused},
		Tallies:   map[string]*rule.Tally{"u": {Held: map[string]rule.Evaluation{"n": {}}}}}
	c.BootstrapHeld(r.Name, rules.OriginAdopted, now, now)
	shows := func(context.Context) (rules.View, error) { return view, nil }
	return c, rules.NewCollector(config.PerNodeAll, shows, func() bool { return true })
}
