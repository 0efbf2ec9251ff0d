package effects

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// A node that comes to a leader costs no read; nor does its next attempt, while the cache has the record of the last.
func TestNewNodeIsNotRead(t *testing.T) {
	w := begin(t, "")
	failures := 1
	w.exit = func(*corev1.Pod) int {
		failures--
		return failures + 1
	}
	l := w.leads()
	n := w.node("n")
	l.turns(2)
	l.drive()
	if r := w.record(n.Name); r.Sequence != 2 || r.LastOutcome != attempt.Passed {
		t.Fatalf("record %+v", r)
	}
	if len(l.reads) > 0 {
		t.Errorf("read %d times", len(l.reads))
	}
}

// What the cache has of a node must be proved to hold the last record: else an attempt would start that is recorded already.
func TestNodeThatMissedARecordIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		fault fault
		heir  bool
		gone  bool
		// awaited: it is known that the watch has more to show.
		awaited bool
	}{
		"this leader wrote it":      {awaited: true},
		"the answer to it was lost": {fault: fault{at: 2, err: errDead, after: true}},
		"its predecessor wrote it":  {heir: true},
		"the node is gone":          {gone: true, awaited: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, `{"reconciliation": {"initialBackoffSeconds": 60, "maxBackoffSeconds": 60}}`) // longer than the watch is waited for
			w.exit = func(*corev1.Pod) int { return 1 }
			l := w.leads(func(l *leader) { l.fault = test.fault })
			n := w.node("n")
			before, _ := w.get(n.Name)
			for w.record(n.Name).Sequence == 0 {
				l.turns(1)
			}
			for _, p := range w.pods(n.Name) {
				w.must(api.Delete(w.ctx, &p, client.GracePeriodSeconds(0)))
			}
			if test.heir {
				l = w.leads()
			}
			l.stale[n.Name] = before
			l.show()
			if test.gone {
				w.must(api.Delete(w.ctx, n.DeepCopy()))
			}
			if test.awaited {
				again, err := l.nodes.Reconcile(w.ctx, request(n.Name))
				w.must(err)
				if len(l.reads) > 0 || len(w.pods(n.Name)) > 0 || again.RequeueAfter <= 0 {
					t.Errorf("the watch was not waited for: read %d times, %d workers, %+v", len(l.reads), len(w.pods(n.Name)), again)
				}
				w.clock.advance(again.RequeueAfter)
			}
			for range 2 { // what the first learns is known to the second
				if _, err := l.nodes.Reconcile(w.ctx, request(n.Name)); err != nil {
					t.Fatal(err)
				}
			}
			if len(l.reads) == 0 || len(w.pods(n.Name)) > 0 {
				t.Errorf("read %d times, %d workers", len(l.reads), len(w.pods(n.Name)))
			}
		})
	}
}

// A watch that has shown nothing for long may have ended: what others did to the node since is not known.
func TestNodeOfASilentWatchIsRead(t *testing.T) {
	w := begin(t, "")
	l := w.leads()
	n := w.node("n")
	l.show()
	w.clock.advance(time.Minute)
	if _, err := l.nodes.Reconcile(w.ctx, request(n.Name)); err != nil {
		t.Fatal(err)
	}
	if len(l.reads) != 1 || len(w.pods(n.Name)) != 1 {
		t.Errorf("read %d times, %d workers", len(l.reads), len(w.pods(n.Name)))
	}
}
