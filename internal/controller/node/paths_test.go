package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// nodePaths are the ways of the node reconciler.
func nodePaths() map[string]world.Path {
	again := func(r world.Result, change func(*world.Result)) world.Result { change(&r); return r }
	return map[string]world.Path{
		"pass": {Begin: func(w *world.World) *corev1.Node { return w.Node("n") },
			Writes: []string{"create Pod", "patch Node", "patch Node/status", "delete Pod"},
			Most:   world.Requests{Reads: 2},
			Want:   world.Passed, Events: map[decide.Reason]int{decide.EventPassed: 1}},

		"exhaust": {Begin: func(w *world.World) *corev1.Node {
			w.Exit = func(*corev1.Pod) int { return 1 }
			return w.Node("n")
		},
			Writes: []string{"create Pod", "patch Node", "patch Node/status", "patch Pod", "create Pod", "patch Node", "patch Node/status", "patch Pod", "delete Pod", "delete Pod"},
			Most:   world.Requests{Reads: 2},
			Want:   world.Result{Gated: true, Record: "failed ChecksFailed held= verified=false", Sequence: 2, Attempts: 2, Condition: "False RetriesExhausted"},
			Events: map[decide.Reason]int{decide.EventFailed: 2, decide.EventExhausted: 1}},

		"taken back for the third time": {Begin: func(w *world.World) *corev1.Node {
			n, at := w.Node("n"), w.Clock.Now().UTC()
			w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed, BootID: "boot", LastTime: &at, VerifiedTime: &at,
				TakenBack: &marks.TakenBack{Passes: []time.Time{at.Add(-2 * time.Minute), at.Add(-time.Minute)}}})
			return n
		},
			Most:   world.Requests{Reads: 3},
			Want:   again(world.Passed, func(r *world.Result) { r.Sequence = 2 }),
			Events: map[decide.Reason]int{decide.EventMarksTakenBack: 1, decide.EventPassed: 1},
			Check: func(w *world.World, n *corev1.Node) {
				if t := w.Record(n.Name).TakenBack; t == nil || len(t.Passes) != 3 {
					w.Errorf("one pass was taken back, and the record has %+v", t)
				}
			}},

		"released past the deadline": {Settings: `{"reconciliation": {"verificationDeadlineSeconds": 30, "onDeadline": "release"}}`, Rounds: 2,
			Begin: func(w *world.World) *corev1.Node {
				w.Unmet = func(string) bool { return true }
				return w.Node("n")
			},
			Writes: []string{"patch Node/status", "patch Node", "patch Node/status"},
			Most:   world.Requests{Reads: 1, Lists: 1}, // of its pods: it has a condition and no record, so it may have had some
			Want:   world.Result{Record: "  held= verified=false", Condition: "False DeadlineExceeded"},
			Events: map[decide.Reason]int{decide.EventReleasedUnverified: 1, decide.EventPassed: 0},
			Check: func(w *world.World, n *corev1.Node) {
				if w.Record(n.Name).Released == nil {
					w.Errorf("the record has %+v", w.Record(n.Name))
				}
			}},

		"released past the deadline, then it passes": {Rounds: 2, Settings: `{"worker": {"startTimeoutSeconds": 20, "timeoutSeconds": 20, "checkTimeoutSeconds": 10},
			"reconciliation": {"verificationDeadlineSeconds": 30, "onDeadline": "release", "initialBackoffSeconds": 300, "maxBackoffSeconds": 300}}`,
			Begin: func(w *world.World) *corev1.Node {
				w.Exit = func(p *corev1.Pod) int {
					if w.Record(p.Annotations[workerpod.AnnotationNode]).Released == nil {
						return 4
					}
					return 0
				}
				return w.Node("n")
			},
			Events: map[decide.Reason]int{decide.EventReleasedUnverified: 1, decide.EventPassed: 1},
			Most:   world.Requests{Reads: 4},
			Want:   again(world.Passed, func(r *world.Result) { r.Sequence, r.Inconclusive = 2, 1 })},

		"attribute, probe passes": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Begin: func(w *world.World) *corev1.Node {
			w.Exit = world.FailsUntil(w, func(r marks.Record) bool { return r.Attempts > 0 })
			w.Verified("control")
			return w.Node("n")
		},
			Most:   world.Requests{Reads: 3},
			Want:   again(world.Passed, func(r *world.Result) { r.Sequence, r.Attempts = 2, 1 }),
			Events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventPassed: 1},
			Check: func(w *world.World, _ *corev1.Node) {
				if r := w.Record(w.Namespace + "-control"); r.Sequence != 1 {
					w.Errorf("a probe counts for the node that it ran on: %+v", r)
				}
			}},

		"attribute, probe fails": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Begin: func(w *world.World) *corev1.Node {
			w.Exit = func(p *corev1.Pod) int {
				if n := p.Annotations[workerpod.AnnotationNode]; strings.HasSuffix(n, "-n") && w.Record(n).Inconclusive > 0 {
					return 0
				}
				return 1
			}
			w.Verified("control")
			return w.Node("n")
		},
			Most:   world.Requests{Reads: 3},
			Want:   again(world.Passed, func(r *world.Result) { r.Sequence, r.Inconclusive = 2, 1 }),
			Events: map[decide.Reason]int{decide.EventHeld: 1, decide.EventPassed: 1, decide.EventFailed: 0}},
	}
}

func TestNodeWritesDisturbed(t *testing.T) { world.DisturbEveryWrite(t, nodePaths()) }
