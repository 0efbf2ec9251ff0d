package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The start of a worker costs a read of its node, and so does the end of one that passed. A worker that failed is kept
// and marked as recorded, so its end costs none.
func TestReadsOfAnAttempt(t *testing.T) {
	w := world.Begin(t, "")
	failures := 1
	w.Exit = func(*corev1.Pod) int {
		failures--
		return failures + 1
	}
	l := w.Lead()
	n := w.Node("n")
	reads := 0
	costs := func(what string, want int, done func() bool) {
		t.Helper()
		for pass := 0; !done(); pass++ {
			if pass == 100 {
				t.Fatalf("%s: not in %d passes, record %+v", what, pass, w.Record(n.Name))
			}
			l.Steps(1)
		}
		if got := len(l.Reads) - reads; got != want {
			t.Errorf("%s: %d reads, want %d", what, got, want)
		}
		reads = len(l.Reads)
	}
	costs("a start", 1, func() bool { return len(w.Pods(n.Name)) > 0 })
	costs("a failure", 0, func() bool { return w.Record(n.Name).LastOutcome == attempt.Failed })
	costs("another start", 1, func() bool { return len(w.Pods(n.Name)) == 2 })
	costs("a pass", 0, func() bool { return w.Record(n.Name).LastOutcome == attempt.Passed })
	l.Drive()
	costs("the end of both workers", 1, func() bool { return len(w.Pods(n.Name)) == 0 })
}

// A cache that lacks the last record starts no attempt that is recorded already, whoever wrote the record.
func TestNoAttemptStartsTwice(t *testing.T) {
	for name, test := range map[string]struct {
		fault world.Fault
		heir  bool
		gone  bool
	}{
		"this leader wrote it":      {},
		"the answer to it was lost": {fault: world.Fault{At: 2, Err: world.ErrDead, After: true}},
		"its predecessor wrote it":  {heir: true},
		"the node is gone":          {gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, `{"reconciliation": {"initialBackoffSeconds": 60, "maxBackoffSeconds": 60}}`)
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
			for range 2 {
				again, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name))
				w.Must(err)
				if again.RequeueAfter <= 0 {
					t.Errorf("it is not looked at again: %+v", again)
				}
			}
			if len(w.Pods(n.Name)) > 0 || !test.gone && w.Record(n.Name).Sequence != 1 {
				t.Errorf("%d workers, record %+v", len(w.Pods(n.Name)), w.Record(n.Name))
			}
		})
	}
}

// After somebody removed a record, attempts count from 1 again. A cache that still has the record takes the result of
// the new attempt 1 for one that is recorded. Its worker ends only once the API server's node has that result.
func TestNoWorkerEndsByAnEarlierRecord(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		record   string // that is left
		exit     int
	}{
		"removed":                    {},
		"unreadable":                 {record: "{"},
		"removed, the worker failed": {settings: `{"worker": {"keepFailedSeconds": 0}, "reconciliation": {"maxRetries": 1}}`, exit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, test.settings)
			w.Exit = func(*corev1.Pod) int { return test.exit }
			n := w.Verified("n")
			verified, _ := w.Get(n.Name)
			afresh := verified.DeepCopy()
			afresh.Spec.Taints = []corev1.Taint{world.Gating}
			delete(afresh.Labels, "node-ready/verified")
			delete(afresh.Annotations, marks.AnnotationRecord)
			if test.record != "" {
				afresh.Annotations[marks.AnnotationRecord] = test.record
			}
			w.Must(w.API.Update(w.Ctx, afresh))
			l := w.Lead()
			l.Steps(1)
			if pods := w.Pods(n.Name); len(pods) != 1 || pods[0].Status.Phase == corev1.PodPending {
				t.Fatalf("%d workers", len(pods))
			}
			l.StaleNodes[n.Name] = verified
			l.Deliver()
			_, err := l.Nodes.Reconcile(w.Ctx, world.Request(n.Name))
			w.Must(err)
			delete(l.StaleNodes, n.Name)
			l.Drive() // the referee sees to what is deleted
			if r := w.Record(n.Name); r.Sequence != 1 || (r.LastOutcome == attempt.Passed) != (test.exit == 0) || len(w.Pods(n.Name)) > 0 {
				t.Errorf("record %+v, %d workers", r, len(w.Pods(n.Name)))
			}
		})
	}
}
