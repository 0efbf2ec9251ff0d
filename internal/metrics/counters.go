// Package metrics exports the controller's metrics. Counters and histograms count what this process did. Gauges, and
// all series with a node label, are computed at scrape time from the caches, so that they are right after a failover
// and end with their node.
package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Namespace begins the names of the metrics.
const Namespace = "kube_node_ready"

// maxCheckNames bounds the check label.
const maxCheckNames = 200

// Counters are the metrics that the reconciler writes.
type Counters struct {
	verifications   *prometheus.CounterVec
	verdicts        *prometheus.CounterVec
	reconcileErrors prometheus.Counter
	timeToVerified  prometheus.Histogram
	timeByPhase     *prometheus.HistogramVec
	checkResults    *prometheus.CounterVec
	checkDuration   *prometheus.HistogramVec
	remediations    *prometheus.CounterVec
	backfills       *prometheus.CounterVec
	suspicions      *prometheus.CounterVec
	requests        *prometheus.CounterVec
	takenBack       *prometheus.CounterVec
	unverified      prometheus.Counter
	gatesRemoved    prometheus.Counter
	eventsDropped   prometheus.Counter
	unknownTaints   *prometheus.GaugeVec

	known    map[string]string                 // types of the configured checks, by name
	suspects map[corev1.NodeConditionType]bool // types of the conditions that make nodes suspect
	pools    pools
}

// NewCounters makes the metrics. checks maps the names of the configured checks to their types, suspects has the types
// of the conditions that make nodes suspect. Only these become labels, because reports and records are not trusted to
// name series.
func NewCounters(checks map[string]string, suspects map[corev1.NodeConditionType]bool) *Counters {
	c := &Counters{known: map[string]string{}, suspects: suspects}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if len(c.known) < maxCheckNames {
			c.known[name] = checks[name]
		}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets}
		return prometheus.NewHistogramVec(opts, labels)
	}
	c.verifications = counter("verifications_total",
		"Attempts that ended, by result: success, failed or inconclusive.", "status")
	c.verdicts = counter("first_verdicts_total",
		"New nodes by their first verdict in a run: verified, exhausted (no retries are left) or shared (as "+
			"many failures that verified nodes share, or that could not be compared).", "verdict")
	c.reconcileErrors = counter("controller_reconcile_errors_total",
		"Reconciles that failed and are retried.").WithLabelValues()
	c.timeToVerified = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: Namespace, Name: "time_to_verified_seconds",
		Help:    "Time from a node's creation to its first verification.",
		Buckets: []float64{1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600}})
	c.timeByPhase = histogram("time_to_schedulable_seconds",
		"Time that a new node spent in each phase before its release, as the leader observed it: prerequisites, slot, "+
			"start, init (its worker's init containers), checks, registration or release. A released node counts once for "+
			"each phase.",
		[]float64{.1, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800}, "phase", "nodepool")
	c.checkResults = counter("check_results_total",
		"Results of single checks that workers reported, by check, type and outcome.", "check", "type", "outcome")
	c.checkDuration = histogram("check_duration_seconds", "Duration of single checks that workers reported.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, "check")
	c.remediations = counter("remediations_total",
		"Remediations of failed nodes, by kind ("+strings.Join(owner.Names(), ", ")+" or Condition) and result (deleted; "+
			"started, of a condition that was set; held; error).",
		"kind", "result")
	c.backfills = counter("backfills_total",
		"Nodes that admission missed, by result: tainted, or occupied (untainted because it runs ordinary pods).", "result")
	c.suspicions = counter("suspicions_total",
		"Suspicions from node conditions, by the condition's type and result: accused (a verification began), cleared "+
			"(the node passed) or confirmed (an attempt failed and counts against the node).", "condition", "result")
	c.requests = counter("verification_requests_total",
		"Answered requests for a verification, by result: passed, failed or inconclusive.", "result")
	c.takenBack = counter("marks_taken_back_total",
		"Passes that another writer took back within a minute, from the third of a node in an hour on. By mark: taint (a "+
			"gating taint returned) or label (the verified label went).", "mark")
	c.unverified = counter("released_unverified_total",
		"Nodes whose gating taints were removed past their deadline although they had not passed "+
			"(reconciliation.onDeadline: release).").WithLabelValues()
	c.gatesRemoved = counter("gates_removed_total",
		"Gating taints that another writer removed from nodes before they had a record, so that the nodes are open and "+
			"unverified, or the taint was put back.").WithLabelValues()
	c.eventsDropped = counter("events_dropped_total",
		"Events that were not written: there were too many at once, or the API server rejected them.").WithLabelValues()
	c.unknownTaints = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: Namespace, Name: "unknown_startup_taint",
		Help: "1 for a gating taint that nodes of the NodePool carry but its startupTaints do not list."},
		[]string{"nodepool", "taint"})
	// A series that exists from the start shows its first increase.
	for _, s := range []string{statusSuccess, statusFailed, statusInconclusive} {
		c.verifications.WithLabelValues(s)
	}
	for _, v := range decide.Verdicts() {
		c.verdicts.WithLabelValues(string(v))
	}
	for _, phase := range decide.Phases() {
		c.timeByPhase.WithLabelValues(string(phase), "")
	}
	for _, k := range owner.Names() {
		for _, r := range []string{RemediationDeleted, RemediationHeld, RemediationError} {
			c.remediations.WithLabelValues(k, r)
		}
	}
	for _, r := range []string{RemediationStarted, RemediationHeld, RemediationError} {
		c.remediations.WithLabelValues(marks.KindCondition, r)
	}
	for _, condition := range slices.Sorted(maps.Keys(suspects)) {
		for _, r := range decide.SuspicionResults() {
			c.suspicions.WithLabelValues(string(condition), string(r))
		}
	}
	for _, r := range []attempt.Outcome{attempt.Passed, attempt.Failed, attempt.Inconclusive} {
		c.requests.WithLabelValues(string(r))
	}
	for _, m := range decide.Marks() {
		c.takenBack.WithLabelValues(string(m))
	}
	for _, r := range []string{BackfillTainted, BackfillOccupied} {
		c.backfills.WithLabelValues(r)
	}
	return c
}

const (
	statusSuccess      = "success"
	statusFailed       = "failed"
	statusInconclusive = "inconclusive"
)

// Collectors lists the metrics for registration.
func (c *Counters) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.verifications, c.verdicts, c.reconcileErrors, c.timeToVerified, c.timeByPhase,
		c.checkResults, c.checkDuration, c.remediations, c.backfills, c.suspicions, c.requests, c.takenBack,
		c.unverified, c.gatesRemoved, c.eventsDropped, c.unknownTaints}
}

// ReconcileError counts a reconcile that failed and is retried.
func (c *Counters) ReconcileError() { c.reconcileErrors.Inc() }

// Released counts a released node of a NodePool by the time that it spent in each phase. Nil is not counted.
func (c *Counters) Released(spent map[decide.Phase]time.Duration, pool string) {
	if spent == nil {
		return
	}
	pool = c.pools.label(pool)
	for _, p := range decide.Phases() {
		c.timeByPhase.WithLabelValues(string(p), pool).Observe(spent[p].Seconds())
	}
}

// Results of a remediation.
const (
	RemediationDeleted = "deleted"
	RemediationStarted = "started" // a condition was set
	RemediationHeld    = "held"
	RemediationError   = "error"
)

// Remediation counts the result of a deletion of a kind (owner.Kinds), or of marks.KindCondition.
func (c *Counters) Remediation(kind, result string) {
	c.remediations.WithLabelValues(kind, result).Inc()
}

// Results of a backfill.
const (
	BackfillTainted  = "tainted"
	BackfillOccupied = "occupied"
)

// Backfill counts a node that admission missed.
func (c *Counters) Backfill(result string) { c.backfills.WithLabelValues(result).Inc() }

// Suspicion counts the result of a suspicion from a condition of the type. An empty type is not counted.
func (c *Counters) Suspicion(condition corev1.NodeConditionType, result decide.SuspicionResult) {
	switch {
	case condition == "":
		return
	case !c.suspects[condition]: // the record is forged, or of another configuration
		condition = other
	}
	c.suspicions.WithLabelValues(string(condition), string(result)).Inc()
}

// TakenBack counts a pass that another writer took back. An empty mark is not counted.
func (c *Counters) TakenBack(mark decide.Mark) {
	if mark != "" {
		c.takenBack.WithLabelValues(string(mark)).Inc()
	}
}

// ReleasedUnverified counts a node that was released past its deadline although it had not passed.
func (c *Counters) ReleasedUnverified() { c.unverified.Inc() }

// GateRemoved counts a gating taint that another writer removed from a node without a record.
func (c *Counters) GateRemoved() { c.gatesRemoved.Inc() }

// EventDropped counts an event that was not written.
func (c *Counters) EventDropped() { c.eventsDropped.Inc() }

// UnknownTaints replaces the unknown taints.
func (c *Counters) UnknownTaints(unknown []decide.UnknownTaint) {
	c.unknownTaints.Reset()
	for _, u := range unknown {
		c.unknownTaints.WithLabelValues(u.Pool, u.Taint.Key+":"+string(u.Taint.Effect)).Set(1)
	}
}

// Recorded counts an attempt whose result was recorded, of a node that was created at the given time.
func (c *Counters) Recorded(a decide.Recorded, created, now time.Time) {
	known := map[attempt.Outcome]string{attempt.Passed: statusSuccess, attempt.Failed: statusFailed}
	c.verifications.WithLabelValues(cmp.Or(known[a.Result.Outcome], statusInconclusive)).Inc()
	if a.Verdict != "" {
		c.verdicts.WithLabelValues(string(a.Verdict)).Inc()
	}
	c.Suspicion(a.Suspicion, a.Suspect)
	if a.Answer != "" {
		c.requests.WithLabelValues(string(a.Answer)).Inc()
	}
	if a.Result.Outcome == attempt.Passed && a.First {
		c.timeToVerified.Observe(now.Sub(created).Seconds())
	}
	if a.Result.Report == nil {
		return
	}
	for _, check := range a.Result.Report.Checks {
		checkType, ok := c.known[check.Name]
		if !ok {
			continue
		}
		c.checkResults.WithLabelValues(check.Name, checkType, string(check.Outcome)).Inc()
		c.checkDuration.WithLabelValues(check.Name).Observe(float64(check.DurationMs) / 1000)
	}
}
