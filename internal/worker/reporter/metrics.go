package reporter

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	registry *prometheus.Registry
	duration prometheus.Histogram
	checks   *prometheus.CounterVec
	writes   *prometheus.CounterVec
	interval time.Duration
	// last is when the last check ended, or the reporter was made.
	last atomic.Pointer[time.Time]
}

// NewMetrics makes the metrics of a reporter that checks at an interval.
func NewMetrics(version string, interval time.Duration) *Metrics {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "node_readiness_reporter_build_info", Help: "1, labelled with the reporter's version."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "node_readiness_reporter_check_duration_seconds",
			Help: "How long checks of the endpoint took.", Buckets: []float64{.005, .1, .25, .5, 1, 2.5, 5, 10}}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "node_readiness_reporter_checks_total",
			Help: "Checks of the endpoint: healthy (2xx), unhealthy (another status), error (no answer)."}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "node_readiness_reporter_condition_writes_total",
			Help: "Writes of the condition: success, error, or skipped since nothing had changed."}, []string{"result"}),
		interval: interval,
	}
	for _, result := range []string{"healthy", "unhealthy", "error"} {
		m.checks.WithLabelValues(result)
	}
	for _, result := range []string{resultSuccess, resultError, resultSkipped} {
		m.writes.WithLabelValues(result)
	}
	m.registry.MustRegister(build, m.duration, m.checks, m.writes)
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
	m.checks.WithLabelValues(map[string]string{reasonOK: "healthy", reasonNotReady: "unhealthy", reasonConnectionError: "error"}[o.reason]).Inc()
}

func (m *Metrics) written(result string) { m.writes.WithLabelValues(result).Inc() }

// ServeHTTP serves /metrics and /healthz, which fails once no check has ended for long: an API server that is gone, or an agent
// that is, is no fault of the reporter.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
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
