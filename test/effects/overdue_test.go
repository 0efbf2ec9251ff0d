package effects

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// overdue is a deadline of half a minute, and attempts that take 45 s at most and come every five minutes.
const overdue = `{"worker": {"startTimeoutSeconds": 20, "timeoutSeconds": 20, "checkTimeoutSeconds": 10},
	"reconciliation": {"verificationDeadlineSeconds": 30, "initialBackoffSeconds": 300, "maxBackoffSeconds": 300},
	"nodeManagement": {` + deletes + `}}`

// takes is the longest that an attempt takes under overdue.
const takes = 45 * time.Second

func isProbe(p *corev1.Pod) bool { return p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe }

// verifies is an exit for the workers that verify; probes pass.
func verifies(code int) func(*corev1.Pod) int {
	return func(p *corev1.Pod) int {
		if isProbe(p) {
			return 0
		}
		return code
	}
}

func rejectsVerify(p *corev1.Pod) int { return verifies(rejects)(p) }

func withImage(n *corev1.Node) {
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"docker.io/library/kube-node-ready:test"}}}
}

// What keeps a node past its deadline leads to its deletion if it lies on the node, and never else.
func TestPastTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		settings string
		begin    func(*world) *corev1.Node
		deleted  bool
		says     string // of the condition's message
	}{
		"the kubelet rejects": {deleted: true, begin: func(w *world) *corev1.Node {
			w.exit = verifies(rejects)
			return w.node("n")
		}},
		"the kubelet rejects, of a NodeClaim": {deleted: true, begin: func(w *world) *corev1.Node {
			w.exit = verifies(rejects)
			n := w.node("n", pooled)
			w.claim(n)
			return n
		}},
		"without remediation.controlProbe a probe is made all the same": {settings: `{"nodeManagement": {"remediation": {"controlProbe": false}}}`, says: "not deleted: the same checks fail on verified node",
			begin: func(w *world) *corev1.Node {
				w.exit = func(p *corev1.Pod) int { return map[bool]int{true: 1, false: rejects}[isProbe(p)] }
				return w.node("n")
			}},
		"the kubelet rejects, and the probe fails": {says: "not deleted: the same checks fail on verified node", begin: func(w *world) *corev1.Node {
			w.exit = func(p *corev1.Pod) int { return map[bool]int{true: 1, false: rejects}[isProbe(p)] }
			return w.node("n")
		}},
		"the image is there, and the worker does not start": {deleted: true, begin: func(w *world) *corev1.Node {
			w.exit = verifies(stays)
			return w.node("n", withImage)
		}},
		"a registry that hangs, its image cached elsewhere": {says: attempt.ReasonStartTimeout, begin: func(w *world) *corev1.Node {
			w.exit = verifies(stays)
			return w.node("n")
		}},
		"a registry that hangs, and is asked whatever the node has": {settings: `{"worker": {"image": {"pullPolicy": "Always"}}}`, says: attempt.ReasonStartTimeout, begin: func(w *world) *corev1.Node {
			w.exit = verifies(stays)
			return w.node("n", withImage)
		}},
		"a registry that is down, its image cached elsewhere": {says: attempt.ReasonImagePull, begin: func(w *world) *corev1.Node {
			w.exit = verifies(pulls)
			return w.node("n", withImage)
		}},
		"it lacks what a verified node has": {deleted: true, begin: func(w *world) *corev1.Node {
			n := w.node("n")
			w.lacks = func(node string) bool { return node == n.Name }
			return n
		}},
		"it lacks what all lack": {says: "not deleted: verified node", begin: func(w *world) *corev1.Node {
			w.lacks = func(string) bool { return true }
			return w.node("n")
		}},
		"no slot": {says: "maxConcurrentVerifications", begin: func(w *world) *corev1.Node {
			const one = `{"reconciliation": {"maxConcurrentVerifications": 1}}`
			w.configure(overdue, one, `{"worker": {"startTimeoutSeconds": 86400}}`)
			w.exit = verifies(stays)
			w.node("busy")
			w.leads().turns(2) // its worker has a day to start
			w.configure(overdue, one)
			return w.node("n")
		}},
		"exit 2":  {says: attempt.ReasonConfigRefused, begin: func(w *world) *corev1.Node { w.exit = verifies(2); return w.node("n", withImage) }},
		"exit 3":  {says: attempt.ReasonClientSetup, begin: func(w *world) *corev1.Node { w.exit = verifies(3); return w.node("n", withImage) }},
		"exit 4":  {says: attempt.ReasonUndecided, begin: func(w *world) *corev1.Node { w.exit = verifies(4); return w.node("n", withImage) }},
		"exit 10": {says: attempt.ReasonInternalError, begin: func(w *world) *corev1.Node { w.exit = verifies(10); return w.node("n", withImage) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, overdue)
			w.configure(overdue, tc.settings)
			w.verified("control")
			n := tc.begin(w)
			l := w.leads()
			path{rounds: 8}.run(l, n)
			if _, claimed := n.Labels[owner.LabelNodePool]; claimed && !w.deleting(n.Name) || !claimed && tc.deleted != (len(w.gone()) == 1) {
				t.Fatalf("deleted: %v; record %+v", w.gone(), w.record(n.Name))
			}
			for what := range w.gone() {
				if !strings.HasSuffix(what, n.Name) {
					t.Errorf("%s was deleted", what)
				}
			}
			if len(l.errs) > 0 {
				t.Error(l.errs)
			}
			if tc.deleted {
				return
			}
			_, f := w.get(n.Name)
			if c := f.Condition; c == nil || c.Status != corev1.ConditionFalse || c.Reason != marks.ReasonDeadlineExceeded || !strings.Contains(c.Message, tc.says) {
				t.Errorf("it says %+v", c)
			}
			if f.Record.Deletion != nil || f.Record.Held != "" || w.emitted(n.Name, decide.EventFailed) != 1 || w.emitted(n.Name, decide.EventHeld) != 0 {
				t.Errorf("record %+v, %d events", f.Record, w.emitted(n.Name, decide.EventFailed))
			}
			// A pass releases it as ever.
			w.exit, w.lacks, w.lingers = verifies(0), nil, false
			w.clock.advance(5 * time.Minute)
			l.drive()
			if _, f := w.get(n.Name); !f.Labelled || f.Gated || f.Condition.Reason != marks.ReasonChecksPassed {
				t.Errorf("after a pass: %+v", f)
			}
		})
	}
}

// The API server was down, for the controller and for kubelets; the controller's process lives. The worker that it knows as not
// started may have passed long ago.
func TestPastTheDeadlineAfterAnOutageOfTheAPI(t *testing.T) {
	for _, outage := range []time.Duration{time.Minute, time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			w := begin(t, overdue)
			w.verified("other")
			n := w.node("n", withImage)
			l := w.leads()
			w.exit = verifies(stays)
			l.turns(2)
			if len(w.pods(n.Name)) != 1 {
				t.Fatal("no worker")
			}
			w.clock.advance(outage)
			w.exit = verifies(0) // what the kubelets say once they can
			path{rounds: 2}.run(l, n)
			if _, f := w.get(n.Name); !f.Labelled || f.Gated || len(w.gone()) > 0 {
				t.Errorf("%+v, deleted %v", f.Record, w.gone())
			}
		})
	}
}

// A process that did not know of the node grants it a full attempt, however long ago its deadline was.
func TestPastTheDeadlineIsNotTheControllersTime(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration // of the controller's absence
		begin func(*world) *corev1.Node
		// whole: the round begins with this process, so that the node has all its time.
		whole bool
	}{
		"the controller was down for an hour": {time.Hour, func(w *world) *corev1.Node {
			n := w.node("n", withImage)
			w.exit = verifies(rejects)
			w.leads().turns(4)
			return n
		}, false},
		"a month-old node without a record, whose taint came back": {30 * 24 * time.Hour, func(w *world) *corev1.Node { return w.node("n") }, false},
		"a month-old node that was verified, whose taint came back": {30 * 24 * time.Hour, func(w *world) *corev1.Node {
			n, now := w.node("n"), w.clock.Now().UTC()
			w.write(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed, BootID: "boot", LastTime: &now, VerifiedTime: &now})
			return n
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, overdue)
			w.configure(overdue, `{"reconciliation": {"initialBackoffSeconds": 10, "maxBackoffSeconds": 10, "verificationDeadlineSeconds": 120}, "nodeManagement": {"remediation": {"neverVerifiedOnly": false}}}`)
			n := tc.begin(w)
			w.clock.advance(tc.since)
			w.verified("control")
			w.exit = verifies(rejects)
			l, began, granted := w.leads(), w.clock.Now(), takes
			if tc.whole {
				granted = 2 * time.Minute
			}
			for w.clock.Now().Sub(began) < granted-time.Second {
				if _, wait := l.turn(); wait > 0 {
					w.clock.advance(min(wait, time.Second))
				}
				if have, f := w.get(n.Name); have == nil || f.Record.DeadlineCause != nil || f.Condition != nil && f.Condition.Reason == marks.ReasonDeadlineExceeded {
					t.Fatalf("after %s: %+v", w.clock.Now().Sub(began), f)
				}
			}
			if s := w.record(n.Name).Since; tc.whole != (s != nil) {
				t.Errorf("the round began %v", s)
			}
			for range 60 {
				if len(w.gone()) > 0 {
					return
				}
				_, wait := l.turn()
				w.clock.advance(min(wait, time.Second))
			}
			t.Errorf("and then it is not deleted: %+v", w.record(n.Name))
		})
	}
}

// A node that waits past its deadline is looked at, and not written to.
func TestPastTheDeadlineNothingIsWrittenAgain(t *testing.T) {
	w := begin(t, overdue)
	w.configure(overdue, `{"nodeManagement": {"remediation": {"maxDeletionsPerHour": 0}}}`)
	w.verified("control")
	held, image := w.node("held"), w.node("image")
	w.lacks, w.exit = func(node string) bool { return node == held.Name }, verifies(pulls)
	l := w.leads()
	l.drive()
	if _, f := w.get(held.Name); f.Record.Held != decide.GuardMaxDeletionsPerHour || f.Condition.Reason != marks.ReasonRemediationHeld {
		t.Errorf("%+v, %+v", f.Record, f.Condition)
	}
	statuses := func() (n int) {
		for _, write := range l.writes {
			if write == "patch Node/status" {
				n++
			}
		}
		return n
	}
	before, said := version(w, held.Name), statuses()
	// After ten minutes it is compared anew.
	for end := w.record(held.Name).DeadlineCause.Time.Add(8 * time.Minute); w.clock.Now().Before(end); {
		_, wait := l.turn()
		w.clock.advance(wait)
	}
	if after := version(w, held.Name); after != before {
		t.Errorf("the one that is held is written again: %s, then %s", before, after)
	}
	if r := w.record(image.Name); r.Sequence < 2 || statuses() != said {
		t.Errorf("%d attempts, %d conditions more", r.Sequence, statuses()-said)
	}
}

func version(w *world, name string) string {
	n := &corev1.Node{}
	w.must(api.Get(w.ctx, client.ObjectKey{Name: name}, n))
	return n.ResourceVersion
}
