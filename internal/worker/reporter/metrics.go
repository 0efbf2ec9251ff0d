package reporter

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/exposition"
)

// Results of a write.
const (
	resultSuccess = "success"
	resultError   = "error"
	resultSkipped = "skipped"
)

// checkResults are the values of the label result of checks_total, by the reason of the observation.
var checkResults = map[string]string{reasonOK: "healthy", reasonNotReady: "unhealthy", reasonConnectionError: "error"}

// Metrics are the reporter's, under the names of the SIG's.
type Metrics struct {
	exposition.Server
	duration, checks, writes *exposition.Metric
}

// NewMetrics makes the metrics of a reporter that checks at an interval.
func NewMetrics(version string, interval time.Duration) *Metrics {
	m := &Metrics{Server: exposition.Server{
		Probes: []string{"/healthz"}, Operation: "check", Interval: interval}}
	m.Gauge("node_readiness_reporter_build_info", "1, labelled with the reporter's version.", "version").Set(1, version)
	m.duration = m.Histogram("node_readiness_reporter_check_duration_seconds", "Duration of the checks of the endpoint.",
		[]float64{.005, .1, .25, .5, 1, 2.5, 5, 10})
	m.checks = m.Counter("node_readiness_reporter_checks_total",
		"Checks of the endpoint: healthy (2xx), unhealthy (another status), error (no answer).", "result")
	m.writes = m.Counter("node_readiness_reporter_condition_writes_total",
		"Writes of the condition: success, error, or skipped because nothing had changed.", "result")
	for _, result := range []string{"healthy", "unhealthy", "error"} {
		m.checks.Add(0, result)
	}
	for _, result := range []string{resultSuccess, resultError, resultSkipped} {
		m.writes.Add(0, result)
	}
	m.OperationEnded()
	return m
}

func (m *Metrics) checked(o observation, took time.Duration) {
	m.OperationEnded()
	m.duration.Observe(took.Seconds())
	m.checks.Add(1, checkResults[o.reason])
}

func (m *Metrics) written(result string) { m.writes.Add(1, result) }
