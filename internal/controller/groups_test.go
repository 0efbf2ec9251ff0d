package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// waker is a tracker whose clock a test moves.
type waker struct {
	*Tracker
	now time.Time
	cfg *config.Config
}

func newWaker(t *testing.T) *waker {
	t.Helper()
	w := &waker{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), cfg: &config.Config{}}
	w.cfg.SetDefaults()
	w.Tracker = NewTracker(func() time.Time { return w.now }, false)
	return w
}

// node is a node of a pool with the record.
func (w *waker) node(name, pool string, gated bool, r marks.Record) decide.Input {
	in := decide.Input{Config: w.cfg, Profile: w.cfg.For(nil), Checks: "c1", Selected: true,
		Node: marks.Facts{Name: name, UID: name, BootID: "b1", Gated: gated, Labelled: !gated, Ready: true, HasRecord: true, Record: r}}
	in.Node.Owner.Pool = pool
	in.Node.Record.NodeUID, in.Node.Record.BootID, in.Node.Record.Checks = name, "b1", "c1"
	in.Node.Record.LastTime = &w.now
	return in
}

func (w *waker) shares(name, pool string) decide.Input {
	at := w.now.Add(-time.Hour)
	return w.node(name, pool, false, marks.Record{Sequence: 2, LastOutcome: attempt.Inconclusive, Shared: 1, Inconclusive: 1, VerifiedTime: &at})
}

func (w *waker) isExhausted(name, pool string) decide.Input {
	return w.node(name, pool, true, marks.Record{Sequence: 5, Attempts: 5, LastOutcome: attempt.Failed})
}

// passed is a pass of a node of pool p.
func (w *waker) passed() { w.GroupPassed(w.node("passes", "p", true, marks.Record{})) }

// woken are the nodes that are woken now.
func (w *waker) woken() (names []string) {
	for {
		name, ok := w.NextWoken()
		if !ok {
			return names
		}
		names = append(names, name)
	}
}

func TestPassWakesItsGroup(t *testing.T) {
	w := newWaker(t)
	expect := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(w.woken()); got != want {
			t.Errorf("%s: woken %s, want %s", when, got, want)
		}
	}
	for _, in := range []decide.Input{w.shares("b", "p"), w.shares("a", "p"), w.shares("other", "q"), w.isExhausted("x", "p")} {
		w.observeGroup(in)
	}
	in := w.shares("a", "p")
	if w.ofGroup(&in); in.Sharing != 2 || !in.GroupPassed.IsZero() {
		t.Errorf("%d share it, passed %s", in.Sharing, in.GroupPassed)
	}
	expect("before a pass", "[]")
	w.now = w.now.Add(10 * time.Second)
	w.passed()
	expect("a pass", "[a b]")
	if w.ofGroup(&in); !in.GroupPassed.Equal(w.now) {
		t.Errorf("a is not due: %s", in.GroupPassed)
	}
	w.now = w.now.Add(wakeEvery - time.Second)
	w.passed()
	expect("within a minute", "[]")
	w.now = w.now.Add(wakeEvery)
	w.passed()
	w.passed()
	expect("after a quiet minute", "[a b x]")
	w.now = w.now.Add(wakeEvery)
	w.passed()
	expect("an exhausted node once", "[a b]")
	w.observeGroup(w.node("a", "p", false, marks.Record{Sequence: 3, LastOutcome: attempt.Passed, VerifiedTime: &w.now}))
	w.NodeGone("x")
	w.now = w.now.Add(wakeEvery)
	w.passed()
	w.NodeGone("b")
	expect("those that passed and are gone", "[]")
	w.observeGroup(w.node("other", "q", false, marks.Record{Sequence: 3, LastOutcome: attempt.Passed, VerifiedTime: &w.now}))
	if len(w.groups) != 0 || len(w.waiting) != 0 {
		t.Errorf("left: %v, %v", w.groups, w.waiting)
	}
}

// Thousands of broken nodes whose retries are exhausted cost a busy pool nothing: no pass makes one due, also after another
// process begins to lead, and with exhaustedRetrySeconds: -1 never.
func TestExhaustedNodesBesideABusyPool(t *testing.T) {
	w := newWaker(t)
	for i := range 5000 {
		w.observeGroup(w.isExhausted(fmt.Sprint("n", i), "p"))
	}
	for range 600 {
		w.now = w.now.Add(wakeEvery / 6)
		w.passed()
		if names := w.woken(); len(names) > 0 {
			t.Fatalf("woken: %d nodes", len(names))
		}
	}
	off := newWaker(t)
	off.cfg.Reconciliation.ExhaustedRetrySeconds = -1
	off.observeGroup(off.isExhausted("x", "p"))
	off.now = off.now.Add(time.Hour)
	if off.passed(); len(off.woken()) > 0 {
		t.Error("woken, although no retry follows")
	}
}
