package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// takes is the longest that an attempt takes under world.PastDeadline.
const takes = 45 * time.Second

func withImage(n *corev1.Node) {
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"docker.io/library/kube-node-ready:test"}}}
}

// A cause that keeps a node from passing by its deadline leads to a deletion only if it lies on the node.
func TestPastTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		settings string
		begin    func(*world.World) *corev1.Node
		deleted  bool
		says     string // of the condition's message
	}{
		"the kubelet rejects": {deleted: true, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Rejects)
			return w.Node("n")
		}},
		"the kubelet rejects, of a NodeClaim": {deleted: true, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Rejects)
			n := w.Node("n", world.Pooled)
			w.Claim(n)
			return n
		}},
		"without remediation.controlProbe a probe is made all the same": {settings: `{"nodeManagement": {"remediation": {"controlProbe": false}}}`, says: "no action is taken: the same checks fail on verified node",
			begin: func(w *world.World) *corev1.Node {
				w.Exit = func(p *corev1.Pod) int { return map[bool]int{true: 1, false: world.Rejects}[world.IsProbe(p)] }
				return w.Node("n")
			}},
		"the kubelet rejects, and the probe fails": {says: "no action is taken: the same checks fail on verified node", begin: func(w *world.World) *corev1.Node {
			w.Exit = func(p *corev1.Pod) int { return map[bool]int{true: 1, false: world.Rejects}[world.IsProbe(p)] }
			return w.Node("n")
		}},
		"the image is there, and the worker does not start": {deleted: true, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Stays)
			return w.Node("n", withImage)
		}},
		"a registry that hangs, its image cached elsewhere": {says: attempt.ReasonStartTimeout, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Stays)
			return w.Node("n")
		}},
		"a registry that hangs, and is asked whatever the node has": {settings: `{"worker": {"image": {"pullPolicy": "Always"}}}`, says: attempt.ReasonStartTimeout, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Stays)
			return w.Node("n", withImage)
		}},
		"a registry that is down, its image cached elsewhere": {says: attempt.ReasonImagePull, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Pulls)
			return w.Node("n", withImage)
		}},
		"it lacks what a verified node has": {deleted: true, begin: func(w *world.World) *corev1.Node {
			n := w.Node("n")
			w.Unmet = func(node string) bool { return node == n.Name }
			return n
		}},
		"it lacks what all lack": {says: "no action is taken: verified node", begin: func(w *world.World) *corev1.Node {
			w.Unmet = func(string) bool { return true }
			return w.Node("n")
		}},
		"no slot": {says: "maxConcurrentVerifications", begin: func(w *world.World) *corev1.Node {
			w.Configure(world.PastDeadline, `{"reconciliation": {"maxConcurrentVerifications": 1},
				"profiles": [{"name": "slow", "nodeSelector": {"matchLabels": {"slow": "true"}}, "startTimeoutSeconds": 86400}]}`)
			w.Exit = world.VerifyExits(world.Stays)
			w.Node("busy", func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "slow", "true") })
			w.Lead().Steps(2) // its worker has a day to start
			return w.Node("n")
		}},
		"exit 2":  {says: attempt.ReasonConfigRefused, begin: func(w *world.World) *corev1.Node { w.Exit = world.VerifyExits(2); return w.Node("n", withImage) }},
		"exit 3":  {says: attempt.ReasonClientSetup, begin: func(w *world.World) *corev1.Node { w.Exit = world.VerifyExits(3); return w.Node("n", withImage) }},
		"exit 4":  {says: attempt.ReasonUndecided, begin: func(w *world.World) *corev1.Node { w.Exit = world.VerifyExits(4); return w.Node("n", withImage) }},
		"exit 10": {says: attempt.ReasonInternalError, begin: func(w *world.World) *corev1.Node { w.Exit = world.VerifyExits(10); return w.Node("n", withImage) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, world.PastDeadline)
			w.Configure(world.PastDeadline, tc.settings)
			w.Verified("control")
			n := tc.begin(w)
			l := w.Lead()
			world.Path{Rounds: 8}.Run(l, n)
			if _, claimed := n.Labels[owner.LabelNodePool]; claimed && !w.Deleting(n.Name) || !claimed && tc.deleted != (len(w.Deleted()) == 1) {
				t.Fatalf("deleted: %v; record %+v", w.Deleted(), w.Record(n.Name))
			}
			for what := range w.Deleted() {
				if !strings.HasSuffix(what, n.Name) {
					t.Errorf("%s was deleted", what)
				}
			}
			if len(l.Errs) > 0 {
				t.Error(l.Errs)
			}
			if tc.deleted {
				return
			}
			_, f := w.Get(n.Name)
			if c := f.Condition; c == nil || c.Status != corev1.ConditionFalse || c.Reason != marks.ReasonDeadlineExceeded || !strings.Contains(c.Message, tc.says) {
				t.Errorf("it says %+v", c)
			}
			if f.Record.Deletion != nil || f.Record.Held != "" || w.EventCount(n.Name, decide.EventFailed) != 1 || w.EventCount(n.Name, decide.EventHeld) != 0 {
				t.Errorf("record %+v, %d events", f.Record, w.EventCount(n.Name, decide.EventFailed))
			}
			// A pass releases the node as usual.
			w.Exit, w.Unmet, w.Linger = world.VerifyExits(0), nil, false
			w.Clock.Advance(5 * time.Minute)
			l.Drive()
			if _, f := w.Get(n.Name); !f.Labelled || f.Gated || f.Condition.Reason != marks.ReasonChecksPassed {
				t.Errorf("after a pass: %+v", f)
			}
		})
	}
}

// The API server was down for the controller and for kubelets, and the controller's process kept running. A worker that
// the process knows as not started may have passed long ago.
func TestPastTheDeadlineAfterAnOutageOfTheAPI(t *testing.T) {
	for _, outage := range []time.Duration{time.Minute, time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, world.PastDeadline)
			w.Verified("other")
			n := w.Node("n", withImage)
			l := w.Lead()
			w.Exit = world.VerifyExits(world.Stays)
			l.Steps(2)
			if len(w.Pods(n.Name)) != 1 {
				t.Fatal("no worker")
			}
			w.Clock.Advance(outage)
			w.Exit = world.VerifyExits(0) // what the kubelets say once they can
			world.Path{Rounds: 2}.Run(l, n)
			if _, f := w.Get(n.Name); !f.Labelled || f.Gated || len(w.Deleted()) > 0 {
				t.Errorf("%+v, deleted %v", f.Record, w.Deleted())
			}
		})
	}
}

// A process that did not know of the node grants it a full attempt, however long ago its deadline was.
func TestPastTheDeadlineIsNotTheControllersTime(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration // of the controller's absence
		begin func(*world.World) *corev1.Node
		// whole starts the round with this process, so that the node has its full time.
		whole bool
	}{
		"the controller was down for an hour": {time.Hour, func(w *world.World) *corev1.Node {
			n := w.Node("n", withImage)
			w.Exit = world.VerifyExits(world.Rejects)
			w.Lead().Steps(4)
			return n
		}, false},
		"a month-old node without a record, whose taint came back": {30 * 24 * time.Hour, func(w *world.World) *corev1.Node { return w.Node("n") }, false},
		"a month-old node that was verified, whose taint came back": {30 * 24 * time.Hour, func(w *world.World) *corev1.Node {
			n, now := w.Node("n"), w.Clock.Now().UTC()
			w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed, BootID: "boot", LastTime: &now, VerifiedTime: &now})
			return n
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, world.PastDeadline)
			w.Configure(world.PastDeadline, `{"reconciliation": {"initialBackoffSeconds": 10, "maxBackoffSeconds": 10, "verificationDeadlineSeconds": 120}, "nodeManagement": {"remediation": {"neverVerifiedOnly": false}}}`)
			n := tc.begin(w)
			w.Clock.Advance(tc.since)
			w.Verified("control")
			w.Exit = world.VerifyExits(world.Rejects)
			l, began, granted := w.Lead(), w.Clock.Now(), takes
			if tc.whole {
				granted = 2 * time.Minute
			}
			for w.Clock.Now().Sub(began) < granted-time.Second {
				if _, wait := l.Step(); wait > 0 {
					w.Clock.Advance(min(wait, time.Second))
				}
				if have, f := w.Get(n.Name); have == nil || f.Record.DeadlineCause != nil || f.Condition != nil && f.Condition.Reason == marks.ReasonDeadlineExceeded {
					t.Fatalf("after %s: %+v", w.Clock.Now().Sub(began), f)
				}
			}
			if s := w.Record(n.Name).Since; tc.whole != (s != nil) {
				t.Errorf("the round began %v", s)
			}
			for range 60 {
				if len(w.Deleted()) > 0 {
					return
				}
				_, wait := l.Step()
				w.Clock.Advance(min(wait, time.Second))
			}
			t.Errorf("and then it is not deleted: %+v", w.Record(n.Name))
		})
	}
}

// A node that waits past its deadline is reconciled without any write to it.
func TestPastTheDeadlineNothingIsWrittenAgain(t *testing.T) {
	w := world.Begin(t, world.PastDeadline)
	w.Configure(world.PastDeadline, `{"nodeManagement": {"remediation": {"maxDeletionsPerHour": 0}}}`)
	w.Verified("control")
	held, image := w.Node("held"), w.Node("image")
	w.Unmet, w.Exit = func(node string) bool { return node == held.Name }, world.VerifyExits(world.Pulls)
	l := w.Lead()
	l.Drive()
	if _, f := w.Get(held.Name); f.Record.Held != decide.GuardMaxDeletionsPerHour || f.Condition.Reason != marks.ReasonRemediationHeld {
		t.Errorf("%+v, %+v", f.Record, f.Condition)
	}
	statuses := func() (n int) {
		for _, write := range l.Writes {
			if write == "patch Node/status" {
				n++
			}
		}
		return n
	}
	before, said := version(w, held.Name), statuses()
	// After ten minutes, the node is compared again.
	for end := w.Record(held.Name).DeadlineCause.Time.Add(8 * time.Minute); w.Clock.Now().Before(end); {
		_, wait := l.Step()
		w.Clock.Advance(wait)
	}
	if after := version(w, held.Name); after != before {
		t.Errorf("the one that is held is written again: %s, then %s", before, after)
	}
	if r := w.Record(image.Name); r.Sequence < 2 || statuses() != said {
		t.Errorf("%d attempts, %d conditions more", r.Sequence, statuses()-said)
	}
}

func version(w *world.World, name string) string {
	n := &corev1.Node{}
	w.Must(w.API.Get(w.Ctx, client.ObjectKey{Name: name}, n))
	return n.ResourceVersion
}
