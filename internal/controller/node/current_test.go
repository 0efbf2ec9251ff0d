package node_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A new node costs a leader no read. Nor does the node's next attempt, while the cache has the record of the last one.
func TestNewNodeIsNotRead(t *testing.T) {
	w := world.Begin(t, "")
	failures := 1
	w.Exit = func(*corev1.Pod) int {
		failures--
		return failures + 1
	}
	l := w.Lead()
	n := w.Node("n")
	l.Steps(2)
	l.Drive()
	if r := w.Record(n.Name); r.Sequence != 2 || r.LastOutcome != attempt.Passed {
		t.Fatalf("record %+v", r)
	}
	if len(l.Reads) > 0 {
		t.Errorf("read %d times", len(l.Reads))
	}
}

// The cached node must be proved to hold the last record. Otherwise an attempt would start that is already recorded.
func TestNodeThatMissedARecordIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		fault world.Fault
		heir  bool
		gone  bool
		// awaited: it is known that the watch has more to show.
		awaited bool
	}{
		"this leader wrote it":      {awaited: true},
		"the answer to it was lost": {fault: world.Fault{At: 2, Err: world.ErrDead, After: true}},
		"its predecessor wrote it":  {heir: true},
		"the node is gone":          {gone: true, awaited: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.OnServer(t, `{"reconciliation": {"initialBackoffSeconds": 60, "maxBackoffSeconds": 60}}`) // longer than the watch is waited for
			w.Exit = func(*corev1.Pod) int { return 1 }
			l := w.Lead(func(l *world.Leader) { l.Fault = test.fault })
			n := w.Node("n")
			before, _ := w.Get(n.Name)
			for w.Record(n.Name).Sequence == 0 {
				l.Steps(1)
			}
			for _, p := range w.Pods(n.Name) {
				w.Must(w.API.Delete(w.Ctx, &p, client.GracePeriodSeconds(0)))
			}
			if test.heir {
				l = w.Lead()
			}
			l.StaleNodes[n.Name] = before
			l.Deliver()
			if test.gone {
				w.Must(w.API.Delete(w.Ctx, n.DeepCopy()))
			}
			if test.awaited {
				again, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name))
				w.Must(err)
				if len(l.Reads) > 0 || len(w.Pods(n.Name)) > 0 || again.RequeueAfter <= 0 {
					t.Errorf("the watch was not waited for: read %d times, %d workers, %+v", len(l.Reads), len(w.Pods(n.Name)), again)
				}
				w.Clock.Advance(again.RequeueAfter)
			}
			for range 2 { // what the first learns is known to the second
				if _, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name)); err != nil {
					t.Fatal(err)
				}
			}
			if len(l.Reads) == 0 || len(w.Pods(n.Name)) > 0 {
				t.Errorf("read %d times, %d workers", len(l.Reads), len(w.Pods(n.Name)))
			}
		})
	}
}

// A watch without events for a long time may have ended. So changes that others made to the node since may be unknown.
func TestNodeOfASilentWatchIsRead(t *testing.T) {
	w := world.Begin(t, "")
	l := w.Lead()
	n := w.Node("n")
	l.Deliver()
	w.Clock.Advance(time.Minute)
	if _, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name)); err != nil {
		t.Fatal(err)
	}
	if len(l.Reads) != 1 || len(w.Pods(n.Name)) != 1 {
		t.Errorf("read %d times, %d workers", len(l.Reads), len(w.Pods(n.Name)))
	}
}
