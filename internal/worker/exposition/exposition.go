// Package exposition keeps the few metrics of a worker and writes them in Prometheus' text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/). The client library, with the protocol buffers that it
// brings along, would add a third to the worker's binary, which every new node pulls.
package exposition

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Registry holds metrics and serves them. Its methods, and those of its metrics, may be called at the same time.
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

// Histogram registers a metric of observed values, counted by the ascending upper bounds, and serves it from the start.
func (r *Registry) Histogram(name, help string, buckets []float64) *Metric {
	m := r.register(&Metric{name: name, help: help, kind: "histogram", buckets: append(slices.Clone(buckets), math.Inf(1))})
	m.at(nil)
	return m
}

func (r *Registry) register(m *Metric) *Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.registry = r
	r.metrics = append(r.metrics, m)
	return m
}

// at is the series of these label values. The registry's mutex must be held, or the metric not be known to others yet.
func (m *Metric) at(values []string) *series {
	for _, s := range m.series {
		if slices.Equal(s.values, values) {
			return s
		}
	}
	s := &series{values: values, counts: make([]uint64, len(m.buckets))}
	m.series = append(m.series, s)
	return s
}

// Set gives a gauge's series its value. The label values are in the order of the labels, here and below.
func (m *Metric) Set(value float64, labelValues ...string) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	m.at(labelValues).value = value
}

// Add raises a counter's series; by 0 it makes one that is served from then on.
func (m *Metric) Add(by float64, labelValues ...string) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	m.at(labelValues).value += by
}

// Observe counts a value in a histogram.
func (m *Metric) Observe(value float64) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	s := m.at(nil)
	s.count++
	s.value += value
	for i, bound := range m.buckets {
		if value <= bound {
			s.counts[i]++
		}
	}
}

// ServeHTTP writes all metrics, in the order in which they were registered.
func (r *Registry) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = fmt.Fprint(w, r.text()) // a scraper that went away is nobody's error
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
