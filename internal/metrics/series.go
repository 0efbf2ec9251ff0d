package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// series is a metric of a node. A constant metric of the library checks and copies its labels; for thousands of nodes that is most of what a
// scrape allocates, and the registry checks them once more.
type series struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair // by name; other series may have the same
	value   float64
	counter bool // and no gauge
}

// LabelPair is a label.
func LabelPair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// NodeGauge is a gauge of a node that is 1.
func NodeGauge(desc *prometheus.Desc, labels ...*dto.LabelPair) prometheus.Metric {
	return &series{desc: desc, labels: labels, value: 1}
}

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *series) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.counter {
		out.Counter = &dto.Counter{Value: &s.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}
