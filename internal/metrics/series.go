package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// series is a metric of a node. The library's constant metrics check and copy their labels, which for thousands of
// nodes is most of what a scrape allocates. The registry checks them anyway.
type series struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair // sorted by name; shared with other series
	value   float64
	counter bool // else a gauge
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

// maxPools bounds the label nodepool of a metric, none included: a node's label may say anything.
const maxPools = 100

// other stands for what is beyond a bound.
const other = "other"

// pools are the values that a label nodepool has had.
type pools struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label is the label's value for a NodePool.
func (p *pools) label(pool string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]bool{"": true}
	}
	if !p.seen[pool] && len(p.seen) >= maxPools {
		pool = other
	}
	p.seen[pool] = true
	return pool
}
