package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// reset ends a colour of a terminal (ECMA-48 select graphic rendition).
const reset = "\x1b[0m"

// Text prints the report as a table for a person.
func Text(w io.Writer, r result.Report, colour bool) error {
	rows := [][]string{{"  CHECK", "TYPE", "OUTCOME", "TIME", "REASON", "MESSAGE"}}
	for _, c := range r.Checks {
		took := (time.Duration(c.DurationMs) * time.Millisecond).String()
		if c.Outcome == result.Skipped {
			took = "-"
		}
		mark, _ := symbol(c.Outcome)
		rows = append(rows, []string{mark + " " + c.Name, c.Type, string(c.Outcome), took, cmp.Or(c.Reason, "-"), c.Message})
	}
	lines := Table(rows)
	for n := range r.Checks {
		if mark, code := symbol(r.Checks[n].Outcome); colour {
			lines[n+1] = code + mark + reset + strings.TrimPrefix(lines[n+1], mark)
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(append(lines, summary(r)), "\n"))
	return err
}

// Table aligns rows in columns like kubectl's, and returns a line for each.
func Table(rows [][]string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

// summary is the last line of the table.
func summary(r result.Report) string {
	count := map[result.Outcome]int{}
	for _, c := range r.Checks {
		count[c.Outcome]++
	}
	var parts []string
	for _, o := range []result.Outcome{result.Failed, result.Inconclusive, result.Warning, result.Skipped, result.Passed} {
		if count[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[o], o))
		}
	}
	line := fmt.Sprintf("%s: %s in %s (%s)", cmp.Or(r.Node, "this node"), r.Outcome,
		time.Duration(r.DurationMs)*time.Millisecond, strings.Join(parts, ", "))
	if count[result.Skipped] == len(r.Checks) {
		line += ": nothing was checked"
	}
	return line
}

// symbol is the mark of an outcome, and the colour of the mark.
func symbol(o result.Outcome) (mark, colour string) {
	switch o {
	case result.Passed:
		return "✓", "\x1b[32m" // green
	case result.Inconclusive:
		return "?", "\x1b[33m" // yellow
	case result.Warning:
		return "!", "\x1b[33m"
	case result.Skipped:
		return "-", "\x1b[90m" // grey
	default:
		return "✗", "\x1b[31m" // red
	}
}
