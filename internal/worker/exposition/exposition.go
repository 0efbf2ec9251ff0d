// Package exposition serves the worker's few metrics in Prometheus' text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/), and its health. With client_golang and its protocol
// buffers, the worker's binary, which every new node pulls, would be a third larger.
package exposition

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stalledAfter is how long a probe tolerates that no operation ends, beyond the interval. A pass or a check and all
// requests that it makes take less, each at its timeout.
const stalledAfter = 3 * time.Minute

// Server serves its metrics at /metrics, and at Probes whether the process still works: a probe fails once no operation
// has ended for Interval and three minutes. It does not fail when an API server or an agent is gone, which a restart
// does not fix. Its methods, and those of its metrics, are safe for concurrent use.
type Server struct {
	Probes []string
	// Operation is what ends regularly, in the singular, and Interval the time between two.
	Operation string
	Interval  time.Duration
	last      atomic.Pointer[time.Time]

	mu      sync.Mutex
	metrics []*Metric
}

// Metric is a gauge, a counter or a histogram, with a series for each combination of its labels' values.
type Metric struct {
	server           *Server
	name, help, kind string
	labels           []string
	buckets          []float64 // upper bounds, of a histogram
	series           []*series // in the order in which they appeared
}

type series struct {
	values []string
	value  float64 // of a histogram the sum
	counts []uint64
	count  uint64
}

// Gauge registers a metric that goes up and down.
func (s *Server) Gauge(name, help string, labels ...string) *Metric {
	return s.register(&Metric{name: name, help: help, kind: "gauge", labels: labels})
}

// Counter registers a metric that only goes up.
func (s *Server) Counter(name, help string, labels ...string) *Metric {
	return s.register(&Metric{name: name, help: help, kind: "counter", labels: labels})
}

// Histogram registers a histogram with the given upper bounds, in ascending order, and serves it from the start.
func (s *Server) Histogram(name, help string, buckets []float64) *Metric {
	buckets = append(slices.Clone(buckets), math.Inf(1))
	m := s.register(&Metric{name: name, help: help, kind: "histogram", buckets: buckets})
	m.change(nil, func(*series) {})
	return m
}

func (s *Server) register(m *Metric) *Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.server = s
	s.metrics = append(s.metrics, m)
	return m
}

// change changes the series of these label values, which it makes if there is none.
func (m *Metric) change(values []string, change func(*series)) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	i := slices.IndexFunc(m.series, func(s *series) bool { return slices.Equal(s.values, values) })
	if i < 0 {
		i = len(m.series)
		m.series = append(m.series, &series{values: values, counts: make([]uint64, len(m.buckets))})
	}
	change(m.series[i])
}

// Set sets a gauge. The label values are in the order of the labels.
func (m *Metric) Set(value float64, labelValues ...string) {
	m.change(labelValues, func(s *series) { s.value = value })
}

// Add increases a counter. Adding 0 makes its series appear.
func (m *Metric) Add(by float64, labelValues ...string) {
	m.change(labelValues, func(s *series) { s.value += by })
}

// Observe adds a value to a histogram.
func (m *Metric) Observe(value float64) {
	m.change(nil, func(s *series) {
		s.count++
		s.value += value
		for i, bound := range m.buckets {
			if value <= bound {
				s.counts[i]++
			}
		}
	})
}

// OperationEnded records that an operation has ended, or that the process has started.
func (s *Server) OperationEnded() { s.last.Store(new(time.Now())) }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch since := time.Since(*s.last.Load()); {
	case r.URL.Path == "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = fmt.Fprint(w, s.text()) // a client that went away is no error
	case !slices.Contains(s.Probes, r.URL.Path):
		http.NotFound(w, r)
	case since > s.Interval+stalledAfter:
		text := fmt.Sprintf("no %s has ended for %v", s.Operation, since.Round(time.Second))
		http.Error(w, text, http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprintln(w, "ok")
	}
}

// Listen listens on the address. The function that it returns serves until the process ends. With address "0" it does
// nothing.
func (s *Server) Listen(address string) (serve func(), err error) {
	if address == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: s, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return func() { _ = server.Serve(listener) }, nil
}

func (s *Server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, m := range s.metrics {
		if len(m.series) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, escapeHelp.Replace(m.help), m.name, m.kind)
		for _, s := range m.series {
			m.write(&b, s)
		}
	}
	return b.String()
}

func (m *Metric) write(b *strings.Builder, s *series) {
	if m.kind != "histogram" {
		fmt.Fprintf(b, "%s%s %s\n", m.name, pairs(m.labels, s.values), number(s.value))
		return
	}
	for i, bound := range m.buckets {
		fmt.Fprintf(b, "%s_bucket{le=%q} %d\n", m.name, number(bound), s.counts[i])
	}
	fmt.Fprintf(b, "%s_sum %s\n%s_count %d\n", m.name, number(s.value), m.name, s.count)
}

func pairs(labels, values []string) string {
	if len(labels) == 0 {
		return ""
	}
	var all []string
	for i, l := range labels {
		all = append(all, l+`="`+escapeLabel.Replace(values[i])+`"`)
	}
	return "{" + strings.Join(all, ",") + "}"
}

// The format escapes backslashes and line feeds, and in label values quotes.
var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
