package rules

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// ruleNamespace is the prefix of metric names that the node-readiness-controller chose. Metrics that it also has keep
// its names, labels and buckets here.
const ruleNamespace = "node_readiness"

// Counters are the metrics that serving rules writes. The series of a rule are dropped with it.
type Counters struct {
	vectors []vector // all of them

	operations, failures, bootstrapped, conditionFailures *prometheus.CounterVec
	evaluation, bootstrapTime, latency, release           *prometheus.HistogramVec
	enforcement, hold                                     *prometheus.HistogramVec
	reconciledAt                                          *prometheus.GaugeVec
}

type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

// NewCounters makes the metrics.
func NewCounters() *Counters {
	c := &Counters{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ruleNamespace, Name: name, Help: help}, labels)
		c.vectors = append(c.vectors, v)
		return v
	}
	histogram := func(namespace, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
		c.vectors = append(c.vectors, v)
		return v
	}
	bootstrap := []float64{1, 5, 10, 30, 60, 120, 300, 600, 1200}
	latency := []float64{.01, .05, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300}
	c.operations = counter("taint_operations_total",
		"Taints added to nodes (add) and removed from nodes (remove), by rule.", "rule", "operation")
	c.failures = counter("failures_total", "Writes of a rule that the API server refused: "+
		"AddTaintError, RemoveTaintError or EvaluationError.", "rule", "reason")
	c.bootstrapped = counter("bootstrap_completed_total", "Nodes that passed a bootstrap-only rule.", "rule")
	c.conditionFailures = counter("condition_failures_total",
		"Evaluations of a held node in which a condition was not as required.", "rule", "condition")
	c.evaluation = histogram(ruleNamespace, "evaluation_duration_seconds",
		"Time that the decision about a node and its rules took.", prometheus.DefBuckets, "rule")
	c.bootstrapTime = histogram(ruleNamespace, "bootstrap_duration_seconds", "Time from a node's creation until it "+
		"passed a bootstrap-only rule. Nodes that are older than the rule are left out.", bootstrap, "rule")
	c.latency = histogram(ruleNamespace, "reconciliation_latency_seconds", "Time from when a node's change was observed "+
		"until its taint was changed (add_taint, remove_taint).", latency, "rule", "operation")
	c.release = histogram(metrics.Namespace, "rule_release_seconds", "Time from the last transition of a node's "+
		"conditions, by the clock of the condition's writer, until the taint was removed.", latency, "rule")
	c.enforcement = histogram(ruleNamespace, "enforcement_latency_seconds", "Time from the last transition of a node's "+
		"conditions, by the clock of the condition's writer, until the taint was added (add) or removed (remove).",
		latency, "rule", "operation")
	c.hold = histogram(ruleNamespace, "bootstrap_hold_duration_seconds", "Time that a bootstrap-only rule held a node, "+
		"since this controller added the taint, or since the creation of a node that came with it (adopted). Nodes that "+
		"were held at a change of leader are left out.", bootstrap, "rule", "taint_origin")
	c.reconciledAt = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ruleNamespace,
		Name: "rule_last_reconciliation_timestamp_seconds",
		Help: "When the rule was last reconciled, in Unix seconds."}, []string{"rule"})
	c.vectors = append(c.vectors, c.reconciledAt)
	return c
}

// Collectors lists the metrics for registration.
func (c *Counters) Collectors() (all []prometheus.Collector) {
	for _, v := range c.vectors {
		all = append(all, v)
	}
	return all
}

// Evaluated counts a decision about a node's rules, and the time that it took.
func (c *Counters) Evaluated(p rule.Plan, took time.Duration) {
	for _, e := range p.Evaluations {
		c.evaluation.WithLabelValues(e.Rule.Name).Observe(took.Seconds())
		if e.State != rule.Held {
			continue
		}
		for _, r := range e.Results {
			if r.CurrentStatus != r.RequiredStatus {
				c.conditionFailures.WithLabelValues(e.Rule.Name, r.Type).Inc()
			}
		}
	}
}

// RecordWrite counts what was done on a node whose last change was observed at changed.
func (c *Counters) RecordWrite(n *corev1.Node, p rule.Plan, changed, now time.Time) {
	for _, a := range p.Actions {
		name := a.Rule.Name
		if name == "" {
			continue // it no longer exists, and neither do its series
		}
		switch a.Operation {
		case rule.Add:
			c.operations.WithLabelValues(name, "add").Inc()
			c.latency.WithLabelValues(name, "add_taint").Observe(since(changed, now))
			c.enforced(a.Rule, p, "add", false, now)
		case rule.Remove:
			c.operations.WithLabelValues(name, "remove").Inc()
			c.latency.WithLabelValues(name, "remove_taint").Observe(since(changed, now))
			c.enforced(a.Rule, p, "remove", true, now)
		case rule.Complete:
			c.bootstrapped.WithLabelValues(name).Inc()
			if created := n.CreationTimestamp.Time; !created.Before(a.Rule.Created) {
				c.bootstrapTime.WithLabelValues(name).Observe(since(created, now))
			}
		}
	}
}

// enforced records the time since a rule's conditions came to be met, or not met. That is the transition of the last of
// them.
func (c *Counters) enforced(r *rule.Rule, p rule.Plan, operation string, met bool, now time.Time) {
	for _, e := range p.Evaluations {
		if e.Rule != r || e.Met != met || e.Since.IsZero() {
			continue
		}
		c.enforcement.WithLabelValues(r.Name, operation).Observe(since(e.Since, now))
		if met && !e.Completed {
			c.release.WithLabelValues(r.Name).Observe(since(e.Since, now))
		}
	}
}

// TaintOrigin is the origin of the taint by which a rule held a node.
type TaintOrigin string

// The origins.
const (
	OriginController TaintOrigin = "controller" // this controller added it
	OriginAdopted    TaintOrigin = "adopted"    // the node came with it
)

// BootstrapHeld counts for how long a bootstrap-only rule held a node.
func (c *Counters) BootstrapHeld(rule string, origin TaintOrigin, since, now time.Time) {
	c.hold.WithLabelValues(rule, string(origin)).Observe(max(0, now.Sub(since).Seconds()))
}

// since is the time between two instants in seconds, or 0 if clocks disagree.
func since(then, now time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return max(0, now.Sub(then).Seconds())
}

// RecordFailure counts a change of a node that the API server refused.
func (c *Counters) RecordFailure(p rule.Plan) {
	for _, a := range p.Actions {
		if a.Rule.Name == "" {
			continue
		}
		reason := "EvaluationError"
		switch a.Operation {
		case rule.Add:
			reason = "AddTaintError"
		case rule.Remove:
			reason = "RemoveTaintError"
		}
		c.failures.WithLabelValues(a.Rule.Name, reason).Inc()
	}
}

// Reconciled records when a rule was reconciled.
func (c *Counters) Reconciled(rule string, now time.Time) {
	c.reconciledAt.WithLabelValues(rule).Set(float64(now.UnixMilli()) / 1000)
}

// Gone drops the series of a rule.
func (c *Counters) Gone(rule string) {
	for _, v := range c.vectors {
		v.DeletePartialMatch(prometheus.Labels{"rule": rule})
	}
}

// View is what a scrape shows of the rules.
type View struct {
	// State is whether they are served here.
	State rule.ServingState
	// Rules are the existing rules; none if they are not served.
	Rules []rule.Rule
	// Overruled are the rules that an older rule with the same taint overrules, by UID.
	Overruled map[string]*rule.Rule
	// Tallies are the states of all nodes under each rule, by UID.
	Tallies map[string]*rule.Tally
	// Matched is how many nodes a rule selects, for rules that an older rule overrules on some of them, by UID.
	Matched map[string]int
}

// Collector computes the gauges about rules at scrape time.
type Collector struct {
	perNode config.PerNode
	view    func(ctx context.Context) (View, error)
	leader  func() bool
	descs   []*prometheus.Desc // all of them

	rules, byMode, matched, nodes, byState, blocked, build, state, refused, overruled, held, leftOpen *prometheus.Desc
}

// NewCollector makes the collector. Only the leader exports what it reads.
func NewCollector(perNode config.PerNode, view func(ctx context.Context) (View, error),
	leader func() bool) *Collector {
	c := &Collector{perNode: perNode, view: view, leader: leader}
	desc := func(namespace, name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
		c.descs = append(c.descs, d)
		return d
	}
	c.rules = desc(ruleNamespace, "rules_total", "NodeReadinessRules that exist.")
	c.byMode = desc(ruleNamespace, "rules",
		"NodeReadinessRules by enforcement mode, and by whether they are in dryRun.", "enforcement_mode", "dry_run")
	c.matched = desc(ruleNamespace, "rule_matched_nodes",
		"Nodes that a rule's selector matches. Refused rules are left out.", "rule")
	c.nodes = desc(ruleNamespace, "rule_nodes", "Nodes that a rule selects: held by its taint, or released. "+
		"Rules in dryRun are left out.", "rule", "state")
	c.byState = desc(ruleNamespace, "nodes_by_state", "Nodes that a rule selects: ready, not_ready, or bootstrapping "+
		"(held by a bootstrap-only rule). Rules in dryRun are left out.", "rule", "state")
	c.blocked = desc(ruleNamespace, "blocked_nodes", "Nodes that a rule holds because of the condition. A node with "+
		"several such conditions counts for each. Rules in dryRun are left out.", "rule", "condition")
	c.build = desc(ruleNamespace, "build_info", "1, with the version of this binary.", "version")
	c.state = desc(metrics.Namespace, "rules_state", "1 for the state of serving NodeReadinessRules: "+
		"serving, standing-back, absent, forbidden or unknown.", "state")
	c.refused = desc(metrics.Namespace, "rule_refused",
		"1 for a rule that is refused because it is invalid; its event names the field.", "rule")
	c.held = desc(metrics.Namespace, "rule_held",
		"1 for a node that a rule holds. It is exported if metrics.perNode is all or unverified.", "node", "rule")
	c.leftOpen = desc(metrics.Namespace, "rule_left_open_nodes",
		"Nodes that a rule would taint again, but that rules.maxClosedPercent leaves open.", "rule")
	c.overruled = desc(metrics.Namespace, "rule_overruled",
		"1 for a rule that is overruled: an older rule has the same taint, and decides about the nodes that both "+
			"select.", "rule", "by")
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.build, 1, version.Version)
	if !c.leader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), metrics.ScrapeTimeout)
	defer cancel()
	view, err := c.view(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.rules, err)
		return
	}
	for _, s := range rule.ServingStates() {
		is := 0.0
		if s == view.State {
			is = 1
		}
		gauge(c.state, is, string(s))
	}
	gauge(c.rules, float64(len(view.Rules)))
	c.modes(view.Rules, gauge)
	for i := range view.Rules {
		r := &view.Rules[i]
		if by := view.Overruled[r.UID]; by != nil {
			gauge(c.overruled, 1, r.Name, by.Name)
		}
		if r.Invalid != "" {
			gauge(c.refused, 1, r.Name)
			continue
		}
		t := view.Tallies[r.UID]
		if t == nil {
			continue
		}
		matched, counted := view.Matched[r.UID]
		if !counted {
			matched = len(t.Held) + t.Released + int(t.DryRun.Affected)
		}
		gauge(c.matched, float64(matched), r.Name)
		if r.DryRun {
			continue
		}
		for _, condition := range r.Conditions {
			gauge(c.blocked, float64(t.Blocked[condition.Type]), r.Name, condition.Type)
		}
		gauge(c.leftOpen, float64(len(t.LeftOpen)), r.Name)
		if c.perNode != config.PerNodeNone {
			name := metrics.LabelPair("rule", r.Name)
			for node := range t.Held {
				ch <- metrics.NodeGauge(c.held, metrics.LabelPair("node", node), name)
			}
		}
		held, open := len(t.Held), len(t.LeftOpen)
		gauge(c.nodes, float64(held), r.Name, string(rule.Held))
		gauge(c.nodes, float64(t.Released), r.Name, string(rule.Released))
		notReady, bootstrapping := held, 0
		if !r.Continuous {
			notReady, bootstrapping = 0, held
		}
		gauge(c.byState, float64(t.Released-open), r.Name, "ready")
		gauge(c.byState, float64(notReady+open), r.Name, "not_ready")
		gauge(c.byState, float64(bootstrapping), r.Name, "bootstrapping")
	}
}

// modes counts the rules by mode and dryRun.
func (c *Collector) modes(rules []rule.Rule, gauge func(*prometheus.Desc, float64, ...string)) {
	for mode, continuous := range map[v1alpha1.EnforcementMode]bool{
		v1alpha1.ModeBootstrapOnly: false, v1alpha1.ModeContinuous: true} {
		for _, dryRun := range []bool{false, true} {
			count := 0
			for i := range rules {
				if rules[i].Continuous == continuous && rules[i].DryRun == dryRun {
					count++
				}
			}
			gauge(c.byMode, float64(count), string(mode), strconv.FormatBool(dryRun))
		}
	}
}
