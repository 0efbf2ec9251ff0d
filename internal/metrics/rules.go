package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// ruleNamespace begins the names that the node-readiness-controller gave its metrics; ours have the same names, labels and
// buckets where it has them.
const ruleNamespace = "node_readiness"

// Reasons of node_readiness_failures_total.
const (
	ruleAddFailed      = "AddTaintError"
	ruleRemoveFailed   = "RemoveTaintError"
	ruleEvaluateFailed = "EvaluationError"
)

// RuleCounters are the metrics that serving rules writes. The series of a rule go with it.
type RuleCounters struct {
	operations, failures, bootstrapped, conditionFailures *prometheus.CounterVec
	evaluation, bootstrapTime, latency, release           *prometheus.HistogramVec
	reconciledAt                                          *prometheus.GaugeVec
}

// NewRuleCounters makes the metrics.
func NewRuleCounters() *RuleCounters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ruleNamespace, Name: name, Help: help}, labels)
	}
	histogram := func(namespace, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	latency := []float64{.01, .05, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300}
	return &RuleCounters{
		operations:        counter("taint_operations_total", "Taints put on nodes (add) and taken off (remove), by rule.", "rule", "operation"),
		failures:          counter("failures_total", "Writes of a rule that the API server did not take: AddTaintError, RemoveTaintError or EvaluationError.", "rule", "reason"),
		bootstrapped:      counter("bootstrap_completed_total", "Nodes that passed a bootstrap-only rule.", "rule"),
		conditionFailures: counter("condition_failures_total", "Evaluations of a held node in which a condition was not as required.", "rule", "condition"),
		evaluation:        histogram(ruleNamespace, "evaluation_duration_seconds", "Time that the decision about a node and its rules took.", prometheus.DefBuckets, "rule"),
		bootstrapTime: histogram(ruleNamespace, "bootstrap_duration_seconds", "Time from a node's creation until it passed a bootstrap-only rule; of nodes that are not older than the rule.",
			[]float64{1, 5, 10, 30, 60, 120, 300, 600, 1200}, "rule"),
		latency: histogram(ruleNamespace, "reconciliation_latency_seconds", "Time from when a node's change was seen until its taint was changed (add_taint, remove_taint).", latency, "rule", "operation"),
		release: histogram(namespace, "rule_release_seconds", "Time from the transition of a node's last condition, by the clock of who wrote it, until the taint was taken off.", latency, "rule"),
		reconciledAt: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ruleNamespace, Name: "rule_last_reconciliation_timestamp_seconds",
			Help: "When the rule was last looked after, in Unix seconds."}, []string{"rule"}),
	}
}

// Collectors lists the metrics for registration.
func (c *RuleCounters) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.operations, c.failures, c.bootstrapped, c.conditionFailures, c.evaluation, c.bootstrapTime, c.latency, c.release, c.reconciledAt}
}

// Evaluated counts a decision about a node's rules that took so long.
func (c *RuleCounters) Evaluated(p decide.RulePlan, took time.Duration) {
	for _, e := range p.Evaluations {
		c.evaluation.WithLabelValues(e.Rule.Name).Observe(took.Seconds())
		if e.State != decide.RuleHeld {
			continue
		}
		for _, r := range e.Results {
			if r.CurrentStatus != r.RequiredStatus {
				c.conditionFailures.WithLabelValues(e.Rule.Name, r.Type).Inc()
			}
		}
	}
}

// Wrote counts what was done on a node whose last change was seen at changed.
func (c *RuleCounters) Wrote(n *corev1.Node, p decide.RulePlan, changed, now time.Time) {
	for _, a := range p.Acts {
		rule := a.Rule.Name
		switch a.Operation {
		case decide.RuleAdd:
			c.operations.WithLabelValues(rule, "add").Inc()
			c.latency.WithLabelValues(rule, "add_taint").Observe(since(changed, now))
		case decide.RuleRemove:
			c.operations.WithLabelValues(rule, "remove").Inc()
			c.latency.WithLabelValues(rule, "remove_taint").Observe(since(changed, now))
			for _, e := range p.Evaluations {
				if e.Rule == a.Rule && e.Met && !e.Since.IsZero() {
					c.release.WithLabelValues(rule).Observe(since(e.Since, now))
				}
			}
		case decide.RuleComplete:
			c.bootstrapped.WithLabelValues(rule).Inc()
			if created := n.CreationTimestamp.Time; !created.Before(a.Rule.Created) {
				c.bootstrapTime.WithLabelValues(rule).Observe(since(created, now))
			}
		}
	}
}

// since is the time between two instants in seconds, and none where clocks disagree.
func since(then, now time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return max(0, now.Sub(then).Seconds())
}

// Failed counts a change of a node that the API server did not take.
func (c *RuleCounters) Failed(p decide.RulePlan) {
	for _, a := range p.Acts {
		reason := ruleEvaluateFailed
		switch a.Operation {
		case decide.RuleAdd:
			reason = ruleAddFailed
		case decide.RuleRemove:
			reason = ruleRemoveFailed
		}
		c.failures.WithLabelValues(a.Rule.Name, reason).Inc()
	}
}

// Reconciled notes that a rule was looked after.
func (c *RuleCounters) Reconciled(rule string, now time.Time) {
	c.reconciledAt.WithLabelValues(rule).Set(float64(now.UnixMilli()) / 1000)
}

// Gone drops the series of a rule.
func (c *RuleCounters) Gone(rule string) {
	of := prometheus.Labels{"rule": rule}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{c.operations, c.failures, c.bootstrapped, c.conditionFailures, c.evaluation, c.bootstrapTime, c.latency, c.release, c.reconciledAt} {
		v.DeletePartialMatch(of)
	}
}
