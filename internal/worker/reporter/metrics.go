package reporter

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/exposition"
)

// Results of a write.
const (
	resultSuccess = "success"
	resultError   = "error"
	resultSkipped = "skipped"
)

// stalledAfter is how long after the time for a check /healthz fails for want of one. A check and every request of the slowest
// write, each at its timeout, take less.
const stalledAfter = 3 * time.Minute

// Metrics are the reporter's, under the names of the SIG's.
type Metrics struct {
	registry exposition.Registry
	duration *exposition.Metric
	checks   *exposition.Metric
	writes   *exposition.Metric
	interval time.Duration
	// last is when the last check ended, or the reporter was made.
	last atomic.Pointer[time.Time]
}

// NewMetrics makes the metrics of a reporter that checks at an interval.
func NewMetrics(version string, interval time.Duration) *Metrics {
	m := &Metrics{interval: interval}
	m.registry.Gauge("node_readiness_reporter_build_info", "1, labelled with the reporter's version.", "version").Set(1, version)
	m.duration = m.registry.Histogram("node_readiness_reporter_check_duration_seconds", "How long checks of the endpoint took.", []float64{.005, .1, .25, .5, 1, 2.5, 5, 10})
	m.checks = m.registry.Counter("node_readiness_reporter_checks_total", "Checks of the endpoint: healthy (2xx), unhealthy (another status), error (no answer).", "result")
	m.writes = m.registry.Counter("node_readiness_reporter_condition_writes_total", "Writes of the condition: success, error, or skipped since nothing had changed.", "result")
	for _, result := range []string{"healthy", "unhealthy", "error"} {
		m.checks.Add(0, result)
	}
	for _, result := range []string{resultSuccess, resultError, resultSkipped} {
		m.writes.Add(0, result)
	}
	m.beat()
	return m
}

func (m *Metrics) beat() {
	now := time.Now()
	m.last.Store(&now)
}

func (m *Metrics) checked(o observation, took time.Duration) {
	m.beat()
	m.duration.Observe(took.Seconds())
	m.checks.Add(1, map[string]string{reasonOK: "healthy", reasonNotReady: "unhealthy", reasonConnectionError: "error"}[o.reason])
}

func (m *Metrics) written(result string) { m.writes.Add(1, result) }

// ServeHTTP serves /metrics and /healthz, which fails once no check has ended for long: an API server that is gone, or an agent
// that is, is no fault of the reporter.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		m.registry.ServeHTTP(w, r)
	case "/healthz":
		if since := time.Since(*m.last.Load()); since > m.interval+stalledAfter {
			http.Error(w, fmt.Sprintf("no check has ended for %v", since.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}

// Listen takes the address; "0" is none and returns a function that does nothing. The function serves until the process ends.
func (m *Metrics) Listen(address string) (serve func(), err error) {
	if address == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: m, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return func() { _ = server.Serve(listener) }, nil
}
