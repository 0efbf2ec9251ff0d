package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// row is a node as the API server has it.
type row struct {
	name    string
	facts   marks.Facts
	working int32         // the attempt that its worker pod makes; counts until it is recorded
	time    time.Duration // since its registration, to its end
	ended   bool
}

func (r row) state() string {
	if r.working > r.facts.Record.Sequence {
		return stateVerifying
	}
	return state(r.facts)
}

func (r row) attempt() int32 { return max(r.working, r.facts.Record.Sequence) }

// States of a node, as the table has them.
const (
	stateTainted   = "tainted"
	stateUnmarked  = "label removed"
	stateVerifying = "verifying"
	stateRetry     = "waiting to retry"
	stateVerified  = "verified"
	stateFailed    = "retries exhausted"
)

func state(f marks.Facts) string {
	reason := ""
	if f.Condition != nil {
		reason = f.Condition.Reason
	}
	switch {
	case f.Labelled && !f.Gated:
		return stateVerified
	case reason == marks.ReasonRetriesExhausted:
		return stateFailed
	case f.Record.LastOutcome == attempt.Failed, f.Record.LastOutcome == attempt.Inconclusive:
		return stateRetry
	case !f.Gated:
		return stateUnmarked
	default:
		return stateTainted
	}
}

// failing names the check that failed last, and how.
func failing(f marks.Facts) string {
	if f.Record.LastOutcome == "" || f.Record.LastOutcome == attempt.Passed {
		return ""
	}
	return strings.TrimSuffix(f.Record.LastCheck+": "+f.Record.LastReason, ": ")
}

// board shows what happens: lines as they come and, on a terminal, a table below them that is
// drawn over and over.
type board struct {
	out   io.Writer
	live  bool // a terminal
	width int  // of the terminal; a longer line of the table would be two on the screen
	start time.Time

	mu    sync.Mutex
	from  time.Time // the nodes' registration
	rows  map[string]*row
	shown map[string]string // the last line about each node, where there is no table
	drawn int               // lines of the table on the screen
	table bool              // the table is shown
	told  map[types.UID]int32
	// history has each node's states, in the order that they came.
	history map[string][]change
}

func newBoard(out *os.File, start time.Time) *board {
	width, _, err := term.GetSize(int(out.Fd()))
	if width == 0 {
		width = math.MaxInt // some terminals do not say
	}
	return &board{out: out, live: err == nil, width: width, start: start, rows: map[string]*row{}, shown: map[string]string{}, told: map[types.UID]int32{}, history: map[string][]change{}}
}

func (b *board) begin(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from, b.table = now, true
}

// finish draws the table a last time.
func (b *board) finish() {
	b.draw()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drawn, b.table = 0, false
	if !b.live {
		_, _ = fmt.Fprint(b.out, "\n"+b.text(time.Now()))
	}
}

// picture draws the run, until shortly after the last node's end.
func (b *board) picture() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last time.Duration
	for _, r := range b.rows {
		last = max(last, r.time)
	}
	return picture(nodes, b.history, last+last/20)
}

// resume goes on with lines only.
func (b *board) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = false
}

func (b *board) row(name string) row {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.rows[name]; r != nil {
		return *r
	}
	return row{name: name}
}

// say prints a line about a node, above the table.
func (b *board) say(name, who, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line(name, who, what)
}

func (b *board) line(name, who, what string) {
	const width = 140 // a long message is in kubectl describe
	if runes := []rune(what); len(runes) > width {
		what = string(runes[:width-1]) + "…"
	}
	b.erase()
	_, _ = fmt.Fprintf(b.out, "%6.1fs  %-7s %-24s %s\n", time.Since(b.start).Seconds(), name, who, what)
	b.paint()
}

// draw brings the table up to date.
func (b *board) draw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	b.paint()
}

// erase removes the table: the cursor goes up by its lines and clears from there.
func (b *board) erase() {
	if b.drawn > 0 {
		_, _ = fmt.Fprintf(b.out, "\x1b[%dA\x1b[J", b.drawn)
		b.drawn = 0
	}
}

func (b *board) paint() {
	if !b.live || !b.table {
		return
	}
	lines := strings.Split("\n"+b.text(time.Now()), "\n")
	for i, line := range lines {
		lines[i] = line[:min(len(line), b.width)]
	}
	_, _ = fmt.Fprint(b.out, strings.Join(lines, "\n"))
	b.drawn = len(lines) - 1
}

func (b *board) text(now time.Time) string {
	var t strings.Builder
	fmt.Fprintf(&t, "  %-8s %-18s %7s  %-44s %6s\n", "NODE", "STATE", "ATTEMPT", "FAILING CHECK", "TIME")
	for _, s := range nodes {
		r := b.rows[s.name]
		if r == nil {
			continue
		}
		took := r.time
		if !r.ended {
			took = now.Sub(b.from)
		}
		check := failing(r.facts)
		if r.state() == stateVerified {
			check = ""
		}
		fmt.Fprintf(&t, "  %-8s %-18s %7d  %-44s %5.1fs\n", r.name, r.state(), r.attempt(), check, took.Seconds())
	}
	return t.String()
}
