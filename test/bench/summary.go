//go:build bench

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// result is what one turn of one side measured.
type result struct {
	Side  string `json:"side"`
	Turn  int    `json:"turn"`
	Nodes int    `json:"nodes"`
	// Values by metric.
	Values map[string]float64 `json:"values"`
	// Quantiles of the time that nodes were held, from the least to the most in steps of a fiftieth, in seconds.
	Quantiles []float64 `json:"quantiles,omitempty"`
	// Requests of the controller, by verb, resource and answer.
	Requests map[string]int `json:"requests,omitempty"`
}

// What is measured, with its unit.
const (
	metricP50      = "p50 s"
	metricP99      = "p99 s"
	metricMax      = "max s"
	metricTotal    = "in all s"
	metricTakeover = "takes over in s"
	metricPods     = "pods a node"
	metricLeft     = "pods left"
	metricWrites   = "writes a node"
	metricReads    = "reads a node"
	metricEvents   = "events a node"
	metricReceived = "KiB received a node"
	metricSent     = "KiB sent a node"
	metricIdle     = "writes while idle"
	metricCPU      = "CPU s"
	metricCore     = "% of a core"
	// What changes of a condition cost.
	metricChanges      = "CPU s of the changes"
	metricChangeWrites = "writes a change"
	metricCoreFloor    = "an empty informer's"
	metricCoreRatio    = "ratio to that"
	metricRSS          = "RSS MiB"
	metricScrape       = "scrape ms"
	metricAnon         = "anonymous MiB"
	metricReady        = "ready after s"
	metricReadyFloor   = "an empty informer after s"
	metricLines        = "lines of a scrape"
	metricRuled        = "a rule counts all after s"
	metricBirthP50     = "creation p50 ms"
	metricBirthP99     = "creation p99 ms"
	metricBirthMax     = "creation max ms"
	metricNodes        = "nodes in all"
	metricRSSBegin     = "RSS MiB warm"
	metricRSSEnd       = "RSS MiB at the end"
	metricGoBegin      = "goroutines warm"
	metricGoEnd        = "goroutines at the end"
)

// metrics are in the order of the tables' columns. Of those that are compared, the ratio to the sides before counts.
var metrics = []string{metricP50, metricP99, metricMax, metricTotal, metricTakeover, metricPods, metricLeft, metricWrites, metricReads, metricEvents,
	metricReceived, metricSent, metricIdle, metricCPU, metricChanges, metricChangeWrites, metricCore, metricCoreFloor, metricCoreRatio, metricRSS, metricAnon, metricReady, metricReadyFloor, metricScrape, metricLines, metricRuled, metricBirthP50, metricBirthP99, metricBirthMax, metricNodes, metricRSSBegin, metricRSSEnd, metricGoBegin, metricGoEnd}

var compared = []string{metricP50, metricP99, metricTotal, metricChanges, metricCore, metricBirthP50, metricBirthP99}

const quantileSteps = 50

// times enters how long nodes were held; waits must be sorted.
func (r *result) times(waits []float64, total float64) {
	at := func(q float64) float64 { return waits[int(q*float64(len(waits)-1))] }
	r.Values[metricP50], r.Values[metricP99], r.Values[metricMax], r.Values[metricTotal] = at(.5), at(.99), at(1), total
	for i := range quantileSteps + 1 {
		r.Quantiles = append(r.Quantiles, at(float64(i)/quantileSteps))
	}
}

func (r *result) line() string {
	var parts []string
	for _, m := range metrics {
		if v, ok := r.Values[m]; ok {
			parts = append(parts, m+" "+number(v))
		}
	}
	return strings.Join(parts, ", ")
}

// spread is the median of several turns, between the least and the most.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	return spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

func (s spread) String() string {
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number is a value with as many digits as mean something.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// row is a line of the table: a side, or its ratio to an earlier side in the same turn.
type row struct {
	Side    string            `json:"side"`
	Metrics map[string]spread `json:"metrics"`
}

// summarize makes a row of each side, and one of its ratio to each side before it.
func summarize(turns []result, sides []side) []row {
	values := func(side, metric string) map[int]float64 {
		byTurn := map[int]float64{}
		for _, r := range turns {
			if v, ok := r.Values[metric]; ok && r.Side == side {
				byTurn[r.Turn] = v
			}
		}
		return byTurn
	}
	var rows []row
	for i, s := range sides {
		of := row{s.name, map[string]spread{}}
		for _, m := range metrics {
			if byTurn := values(s.name, m); len(byTurn) > 0 {
				of.Metrics[m] = spreadOf(slices.Collect(maps.Values(byTurn)))
			}
		}
		rows = append(rows, of)
		for _, before := range sides[:i] {
			ratio := row{s.name + " / " + before.name, map[string]spread{}}
			for _, m := range compared {
				var ratios []float64
				base := values(before.name, m)
				for turn, v := range values(s.name, m) {
					if base[turn] > 0 {
						ratios = append(ratios, v/base[turn])
					}
				}
				if len(ratios) > 0 {
					ratio.Metrics[m] = spreadOf(ratios)
				}
			}
			if len(ratio.Metrics) > 0 {
				rows = append(rows, ratio)
			}
		}
	}
	return rows
}

// printTable prints rows as a Markdown table, with the columns that any of them has.
func printTable(w io.Writer, rows []row) {
	columns := slices.DeleteFunc(slices.Clone(metrics), func(m string) bool {
		return !slices.ContainsFunc(rows, func(r row) bool { _, ok := r.Metrics[m]; return ok })
	})
	_, _ = fmt.Fprintf(w, "| | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range rows {
		var cells []string
		for _, m := range columns {
			cell := ""
			if v, ok := r.Metrics[m]; ok {
				cell = v.String()
			}
			cells = append(cells, cell)
		}
		_, _ = fmt.Fprintf(w, "| %s | %s |\n", r.Side, strings.Join(cells, " | "))
	}
}
