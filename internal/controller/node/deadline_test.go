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
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

func withImage(n *corev1.Node) {
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"docker.io/library/kube-node-ready:test"}}}
}

// Whatever keeps a node from passing by its deadline deletes nothing by default, and a pass releases the node.
func TestPastTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		begin func(*world.World) *corev1.Node
		says  string // of the condition's message
	}{
		"the kubelet rejects": {says: attempt.ReasonKubeletRejected, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Rejects)
			return w.Node("n")
		}},
		"the image is there, and the worker does not start": {says: attempt.ReasonStartTimeout, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Stays)
			return w.Node("n", withImage)
		}},
		"a registry that is down, its image cached elsewhere": {says: attempt.ReasonImagePull, begin: func(w *world.World) *corev1.Node {
			w.Exit = world.VerifyExits(world.Pulls)
			return w.Node("n", withImage)
		}},
		"it lacks what a verified node has": {says: "a pod of kube-system", begin: func(w *world.World) *corev1.Node {
			n := w.Node("n")
			w.Unmet = func(node string) bool { return node == n.Name }
			return n
		}},
		"it lacks what all lack": {says: "a pod of kube-system", begin: func(w *world.World) *corev1.Node {
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
			w.Verified("control")
			n := tc.begin(w)
			l := w.Lead()
			world.Path{Rounds: 8}.Run(l, n)
			if len(w.Deleted()) > 0 {
				t.Fatalf("deleted: %v; record %+v", w.Deleted(), w.Record(n.Name))
			}
			if len(l.Errs) > 0 {
				t.Error(l.Errs)
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

// A node that waits past its deadline is reconciled without any write to it.
func TestPastTheDeadlineNothingIsWrittenAgain(t *testing.T) {
	w := world.Begin(t, world.PastDeadline)
	w.Verified("control")
	n := w.Node("waits")
	w.Unmet = func(node string) bool { return node == n.Name }
	l := w.Lead()
	l.Drive()
	before := version(w, n.Name)
	for end := w.Clock.Now().Add(8 * time.Minute); w.Clock.Now().Before(end); {
		_, wait := l.Step()
		w.Clock.Advance(wait)
	}
	if after := version(w, n.Name); after != before {
		t.Errorf("it is written again: %s, then %s", before, after)
	}
}

func version(w *world.World, name string) string {
	n := &corev1.Node{}
	w.Must(w.API.Get(w.Ctx, client.ObjectKey{Name: name}, n))
	return n.ResourceVersion
}
