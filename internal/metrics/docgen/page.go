package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

//go:embed page.md
var text string

// page is page.md with the table of metrics in its place.
func page() ([]byte, error) {
	registry, err := sample()
	if err != nil {
		return nil, err
	}
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, family := range families {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()), labels(family), family.GetHelp())
	}
	return []byte(strings.Replace(text, "<!-- metrics -->\n", table.String(), 1)), nil
}

func labels(family *dto.MetricFamily) string {
	var names []string
	for _, pair := range family.GetMetric()[0].GetLabel() {
		names = append(names, "`"+pair.GetName()+"`")
	}
	if len(names) == 0 {
		return "–"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// sample is the metrics of a controller with one node, so chosen that every metric has a sample.
func sample() (*prometheus.Registry, error) {
	now := time.Unix(0, 0)
	stamp := metav1.NewTime(now)
	in := decide.Input{
		Config: &config.Config{}, Selected: true,
		Node: node.Facts{Name: "n", UID: "u", Gated: true, HasRecord: true, Record: node.Record{
			NodeUID: "u", Sequence: 1, Attempts: 1, LastOutcome: node.OutcomePassed, LastTime: &stamp, Held: decide.GuardDryRun,
		}},
	}
	counters := metrics.NewCounters(map[string]string{"dns": "dns"})
	counters.Verdict(in, &workerpod.Observation{Report: &result.Report{
		Checks: []result.Check{{Name: "dns", Type: "dns", Outcome: result.Passed}},
	}}, in.Node.Record, now, now)
	always := func() bool { return true }
	registry := prometheus.NewPedanticRegistry()
	snapshot := func(context.Context) ([]decide.Input, error) { return []decide.Input{in}, nil }
	collector := metrics.NewCollector(config.PerNodeAll, snapshot, always, always, func() time.Time { return now })
	for _, c := range append(counters.Collectors(), collector) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}
