package metrics

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// cluster plays 2000 nodes that come and go, in generations of 100, and reports of their workers.
type cluster struct {
	counters *Counters
	registry *prometheus.Registry
	present  []decide.Input
}

func newCluster(t *testing.T, perNode config.PerNode) *cluster {
	t.Helper()
	c := &cluster{counters: NewCounters(map[string]string{"dns": "dns", "network": "tcp"}), registry: prometheus.NewPedanticRegistry()}
	yes := func() bool { return true }
	snapshot := func(context.Context) (iter.Seq[decide.Input], error) { return slices.Values(c.present), nil }
	for _, collector := range append(c.counters.Collectors(), NewCollector(perNode, snapshot, func() map[decide.WaitingLabels]int { return map[decide.WaitingLabels]int{} }, yes, yes, time.Now)) {
		if err := c.registry.Register(collector); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// replace lets a generation of nodes go and the next one come. Every second node of it is verified, and
// every report names a check and carries texts that no other does.
func (c *cluster) replace(generation, nodes int) {
	c.present = c.present[:0]
	now := time.Unix(int64(generation), 0)
	cfg := &config.Config{}
	cfg.SetDefaults()
	for i := range nodes {
		name := fmt.Sprintf("node-%d-%d", generation, i)
		facts := marks.Facts{Name: name, UID: name, Gated: i%2 == 0, Labelled: i%2 == 1, HasRecord: true,
			Record: marks.Record{NodeUID: name, Sequence: 1, Attempts: 1, LastOutcome: attempt.Failed, LastTime: &now}}
		if facts.Labelled {
			facts.Record.Attempts, facts.Record.LastOutcome, facts.Record.VerifiedTime = 0, attempt.Passed, &now
		}
		in := decide.Input{Config: cfg, Selected: true, Node: facts}
		c.present = append(c.present, in)
		done := decide.Recorded{Result: attempt.Result{Outcome: facts.Record.LastOutcome, Report: &result.Report{Checks: []result.Check{
			{Name: "dns", Type: "T" + name, Outcome: result.Failed, Reason: "R" + name, Message: "no answer on " + name},
			{Name: "made-up-by-" + name, Type: "dns", Outcome: result.Failed},
		}}}}
		c.counters.Recorded(done, now, now)
	}
}

func (c *cluster) series(t *testing.T) (total, perNode int) {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			total++
			for _, label := range metric.GetLabel() {
				if label.GetName() == "node" {
					perNode++
				}
			}
		}
	}
	return total, perNode
}

func TestSeriesAreBoundedByTheNodesThatAreThere(t *testing.T) {
	const nodes, generations = 100, 20
	for perNode, want := range map[config.PerNode]int{
		config.PerNodeAll: 3 * nodes, config.PerNodeUnverified: 3 * nodes / 2, config.PerNodeNone: 0,
	} {
		t.Run(string(perNode), func(t *testing.T) {
			c := newCluster(t, perNode)
			c.replace(0, nodes)
			first, _ := c.series(t)
			for generation := 1; generation < generations; generation++ {
				c.replace(generation, nodes)
			}
			total, named := c.series(t)
			if total != first {
				t.Errorf("%d series after %d nodes came and went, %d after the first %d", total, nodes*generations, first, nodes)
			}
			if named != want {
				t.Errorf("%d series name a node, want %d", named, want)
			}
			c.replace(generations, 0)
			if _, left := c.series(t); left != 0 {
				t.Errorf("%d series name nodes that are gone", left)
			}
		})
	}
}

// A node's label may say anything of its NodePool.
func TestNodePoolsAreBounded(t *testing.T) {
	c := newCluster(t, config.PerNodeNone)
	before, _ := c.series(t)
	c.counters.Released(nil, "nothing")
	for i := range 2 * maxPools {
		c.counters.Released(map[decide.Phase]time.Duration{}, fmt.Sprint(i))
	}
	after, _ := c.series(t)
	if got, want := after-before, maxPools*len(decide.Phases()); got != want {
		t.Errorf("%d series, want %d", got, want)
	}
}

// DaemonSets that nodes wait for, and their NodePools, may be as many as there are.
func TestWaitsAreBounded(t *testing.T) {
	waiting, nodes := map[decide.WaitingLabels]int{}, 0
	for i := range 30 {
		for pool := range 2 * maxPools {
			waiting[decide.WaitingLabels{For: fmt.Sprint("daemonSets a/", i), Pool: fmt.Sprint(pool)}] = i + 1
			nodes += i + 1
		}
	}
	waiting[decide.WaitingLabels{For: "nodeReady", Pool: "0"}] = 5000
	yes := func() bool { return true }
	c := NewCollector(config.PerNodeNone, nil, func() map[decide.WaitingLabels]int { return waiting }, yes, yes, time.Now)
	for range 2 {
		got := c.waitingNodes()
		sum := 0
		for _, n := range got {
			sum += n
		}
		if len(got) != maxWaits || sum != nodes+5000 {
			t.Errorf("%d series of %d nodes, want %d of %d", len(got), sum, maxWaits, nodes+5000)
		}
		if got[decide.WaitingLabels{For: "nodeReady", Pool: "0"}] != 5000 || got[decide.WaitingLabels{For: other}] == 0 {
			t.Errorf("what the most nodes wait for is not named: %v", got)
		}
	}
	waiting = nil
	if got := c.waitingNodes(); len(got) != 2 {
		t.Errorf("with nothing to wait for: %v", got)
	}
}

// A node's first verdict is counted, and no later one.
func TestVerdictsAreCounted(t *testing.T) {
	c := newCluster(t, config.PerNodeNone)
	for _, v := range append(decide.Verdicts(), decide.VerdictExhausted, "") {
		c.counters.Recorded(decide.Recorded{Result: attempt.Result{Outcome: attempt.Failed}, Verdict: v}, time.Now(), time.Now())
	}
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "kube_node_ready_first_verdicts_total" {
			for _, m := range family.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if want := map[string]float64{"verified": 1, "exhausted": 2, "shared": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
