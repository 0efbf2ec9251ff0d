//go:build bench

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// benchCase is one thing that is measured.
type benchCase struct {
	name, what string
	nodes      int
	// long: it runs only when it is named.
	long  bool
	plane cluster.Options
	// gogc is the control plane's GOGC, where it would otherwise take more memory than the machine has.
	gogc string
	// prepare, if set, is called once before the turns.
	prepare func(ctx context.Context, b *bed, nodes int) error
	// sides take turns; each is compared with those before it.
	sides []side
}

// side is one of those that take turns.
type side struct {
	name string
	turn func(ctx context.Context, b *bed, r *result) error
}

// verifies is a case in which nodes are verified by two floors and by the controller.
func verifies(name, what string, nodes int, l load) benchCase {
	c := benchCase{name: name, what: what, nodes: nodes}
	for _, by := range []actor{lightest, likeUs, ourselves} {
		c.sides = append(c.sides, side{string(by), func(ctx context.Context, b *bed, r *result) error { return l.verification(ctx, b, r, by) }})
	}
	return c
}

// rules is a case in which nodes are released by the floor and by a rule. Nothing else runs that writes to nodes.
func rules(name, what string, nodes int) benchCase {
	return benchCase{name: name, what: what, nodes: nodes, prepare: makeRule, plane: cluster.Options{WithoutControllerManager: true, WithoutScheduler: true}, sides: []side{
		{"floor", func(ctx context.Context, b *bed, r *result) error { return load{}.rule(ctx, b, r, true) }},
		{"controller", func(ctx context.Context, b *bed, r *result) error { return load{}.rule(ctx, b, r, false) }},
	}}
}

func (c benchCase) onlyWhenNamed() benchCase {
	c.long = true
	return c
}

// cases are all that can be measured.
func cases() []benchCase {
	second := load{run: time.Second}
	bursts := []benchCase{}
	for _, nodes := range []int{250, 500, 2500, 5000, 10000} { // and 1000
		bursts = append(bursts, verifies(fmt.Sprintf("burst-%d", nodes), fmt.Sprintf("%d nodes at once, workers of 1 s", nodes), nodes, second).onlyWhenNamed())
	}
	return append([]benchCase{
		verifies("burst-1000", "1000 nodes at once, workers of 1 s", 1000, second),
		verifies("failing-1000", "1000 nodes at once, of every twentieth the first worker fails; none of the floors'", 1000, load{run: time.Second, failing: 5}),
		verifies("steady-10", "10 nodes a second, workers of 1 s", 200, load{run: time.Second, rate: 10}),
		verifies("steady-33", "33 nodes a second, workers of 1 s", 660, load{run: time.Second, rate: 33}),
		verifies("steady-100", "100 nodes a second, workers of 1 s", 2000, load{run: time.Second, rate: 100}),
		verifies("slow-200", "200 nodes at once, every request to the API server takes 50 ms longer", 200, load{run: time.Second, delay: 50 * time.Millisecond}),
		rules("rules-1000", "1000 nodes released by a bootstrap-only rule", 1000),
		severalRules("rules-20", "5000 nodes and a condition that changes 17 times a second: a rule alone, and beside nineteen others of the same nodes", 5000),
		idleRules("rules-idle", "5000 nodes released by twenty rules, and the same without rules, whose kubelets send their status 17 times a second together", 5000),
		failover(),
		idle("idle-5000", "5000 verified nodes that send their status, 17 and 300 times a second together", 5000),
		broken(),
		births("births-1000", "1000 nodes created one after the other, tainted on creation by nothing, the policy and the webhook", 1000),
		rules("rules-5000", "5000 nodes released by a bootstrap-only rule", 5000).onlyWhenNamed(),
		soak("soak-500", 500),
		fleetOf(5000), fleetOf(20000), fleetOf(50000), fleetOf(100000),
		held(),
	}, bursts...)
}
