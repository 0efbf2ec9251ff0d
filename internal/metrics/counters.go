// Package metrics is what Prometheus sees of the controller. Counters and histograms count what this process did; every
// gauge, and all that names a node, is computed at scrape time from what the API server holds, so that it is right after
// a failover and vanishes with its node.
package metrics

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
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
	eventsDropped   prometheus.Counter
	unknownTaints   *prometheus.GaugeVec

	known map[string]string // types of the configured checks, by name
	pools pools
}

// NewCounters makes the metrics. checks are the types of the configured checks by name, the only ones that become labels: a
// report is not trusted to name series.
func NewCounters(checks map[string]string) *Counters {
	c := &Counters{known: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if len(c.known) < maxCheckNames {
			c.known[name] = checks[name]
		}
	}
	c.verifications = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: "verifications_total",
		Help: "Attempts that ended, by what they said about their node: success, failed or inconclusive."}, []string{"status"})
	c.verdicts = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: "first_verdicts_total",
		Help: "New nodes by the first verdict about them, each once: verified; exhausted, its retries; or shared, as many " +
			"failures which verified nodes share or cannot be compared with."}, []string{"verdict"})
	c.reconcileErrors = prometheus.NewCounter(prometheus.CounterOpts{Namespace: Namespace, Name: "controller_reconcile_errors_total",
		Help: "Reconciles that ended with an error and are tried again."})
	c.timeToVerified = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: Namespace, Name: "time_to_verified_seconds",
		Help:    "Time from a node's creation to its first verification.",
		Buckets: []float64{1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600}})
	c.timeByPhase = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: "time_to_schedulable_seconds",
		Help:    "Where the time of a new node went, from when the leader saw it to its release: prerequisites, slot, start, checks, registration or release. A released node counts once in each.",
		Buckets: []float64{.1, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800}}, []string{"phase", "nodepool"})
	c.checkResults = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: "check_results_total",
		Help: "Results of single checks as reported by workers, by check, type and outcome."}, []string{"check", "type", "outcome"})
	c.checkDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: "check_duration_seconds",
		Help:    "Duration of single checks as reported by workers.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"check"})
	c.remediations = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: "remediations_total",
		Help: "Deletions of failed nodes that came to a result, by kind (" + strings.Join(owner.Names(), ", ") + ") and result (deleted, held, error)."}, []string{"kind", "result"})
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
	c.backfills = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: "backfills_total",
		Help: "Nodes that admission missed, by what became of them: tainted, or occupied by ordinary pods and left alone."}, []string{"result"})
	for _, r := range []string{BackfillTainted, BackfillOccupied} {
		c.backfills.WithLabelValues(r)
	}
	c.eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{Namespace: Namespace, Name: "events_dropped_total",
		Help: "Events on nodes that were not written: too many at once, or refused by the API server."})
	c.unknownTaints = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: Namespace, Name: "unknown_startup_taint",
		Help: "1 for a gating taint that Karpenter does not know: it is not in the NodePool's startupTaints; without a NodePool, in none's."}, []string{"nodepool", "taint"})
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
		c.checkResults, c.checkDuration, c.remediations, c.backfills, c.eventsDropped, c.unknownTaints}
}

// ReconcileError counts a reconcile that will be tried again.
func (c *Counters) ReconcileError() { c.reconcileErrors.Inc() }

// Released counts a node of a NodePool that was released, by where its time went; nil counts for nothing.
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
	RemediationHeld    = "held"
	RemediationError   = "error"
)

// Remediation counts a deletion of a kind (owner.Kinds) that came to a result.
func (c *Counters) Remediation(kind, result string) {
	c.remediations.WithLabelValues(kind, result).Inc()
}

// Results of a look at a node that admission missed.
const (
	BackfillTainted  = "tainted"
	BackfillOccupied = "occupied"
)

// Backfill counts a node that admission missed.
func (c *Counters) Backfill(result string) { c.backfills.WithLabelValues(result).Inc() }

// EventDropped counts an event that was not written.
func (c *Counters) EventDropped() { c.eventsDropped.Inc() }

// UnknownTaints sets those that there are now.
func (c *Counters) UnknownTaints(unknown []decide.UnknownTaint) {
	c.unknownTaints.Reset()
	for _, u := range unknown {
		c.unknownTaints.WithLabelValues(u.Pool, u.Taint.Key+":"+string(u.Taint.Effect)).Set(1)
	}
}

// Recorded counts an attempt whose result was recorded, of a node that was created at the given time.
func (c *Counters) Recorded(a decide.Recorded, created, now time.Time) {
	status := map[attempt.Outcome]string{attempt.Passed: statusSuccess, attempt.Failed: statusFailed}[a.Result.Outcome]
	if status == "" {
		status = statusInconclusive
	}
	c.verifications.WithLabelValues(status).Inc()
	if a.Verdict != "" {
		c.verdicts.WithLabelValues(string(a.Verdict)).Inc()
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
