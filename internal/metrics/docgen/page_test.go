package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kube-node-ready/kube-node-ready/internal/docpages"
)

func TestPageIsCurrent(t *testing.T) {
	if err := docpages.Write(pages, "../../..", true); err != nil {
		t.Error(err)
	}
}

// Names, types and help texts follow Prometheus' conventions.
func TestMetricsAreLinted(t *testing.T) {
	registry, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric == "node_readiness_rules_total" {
			continue // the node-readiness-controller's name of a gauge, which dashboards know
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
