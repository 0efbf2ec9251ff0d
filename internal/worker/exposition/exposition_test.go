package exposition

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// What is served is what Prometheus' own parser reads.
func TestPrometheusReadsIt(t *testing.T) {
	var r Server
	r.OperationEnded()
	r.Gauge("empty", "None yet.", "a")
	gauge := r.Gauge("temperature", "Of \\ all\nplaces.", "place", "unit")
	gauge.Set(1.5, `a "quoted" \ name`+"\n", "c")
	gauge.Set(-2, "b", "c")
	gauge.Set(3, "b", "c")
	counter := r.Counter("things_total", "Things.")
	counter.Add(0)
	counter.Add(2)
	histogram := r.Histogram("took_seconds", "Times.", []float64{.1, 1})
	for _, v := range []float64{.05, .1, .5, 7} {
		histogram.Observe(v)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(w.Body.String()))
	if err != nil || len(families) != 3 || w.Header().Get("Content-Type") != string(expfmt.NewFormat(expfmt.TypeTextPlain)) {
		t.Fatalf("%v, %d families as %s:\n%s", err, len(families), w.Header().Get("Content-Type"), w.Body)
	}
	temperatures := families["temperature"].GetMetric()
	if got := families["temperature"].GetHelp(); got != "Of \\ all\nplaces." {
		t.Errorf("help %q", got)
	}
	if len(temperatures) != 2 || temperatures[0].GetLabel()[0].GetValue() != `a "quoted" \ name`+"\n" || temperatures[1].GetGauge().GetValue() != 3 {
		t.Errorf("got %v", temperatures)
	}
	if got := families["things_total"].GetMetric()[0].GetCounter().GetValue(); got != 2 {
		t.Errorf("counted %v", got)
	}
	h := families["took_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 4 || h.GetSampleSum() != 7.65 || len(h.GetBucket()) != 3 ||
		h.GetBucket()[0].GetCumulativeCount() != 2 || h.GetBucket()[1].GetCumulativeCount() != 3 || h.GetBucket()[2].GetCumulativeCount() != 4 {
		t.Errorf("got %v", h)
	}
}

// A histogram is there before anything was observed, for rates over it.
func TestAHistogramIsServedFromTheStart(t *testing.T) {
	var r Server
	r.Histogram("took_seconds", "Times.", []float64{1})
	if got := r.text(); !strings.Contains(got, `took_seconds_bucket{le="+Inf"} 0`) {
		t.Error(got)
	}
}

func TestProbes(t *testing.T) {
	s := Server{Probes: []string{"/healthz"}, Operation: "check", Interval: time.Minute}
	for _, c := range []struct {
		path string
		ago  time.Duration
		want int
	}{
		{"/healthz", 0, 200},
		{"/healthz", 4*time.Minute - time.Second, 200},
		{"/healthz", 4*time.Minute + time.Second, 503},
		{"/metrics", 4*time.Minute + time.Second, 200},
		{"/readyz", 0, 404},
		{"/", 0, 404},
	} {
		s.last.Store(new(time.Now().Add(-c.ago)))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s %v after an operation: %d %s", c.path, c.ago, w.Code, w.Body)
		}
	}
}

func TestListen(t *testing.T) {
	var s Server
	server := httptest.NewServer(&s)
	defer server.Close()
	if _, err := s.Listen(server.Listener.Addr().String()); err == nil {
		t.Error("a port that is in use is no error")
	}
	if _, err := s.Listen("0"); err != nil {
		t.Error(err)
	}
}
