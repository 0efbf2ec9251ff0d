package metrics

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

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
	c := &cluster{counters: NewCounters(map[string]string{"dns": "dns", "network": "tcp"}, map[corev1.NodeConditionType]bool{"KernelDeadlock": true}), registry: prometheus.NewPedanticRegistry()}
	yes := func() bool { return true }
	snapshot := func(context.Context) (iter.Seq[decide.Input], int, error) { return slices.Values(c.present), 0, nil }
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
		c.counters.Suspicion(corev1.NodeConditionType("C"+name), decide.SuspicionCleared)
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
	if got := c.waitingNodes(); len(got) != 3 {
		t.Errorf("with nothing to wait for: %v", got)
	}
}

// A node's first verdict is counted, and no later one.
func TestVerdictsAreCounted(t *testing.T) {
	c := newCluster(t, config.PerNodeNone)
	for _, v := range append(decide.Verdicts(), decide.VerdictExhausted, "") {
		c.counters.Recorded(decide.Recorded{Result: attempt.Result{Outcome: attempt.Failed}, Verdict: v}, time.Now(), time.Now())
	}
	got := c.values(t, "first_verdicts_total", "verdict")
	if want := map[string]float64{"verified": 1, "exhausted": 2, "shared": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A pass that is taken back is counted by the mark.
func TestTakenBackIsCounted(t *testing.T) {
	c := newCluster(t, config.PerNodeNone)
	for _, m := range []decide.Mark{decide.MarkLabel, decide.MarkLabel, ""} {
		c.counters.TakenBack(m)
	}
	if got, want := c.values(t, "marks_taken_back_total", "mark"), map[string]float64{"taint": 0, "label": 2}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// values are those of a counter or gauge, by the values of its labels.
func (c *cluster) values(t *testing.T, name string, labels ...string) map[string]float64 {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != Namespace+"_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			key := ""
			for _, label := range m.GetLabel() {
				if slices.Contains(labels, label.GetName()) {
					key += "/" + label.GetValue()
				}
			}
			got[strings.TrimPrefix(key, "/")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// Suspicions are counted by the conditions that are configured, whatever a record names, and requests by their answers.
func TestSuspicionsAreCounted(t *testing.T) {
	c := newCluster(t, config.PerNodeNone)
	c.counters.Suspicion("KernelDeadlock", decide.SuspicionAccused)
	c.counters.Suspicion("", decide.SuspicionAccused)
	for _, done := range []decide.Recorded{
		{Suspicion: "KernelDeadlock", Suspect: decide.SuspicionCleared, Answer: attempt.Passed}, {Suspicion: "forged", Suspect: decide.SuspicionConfirmed},
		{},
	} {
		c.counters.Recorded(done, time.Now(), time.Now())
	}
	if got, want := c.values(t, "suspicions_total", "condition", "result"), map[string]float64{"KernelDeadlock/accused": 1,
		"KernelDeadlock/cleared": 1, "KernelDeadlock/confirmed": 0, "other/confirmed": 1}; !maps.Equal(got, want) {
		t.Errorf("suspicions %v, want %v", got, want)
	}
	if got, want := c.values(t, "verification_requests_total", "result"), map[string]float64{"passed": 1, "failed": 0, "inconclusive": 0}; !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}
