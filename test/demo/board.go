package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// row is a node as the API server has it.
type row struct {
	name    string
	facts   node.Facts
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

func state(f node.Facts) string {
	reason := ""
	if f.Condition != nil {
		reason = f.Condition.Reason
	}
	switch {
	case f.Labelled && !f.Gated:
		return stateVerified
	case reason == node.ReasonRetriesExhausted:
		return stateFailed
	case f.Record.LastOutcome == node.OutcomeFailed, f.Record.LastOutcome == node.OutcomeInconclusive:
		return stateRetry
	case !f.Gated:
		return stateUnmarked
	default:
		return stateTainted
	}
}

// failing names the check that failed last, and how.
func failing(f node.Facts) string {
	if f.Record.LastOutcome == "" || f.Record.LastOutcome == node.OutcomePassed {
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
}

func newBoard(out *os.File, start time.Time) *board {
	width, _, err := term.GetSize(int(out.Fd()))
	if width == 0 {
		width = math.MaxInt // some terminals do not say
	}
	return &board{out: out, live: err == nil, width: width, start: start, rows: map[string]*row{}, shown: map[string]string{}, told: map[types.UID]int32{}}
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

// nodeChanged takes a node's new state.
func (b *board) nodeChanged(n *corev1.Node) {
	f, err := node.Observe(n, []config.Taint{gate}, verified)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.line(n.Name, "demo", err.Error())
	}
	r := b.at(n.Name)
	r.facts = f
	if s := state(f); s == stateVerified || s == stateFailed {
		if !r.ended {
			r.ended, r.time = true, time.Since(b.from)
		}
	} else {
		r.ended = false
	}
	b.tell(r)
}

// at is a node's row, made where it is missing.
func (b *board) at(name string) *row {
	if b.rows[name] == nil {
		b.rows[name] = &row{name: name}
	}
	return b.rows[name]
}

// tell says how a node stands, where there is no table and it has changed.
func (b *board) tell(r *row) {
	if b.live && b.table {
		return
	}
	line := fmt.Sprintf("attempt %d", r.attempt())
	if check := failing(r.facts); check != "" && r.state() != stateVerified {
		line += ", failing check " + check
	}
	if now := r.state() + line; now != b.shown[r.name] {
		b.shown[r.name] = now
		b.line(r.name, r.state(), line)
	}
}

// podChanged takes a worker pod's new state; gone is true once it is deleted.
func (b *board) podChanged(p *corev1.Pod, gone bool) {
	attempt, err := strconv.ParseInt(p.Annotations[workerpod.AnnotationAttempt], 10, 32)
	if err != nil {
		return // not a worker that verifies
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.at(p.Annotations[workerpod.AnnotationNode])
	switch {
	case !gone:
		r.working = max(r.working, int32(attempt))
	case r.working == int32(attempt):
		r.working = 0
	}
	b.tell(r)
}

// eventSeen shows an event on a node once.
func (b *board) eventSeen(e *corev1.Event) {
	if e.InvolvedObject.Kind != "Node" || e.LastTimestamp.IsZero() && e.EventTime.IsZero() && e.FirstTimestamp.IsZero() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if count, ok := b.told[e.UID]; ok && count == e.Count {
		return
	}
	b.told[e.UID] = e.Count
	b.line(e.InvolvedObject.Name, e.Reason, e.Message)
}

// follow feeds the board from the API server until stop is called.
func follow(ctx context.Context, client kubernetes.Interface, b *board) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.nodeChanged(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { b.nodeChanged(obj.(*corev1.Node)) },
	})
	if err != nil {
		return nil, err
	}
	_, err = factory.Core().V1().Events().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.eventSeen(obj.(*corev1.Event)) },
		UpdateFunc: func(_, obj any) { b.eventSeen(obj.(*corev1.Event)) },
	})
	if err != nil {
		return nil, err
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.podChanged(obj.(*corev1.Pod), false) },
		UpdateFunc: func(_, obj any) { b.podChanged(obj.(*corev1.Pod), false) },
		DeleteFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok {
				b.podChanged(p, true)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("list %v: %w", kind, context.Cause(ctx))
		}
	}
	return func() {
		cancel()
		factory.Shutdown()
	}, nil
}
