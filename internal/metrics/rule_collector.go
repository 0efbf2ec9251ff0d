package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// RuleView is what a scrape shows of the rules.
type RuleView struct {
	// State is whether they are served here.
	State decide.RulesState
	// Rules are those that there are; none where they are not served.
	Rules []decide.Rule
	// Overruled are the rules whose taint an older one decides about, by UID.
	Overruled map[string]*decide.Rule
	// Tallies are how all nodes stand with each rule, by UID.
	Tallies map[string]*decide.RuleTally
}

// RuleCollector computes the gauges about rules at scrape time.
type RuleCollector struct {
	view   func(ctx context.Context) (RuleView, error)
	leader func() bool

	rules, nodes, byState, build, state, refused, overruled *prometheus.Desc
}

// NewRuleCollector makes the collector. Only the leader exports what it reads.
func NewRuleCollector(view func(ctx context.Context) (RuleView, error), leader func() bool) *RuleCollector {
	desc := func(namespace, name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	return &RuleCollector{view: view, leader: leader,
		rules:     desc(ruleNamespace, "rules_total", "NodeReadinessRules that there are."),
		nodes:     desc(ruleNamespace, "rule_nodes", "Nodes that a rule selects: held by its taint, or released. Rules in dryRun are left out.", "rule", "state"),
		byState:   desc(ruleNamespace, "nodes_by_state", "Nodes that a rule selects: ready, not_ready, or bootstrapping (held by a bootstrap-only rule). Rules in dryRun are left out.", "rule", "state"),
		build:     desc(ruleNamespace, "build_info", "1, with the version of this binary.", "version"),
		state:     desc(namespace, "rules_state", "1 for the state of serving NodeReadinessRules: serving, standing-back, absent, forbidden or unknown.", "state"),
		refused:   desc(namespace, "rule_refused", "1 for a rule that is not obeyed because of a fault, which its event names.", "rule"),
		overruled: desc(namespace, "rule_overruled", "1 for a rule whose taint an older rule decides about on the nodes that both select.", "rule", "by"),
	}
}

// Describe implements prometheus.Collector.
func (c *RuleCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.rules, c.nodes, c.byState, c.build, c.state, c.refused, c.overruled} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *RuleCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.build, 1, version.Version)
	if !c.leader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	view, err := c.view(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.rules, err)
		return
	}
	for _, s := range decide.RulesStates() {
		gauge(c.state, number(s == view.State), string(s))
	}
	gauge(c.rules, float64(len(view.Rules)))
	for i := range view.Rules {
		r := &view.Rules[i]
		if by := view.Overruled[r.UID]; by != nil {
			gauge(c.overruled, 1, r.Name, by.Name)
		}
		if r.Fault != "" {
			gauge(c.refused, 1, r.Name)
			continue
		}
		t := view.Tallies[r.UID]
		if t == nil || r.DryRun {
			continue
		}
		gauge(c.nodes, float64(t.Held), r.Name, string(decide.RuleHeld))
		gauge(c.nodes, float64(t.Released), r.Name, string(decide.RuleReleased))
		gauge(c.byState, float64(t.Released), r.Name, "ready")
		gauge(c.byState, float64(t.Held-t.Bootstrapping), r.Name, "not_ready")
		gauge(c.byState, float64(t.Bootstrapping), r.Name, "bootstrapping")
	}
}
