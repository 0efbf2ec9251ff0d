package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/verify"
)

// Colours of a terminal (ECMA-48 select graphic rendition).
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	grey   = "\x1b[90m"
	reset  = "\x1b[0m"
)

// isTerminal is true for a writer that a person looks at; NO_COLOR (https://no-color.org) is
// honoured where colour is concerned.
func isTerminal(w io.Writer) bool {
	if l, ok := w.(*later); ok {
		w = l.to
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func colours(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }

// printReport prints one line of JSON, or a table.
func printReport(w io.Writer, form string, r result.Report) error {
	if form == outputJSON {
		_, err := fmt.Fprintf(w, "%s\n", r.Encode())
		return err
	}
	var rows [][]string
	var marks []string
	for _, c := range r.Checks {
		mark, colour := symbol(c.Outcome)
		if colours(w) {
			mark = colour + mark + reset
		}
		marks = append(marks, mark)
		took := (time.Duration(c.DurationMs) * time.Millisecond).String()
		if c.Outcome == result.Skipped {
			took = "-"
		}
		reason := c.Reason
		if reason == "" {
			reason = "-"
		}
		rows = append(rows, []string{c.Name, c.Type, string(c.Outcome), took, reason, c.Message})
	}
	var b strings.Builder
	for i, line := range align(append([][]string{{"CHECK", "TYPE", "OUTCOME", "TIME", "REASON", "MESSAGE"}}, rows...)) {
		if i == 0 {
			b.WriteString("  " + line + "\n")
			continue
		}
		b.WriteString(marks[i-1] + " " + line + "\n")
	}
	b.WriteString(verdict(r) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is the last line of the table.
func verdict(r result.Report) string {
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
	node := r.Node
	if node == "" {
		node = "this node"
	}
	line := fmt.Sprintf("%s: %s in %s (%s)", node, r.Outcome, time.Duration(r.DurationMs)*time.Millisecond, strings.Join(parts, ", "))
	if count[result.Skipped] == len(r.Checks) {
		line += ": nothing was checked"
	}
	return line
}

func symbol(o result.Outcome) (mark, colour string) {
	switch o {
	case result.Passed:
		return "✓", green
	case result.Inconclusive:
		return "?", yellow
	case result.Warning:
		return "!", yellow
	case result.Skipped:
		return "-", grey
	default:
		return "✗", red
	}
}

// align pads the columns, the last one excepted, to equal width.
func align(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 {
				cell += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			}
			lines[n] += cell
		}
		lines[n] = strings.TrimRight(lines[n], " ")
	}
	return lines
}

// printList prints the checks that would be performed.
func printList(w io.Writer, form string, o verify.Options) error {
	specs := o.Config.Expand()
	selected, err := o.Select(specs)
	if err != nil {
		return err
	}
	if form == outputJSON {
		kept := specs[:0]
		for _, s := range specs {
			if selected[s.Name] {
				kept = append(kept, s)
			}
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(kept)
	}
	rows := [][]string{{"CHECK", "TYPE", "SEVERITY", "TIMEOUT", "ATTEMPTS", "DEPENDS ON"}}
	for _, s := range specs {
		if selected[s.Name] {
			rows = append(rows, []string{s.Name, string(s.Type), string(s.Severity), s.Timeout().String(),
				fmt.Sprint(s.MaxAttempts()), strings.Join(s.DependsOn, ", ")})
		}
	}
	_, err = io.WriteString(w, strings.Join(align(rows), "\n")+"\n")
	return err
}
