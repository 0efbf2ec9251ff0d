package reporter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func scrape(m *Metrics, path string) (int, string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1", time.Minute)
	m.checked(observation{reason: reasonOK}, 200*time.Millisecond)
	m.checked(observation{reason: reasonNotReady}, time.Second)
	m.checked(observation{reason: reasonNotReady}, time.Second)
	m.written(resultSkipped)
	_, text := scrape(m, "/metrics")
	for _, line := range []string{
		`node_readiness_reporter_build_info{version="v1"} 1`,
		`node_readiness_reporter_checks_total{result="healthy"} 1`,
		`node_readiness_reporter_checks_total{result="unhealthy"} 2`,
		`node_readiness_reporter_checks_total{result="error"} 0`,
		`node_readiness_reporter_condition_writes_total{result="success"} 0`,
		`node_readiness_reporter_condition_writes_total{result="error"} 0`,
		`node_readiness_reporter_condition_writes_total{result="skipped"} 1`,
		`node_readiness_reporter_check_duration_seconds_bucket{le="0.25"} 1`,
		`node_readiness_reporter_check_duration_seconds_bucket{le="+Inf"} 3`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics lacks %s:\n%s", line, text)
		}
	}
	if code, _ := scrape(m, "/healthz"); code != 200 {
		t.Errorf("/healthz answered %d", code)
	}
}
