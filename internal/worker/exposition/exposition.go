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

// Registry holds metrics. Its methods, and those of its metrics, are safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	metrics []*Metric
}

// Metric is a gauge, a counter or a histogram, with a series for each combination of its labels' values.
type Metric struct {
	registry         *Registry
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
func (r *Registry) Gauge(name, help string, labels ...string) *Metric {
	return r.register(&Metric{name: name, help: help, kind: "gauge", labels: labels})
}

// Counter registers a metric that only goes up.
func (r *Registry) Counter(name, help string, labels ...string) *Metric {
	return r.register(&Metric{name: name, help: help, kind: "counter", labels: labels})
}

// Histogram registers a histogram with the given upper bounds, in ascending order, and serves it from the start.
func (r *Registry) Histogram(name, help string, buckets []float64) *Metric {
	buckets = append(slices.Clone(buckets), math.Inf(1))
	m := r.register(&Metric{name: name, help: help, kind: "histogram", buckets: buckets})
	m.with(nil)
	return m
}

func (r *Registry) register(m *Metric) *Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.registry = r
	r.metrics = append(r.metrics, m)
	return m
}

// with returns the series of these label values. The caller holds the registry's mutex.
func (m *Metric) with(values []string) *series {
	for _, s := range m.series {
		if slices.Equal(s.values, values) {
			return s
		}
	}
	s := &series{values: values, counts: make([]uint64, len(m.buckets))}
	m.series = append(m.series, s)
	return s
}

// Set sets a gauge. The label values are in the order of the labels.
func (m *Metric) Set(value float64, labelValues ...string) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	m.with(labelValues).value = value
}

// Add increases a counter. Adding 0 makes its series appear.
func (m *Metric) Add(by float64, labelValues ...string) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	m.with(labelValues).value += by
}

// Observe adds a value to a histogram.
func (m *Metric) Observe(value float64) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	s := m.with(nil)
	s.count++
	s.value += value
	for i, bound := range m.buckets {
		if value <= bound {
			s.counts[i]++
		}
	}
}

// Server serves a registry at /metrics, and at Probes whether the process still works: a probe fails once no operation
// has ended for Timeout. It does not fail when an API server or an agent is gone, which a restart does not fix.
type Server struct {
	Registry
	Probes []string
	// Operation is what ends regularly, in the singular.
	Operation string
	Timeout   time.Duration
	last      atomic.Pointer[time.Time]
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
	case since > s.Timeout:
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

func (r *Registry) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, m := range r.metrics {
		if len(m.series) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, escape(m.help, false), m.name, m.kind)
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
		all = append(all, l+`="`+escape(values[i], true)+`"`)
	}
	return "{" + strings.Join(all, ",") + "}"
}

// escape follows the format: backslashes and line feeds, and in label values quotes.
func escape(s string, quotes bool) string {
	s = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(s)
	if quotes {
		s = strings.ReplaceAll(s, `"`, `\"`)
	}
	return s
}

func number(f float64) string {
	if math.IsInf(f, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
