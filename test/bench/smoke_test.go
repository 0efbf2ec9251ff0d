package main

import (
	"context"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// TestRequests holds the controller to what a node costs the API server: counts, since times depend on the machine.
func TestRequests(t *testing.T) {
	const nodes = 40
	b, err := newBed(t.Context(), cluster.Options{WithoutControllerManager: true, WithoutScheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	turn := func(do func(context.Context, *bed, *result, bool) error) result {
		r := result{Nodes: nodes, Values: map[string]float64{}}
		if err := do(t.Context(), b, &r, false); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s; %v", r.line(), r.Requests)
		return r
	}
	atMost := func(what string, r result, limits map[string]float64) {
		t.Helper()
		for metric, limit := range limits {
			if got, ok := r.Values[metric]; !ok || got > limit {
				t.Errorf("%s: %s: %v, at most %v (%v)", what, metric, got, limit, r.Requests)
			}
		}
	}
	// The pod, the node, the node's condition, the pod's end; and an event.
	atMost("verification", turn(load{}.verification), map[string]float64{metricWrites: 4, metricReads: 1, metricEvents: 1, metricPods: 1, metricLeft: 0})
	if err := makeRule(t.Context(), b, nodes); err != nil {
		t.Fatal(err)
	}
	// The node; and what the rule's own status costs, however many nodes there are.
	atMost("rule", turn(load{}.rule), map[string]float64{metricWrites: 1 + 4.0/nodes, metricReads: 4.0 / nodes, metricEvents: 2})
}
