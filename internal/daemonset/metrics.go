package daemonset

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/exposition"
)

// Metrics are those of a node that verifies itself.
type Metrics struct {
	registry                               exposition.Registry
	node                                   string
	status, dns, api, completion, failures *exposition.Metric
	interval                               time.Duration
	// last is when the last pass ended, or the process began.
	last atomic.Pointer[time.Time]
}

// NewMetrics makes the metrics of a node that is looked at, at the latest, at every interval.
func NewMetrics(node string, interval time.Duration) *Metrics {
	m := &Metrics{node: node, interval: interval}
	m.status = m.registry.Gauge("node_check_status", "1 if the node passed its last attempt, 0 if it did not, or had none in this pod.", "node")
	m.dns = m.registry.Gauge("node_check_dns_duration_seconds", "How long the slowest check of type dns took in the last attempt.", "node")
	m.api = m.registry.Gauge("node_check_api_duration_seconds", "How long the slowest check of type kubernetesAPI took in the last attempt.", "node")
	m.completion = m.registry.Gauge("node_check_completion_timestamp", "When the last attempt ended, in seconds since 1970.", "node")
	m.failures = m.registry.Counter("node_check_failures_total", "Attempts in which the check failed, or could not tell whose fault it is.", "node", "check")
	m.status.Set(0, node)
	m.beat()
	return m
}

func (m *Metrics) beat() { m.last.Store(new(time.Now())) }

// begin serves the series of the checks before one has failed.
func (m *Metrics) begin(specs []checks.Spec) {
	for _, s := range specs {
		m.failures.Add(0, m.node, s.Name)
	}
}

// finished accounts for an attempt.
func (m *Metrics) finished(r result.Report, at time.Time) {
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

// slowestOf is how long the slowest performed check of a type took.
func slowestOf(r result.Report, kind string) (slowest time.Duration, ok bool) {
	for _, c := range r.Checks {
		if c.Type == kind && c.Outcome != result.Skipped {
			slowest, ok = max(slowest, time.Duration(c.DurationMs)*time.Millisecond), true
		}
	}
	return slowest, ok
}

// ServeHTTP serves /metrics, and /healthz and /readyz, which fail once there was no pass for long: an API server that is gone is no
// fault of the process.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		m.registry.ServeHTTP(w, r)
	case "/healthz", "/readyz":
		if since := time.Since(*m.last.Load()); since > m.interval+stalledAfter {
			http.Error(w, fmt.Sprintf("no pass has ended for %v", since.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}

// Listen takes a port on all addresses. The function that it returns serves until the process ends.
func (m *Metrics) Listen(port int32) (serve func(), err error) {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: m, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return func() { _ = server.Serve(listener) }, nil
}
