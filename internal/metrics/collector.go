package metrics

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Snapshot returns all nodes with our pods on them, from the informers. Some nodes are only counted: they are verified,
// have none of our pods, and get no series of their own.
type Snapshot func(ctx context.Context) (seen iter.Seq[decide.Input], verified int, err error)

// Collector computes gauges at scrape time.
type Collector struct {
	perNode  config.PerNode
	snapshot Snapshot
	waiting  func() map[decide.WaitingLabels]int
	healthy  func() bool
	leader   func() bool
	now      func() time.Time
	pools    pools

	status, duration, pods, retries, healthyDesc, leaderDesc        *prometheus.Desc
	nodes, waitingDesc, held, shared, otherEffect, deadlineExceeded *prometheus.Desc
	build                                                           *prometheus.Desc
}

// NewCollector makes the collector. waiting counts the nodes that wait, healthy reports whether the informers are
// synchronized with the API server, leader whether this replica leads. Only the leader exports series about nodes and
// pods, so that two replicas do not count them twice.
func NewCollector(perNode config.PerNode, snapshot Snapshot, waiting func() map[decide.WaitingLabels]int,
	healthy, leader func() bool, now func() time.Time,
) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(Namespace+"_"+name, help, labels, nil)
	}
	return &Collector{perNode: perNode, snapshot: snapshot, waiting: waiting, healthy: healthy, leader: leader, now: now,
		status: desc("verification_status",
			"1 for the node's current status: pending, verifying, verified, failed or held.", "node", "status"),
		duration: desc("verification_duration_seconds", "Run time of the worker of the node's last attempt.", "node"),
		pods:     desc("worker_pods", "Existing worker pods by status: pending, running, succeeded or failed.", "status"),
		retries: desc("retry_attempts_total",
			"Failed attempts of the node's verification, up to maxRetries; inconclusive ones are not counted.", "node"),
		healthyDesc: desc("controller_healthy", "1 if the controller's caches are synchronized with the API server."),
		leaderDesc:  desc("leader", "1 if this replica is the leader."),
		nodes:       desc("nodes", "Nodes by state: pending, verifying, verified, failed or held.", "state"),
		waitingDesc: desc("waiting_nodes",
			"Nodes that wait for a prerequisite (by kind and name), for a slot, for registration by Karpenter, "+
				"or for initialization by a cloud provider or Cluster API. A node "+
				"that waits for several of them counts for each.", "for", "nodepool"),
		held: desc("remediation_held", "Failed nodes whose next action is held, by guard.", "guard"),
		shared: desc("shared_failures", "Nodes that worked and whose last failure verified nodes of their pool and profile "+
			"share, or could not be compared. Their gates stay as they are."),
		otherEffect: desc("other_effect_nodes", "Nodes that carry the key of a gating taint with an effect that gates "+
			"nothing. Such a taint stays, whatever is verified."),
		deadlineExceeded: desc("deadline_exceeded",
			"1 for a node with the condition reason DeadlineExceeded, whatever the cause.", "node"),
		build: desc("build_info",
			"1, with the version, commit and Go release of this binary.", "version", "commit", "go_version"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.status, c.duration, c.pods, c.retries, c.healthyDesc, c.leaderDesc, c.nodes,
		c.waitingDesc, c.held, c.shared, c.otherEffect, c.deadlineExceeded, c.build} {
		ch <- d
	}
}

// ScrapeTimeout bounds the reading of the informers, which is in memory.
const ScrapeTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.build, 1, version.Version, version.Commit, runtime.Version())
	gauge(c.healthyDesc, number(c.healthy()))
	gauge(c.leaderDesc, number(c.leader()))
	if !c.leader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ScrapeTimeout)
	defer cancel()
	inputs, verified, err := c.snapshot(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.nodes, err)
		return
	}
	now := c.now()
	statuses := map[decide.Status]*dto.LabelPair{}
	for _, s := range decide.Statuses() {
		statuses[s] = LabelPair("status", string(s))
	}
	states, pods, held := map[decide.Status]int{decide.StatusVerified: verified}, map[string]int{}, map[string]int{}
	shared, otherEffect := 0, 0
	for in := range inputs {
		for _, p := range in.Pods {
			pods[podStatus(p)]++
		}
		if in.Selected && len(in.Node.OtherEffect) > 0 {
			otherEffect++
		}
		s := decide.StatusOf(in, now)
		if s == "" {
			continue
		}
		states[s]++
		if s == decide.StatusHeld {
			held[in.Node.Record.Held]++
		}
		if decide.SharesFailure(in) {
			shared++
		}
		if c.perNode == config.PerNodeNone || c.perNode == config.PerNodeUnverified && s == decide.StatusVerified {
			continue
		}
		c.node(ch, in, statuses[s])
	}
	for _, s := range decide.Statuses() {
		gauge(c.nodes, float64(states[s]), string(s))
	}
	gauge(c.shared, float64(shared))
	gauge(c.otherEffect, float64(otherEffect))
	for w, n := range c.waitingNodes() {
		gauge(c.waitingDesc, float64(n), w.For, w.Pool)
	}
	for _, s := range []string{"pending", "running", "succeeded", "failed"} {
		gauge(c.pods, float64(pods[s]), s)
	}
	for _, name := range decide.GuardNames() {
		gauge(c.held, float64(held[name]), name)
	}
}

// maxWaits bounds the series of waiting_nodes, since the number of DaemonSets and NodePools is not bounded.
const maxWaits = 200

// waitingNodes counts the nodes that wait, by what for; what the fewest nodes wait for is counted together beyond
// maxWaits.
func (c *Collector) waitingNodes() map[decide.WaitingLabels]int {
	of := c.waiting()
	byName := func(a, b decide.WaitingLabels) int {
		return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.Pool, b.Pool))
	}
	count := map[decide.WaitingLabels]int{}
	for _, w := range slices.SortedFunc(maps.Keys(of), byName) {
		count[decide.WaitingLabels{For: w.For, Pool: c.pools.label(w.Pool)}] += of[w]
	}
	for _, kind := range []string{decide.UnmetSlot, decide.UnmetRegistration, decide.UnmetInitialization} {
		count[decide.WaitingLabels{For: kind}] += 0
	}
	if len(count) <= maxWaits {
		return count
	}
	most := func(a, b decide.WaitingLabels) int { return cmp.Or(cmp.Compare(count[b], count[a]), byName(a, b)) }
	few := slices.SortedFunc(maps.Keys(count), most)[maxWaits-1:]
	for _, w := range few {
		n := count[w]
		delete(count, w)
		count[decide.WaitingLabels{For: other}] += n
	}
	return count
}

// node sends the series of a node.
func (c *Collector) node(ch chan<- prometheus.Metric, in decide.Input, status *dto.LabelPair) {
	name := []*dto.LabelPair{LabelPair("node", in.Node.Name)}
	ch <- NodeGauge(c.status, name[0], status)
	if decide.ReportsDeadlineExceeded(in) {
		ch <- NodeGauge(c.deadlineExceeded, name...)
	}
	r := in.Node.Record
	if r.LastOutcome != "" {
		ch <- &series{desc: c.duration, labels: name, value: (time.Duration(r.DurationMs) * time.Millisecond).Seconds()}
	}
	ch <- &series{desc: c.retries, labels: name, value: float64(r.Attempts), counter: true}
}

func podStatus(p workerpod.Observation) string {
	switch {
	case p.State == workerpod.Pending:
		return "pending"
	case p.State == workerpod.Running:
		return "running"
	case p.Passed():
		return "succeeded"
	}
	return "failed"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
