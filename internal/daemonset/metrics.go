package daemonset

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/exposition"
)

// Metrics are those of a node that verifies itself.
type Metrics struct {
	exposition.Server
	node                                   string
	status, dns, api, completion, failures *exposition.Metric
}

// NewMetrics makes the metrics of a node that has a pass at least at every interval.
func NewMetrics(node string, interval time.Duration) *Metrics {
	m := &Metrics{node: node, Server: exposition.Server{
		Probes: []string{"/healthz", "/readyz"}, Operation: "pass", Interval: interval}}
	m.status = m.Gauge("node_check_status",
		"1 if the node passed its last attempt; 0 if it failed, or if this pod has made no attempt yet.", "node")
	m.dns = m.Gauge("node_check_dns_duration_seconds",
		"Duration of the slowest check of type dns in the last attempt.", "node")
	m.api = m.Gauge("node_check_api_duration_seconds",
		"Duration of the slowest check of type kubernetesAPI in the last attempt.", "node")
	m.completion = m.Gauge("node_check_completion_timestamp",
		"Time at which the last attempt ended, in Unix seconds.", "node")
	m.failures = m.Counter("node_check_failures_total",
		"Attempts in which the check failed or was inconclusive.", "node", "check")
	m.status.Set(0, node)
	m.OperationEnded()
	return m
}

// attemptStarted makes the series of the checks appear before one fails.
func (m *Metrics) attemptStarted(specs []checks.Spec) {
	for _, s := range specs {
		m.failures.Add(0, m.node, s.Name)
	}
}

// attemptEnded records an attempt.
func (m *Metrics) attemptEnded(r result.Report, at time.Time) {
	passed := 0.0
	if r.Outcome == result.Passed {
		passed = 1
	}
	m.status.Set(passed, m.node)
	m.completion.Set(float64(at.UnixMilli())/1000, m.node)
	for _, c := range r.Checks {
		if c.Outcome == result.Failed || c.Outcome == result.Inconclusive {
			m.failures.Add(1, m.node, c.Name)
		}
	}
	for kind, metric := range map[string]*exposition.Metric{"dns": m.dns, "kubernetesAPI": m.api} {
		if slowest, ok := slowestOf(r, kind); ok {
			metric.Set(slowest.Seconds(), m.node)
		}
	}
}

// slowestOf is the duration of the slowest performed check of a type.
func slowestOf(r result.Report, kind string) (slowest time.Duration, ok bool) {
	for _, c := range r.Checks {
		if c.Type == kind && c.Outcome != result.Skipped {
			slowest, ok = max(slowest, time.Duration(c.DurationMs)*time.Millisecond), true
		}
	}
	return slowest, ok
}
