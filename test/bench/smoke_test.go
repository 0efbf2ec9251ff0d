//go:build bench

package main

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// TestRequests holds the controller to what a node costs the API server: counts, since times depend on the machine.
func TestRequests(t *testing.T) {
	const nodes = 40
	b, err := newBed(t.Context(), cluster.Options{WithoutControllerManager: true, WithoutScheduler: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	// A machine that is busy otherwise may let a lease run out, and no other replica is there to need it.
	alone := load{settings: map[string]any{"leaderElection": map[string]any{"enabled": false}}}
	turn := func(do func(*result) error) result {
		r := result{Nodes: nodes, Values: map[string]float64{}}
		if err := do(&r); err != nil {
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
	// The pod, the node, the node's condition, the pod's end; and an event. What takes five seconds, on a slow machine, says so: a
	// condition and an event more. The node is read before its worker starts and before that ends. A pod's event
	// may overtake its node's: then the record is written once more, in vain, and the node is read after that.
	verified := turn(func(r *result) error { return alone.verification(t.Context(), b, r, ourselves) })
	slow := 0.0
	if verified.Values[metricMax] >= 5 {
		slow = 1
	}
	// In bytes: what the watches show of the node and its pod, and the requests; with TLS, and the log.
	atMost("verification", verified, map[string]float64{metricWrites: 4 + 8.0/nodes + slow, metricReads: 2 + 8.0/nodes + slow, metricEvents: 1 + slow, metricPods: 1, metricLeft: 0,
		metricReceived: 36 + 6*slow, metricSent: 4 + slow})
	if err := makeRule(t.Context(), b, nodes); err != nil {
		t.Fatal(err)
	}
	// The node; and what the rule's own status costs, however many nodes there are.
	atMost("rule", turn(func(r *result) error { return alone.rule(t.Context(), b, r, false) }), map[string]float64{metricWrites: 1 + 4.0/nodes, metricReads: 4.0 / nodes, metricEvents: 2})
}
