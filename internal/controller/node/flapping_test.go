package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// Two machines report under one name (kubernetes#73453), so its boot ID alternates. That is no reboot: after the first
// return, no attempt follows from it, an event and the condition name both boot IDs, and nothing is remediated.
func TestTwoMachinesUnderOneName(t *testing.T) {
	const deletes = `{"nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false}}}`
	two := []string{"other", "boot"}
	for name, tc := range map[string]struct {
		settings string
		begin    func(*world.World) *corev1.Node
		boots    []string
		every    time.Duration
		exit     int
		workers  int  // at most
		unseen   bool // it alternates before the first reconcile
		flaps    bool
	}{
		"verified":            {begin: released, boots: two, every: 10 * time.Second, workers: 1, flaps: true},
		"verified, slowly":    {begin: released, boots: two, every: 25 * time.Minute, workers: 1, flaps: true},
		"three machines":      {begin: released, boots: []string{"b", "c", "boot"}, every: 10 * time.Second, workers: 2, flaps: true},
		"verified, fails":     {begin: released, boots: two, every: 10 * time.Second, exit: 1, workers: 8, flaps: true},
		"gated":               {begin: newNode, boots: two, every: 10 * time.Second, exit: world.Stays, workers: 3, flaps: true},
		"exhausted":           {settings: deletes, begin: spent, boots: two, every: 10 * time.Second, exit: 1, unseen: true, flaps: true},
		"two reboots":         {begin: released, boots: []string{"b", "c", "d", "e", "f", "g"}, every: 10 * time.Minute, workers: 6},
		"it returns too late": {begin: released, boots: two, every: 61 * time.Minute, workers: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, tc.settings)
			w.Exit = world.VerifyExits(tc.exit)
			n, l := tc.begin(w), w.Lead()
			l.Deliver()
			gates := func() bool { _, f := w.Get(n.Name); return f.Gated }
			before := gates()
			if tc.unseen {
				for _, boot := range tc.boots {
					w.Reboot(n.Name, boot)
					l.Deliver()
				}
			}
			flips := max(6, int(10*time.Minute/tc.every))
			for i := range flips {
				w.Reboot(n.Name, tc.boots[i%len(tc.boots)])
				l.RunFor(tc.every)
				if i == flips/2 && tc.flaps { // a successor goes on from the record
					l = w.Lead()
				}
			}
			_, f := w.Get(n.Name)
			if made := w.Created("verify"); made > tc.workers || len(w.Deleted()) > 0 || gates() != before {
				t.Errorf("%d workers, at most %d; deleted %t; gated %t, before %t", made, tc.workers, len(w.Deleted()) > 0, f.Gated, before)
			}
			if got := w.EventCount(n.Name, decide.EventBootIDFlapping); (got == 1) != tc.flaps || got > 1 {
				t.Errorf("%d events", got)
			}
			if !tc.flaps {
				return
			}
			if c := f.Condition; c == nil || !strings.Contains(c.Message, tc.boots[0]) || !strings.Contains(c.Message, "Two machines") {
				t.Errorf("condition %+v", c)
			}
			// One of them ends. The node is verified again, within minutes if its gate is closed.
			w.Exit = func(*corev1.Pod) int { return 0 }
			for _, p := range w.Pods(n.Name) {
				w.Terminate(&p, 0)
			}
			w.Reboot(n.Name, "last")
			l.RunFor(11 * time.Minute)
			if _, f := w.Get(n.Name); f.Gated {
				t.Errorf("gated 11 minutes after the last return: %+v", f.Condition)
			}
			l.RunFor(time.Hour)
			if _, f := w.Get(n.Name); f.Gated || f.Record.Flapping != nil || f.Record.BootID != "last" ||
				f.Condition.Reason != marks.ReasonChecksPassed || strings.Contains(f.Condition.Message, "Two machines") {
				t.Errorf("in the end: record %+v, condition %+v", f.Record, f.Condition)
			}
		})
	}
}

func released(w *world.World) *corev1.Node { return w.Verified("n") }
func newNode(w *world.World) *corev1.Node  { return w.Node("n") }
func spent(w *world.World) *corev1.Node    { return w.Exhausted("n") }
