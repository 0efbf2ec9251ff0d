package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// openNode fails the test if the node's gate is closed, or its label gone.
func openNode(t *testing.T, w *world.World, name string) marks.Facts {
	t.Helper()
	n, f := w.Get(name)
	if f.Gated || !f.Labelled {
		t.Fatalf("%s is closed: taints %v, labels %v, record %+v", name, n.Spec.Taints, n.Labels, f.Record)
	}
	return f
}

// When all nodes reboot and fail, no gate closes, and no label goes. Once one passes, all are verified soon.
func TestOutageThatAllShare(t *testing.T) {
	for name, settings := range map[string]string{
		"deletion off": `{"reconciliation": {"maxRetries": 2, "maxBackoffSeconds": 600}}`,
		"deletion on":  `{"nodeManagement": {` + world.Deletes + `}}`,
		"one retry":    `{"reconciliation": {"maxRetries": 1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, settings)
			var nodes []*corev1.Node
			for i := range 4 {
				nodes = append(nodes, w.Verified(fmt.Sprint("n", i)))
			}
			l := w.Lead()
			l.Drive()
			for _, n := range nodes {
				w.Reboot(n.Name, "boot-2")
			}
			w.Exit = func(*corev1.Pod) int { return 1 }
			for range 100 {
				l.RunFor(time.Second)
				for _, n := range nodes {
					openNode(t, w, n.Name)
				}
			}
			for _, n := range nodes {
				if r := openNode(t, w, n.Name).Record; r.LastReason != attempt.ReasonSharedFailure || r.Held != "" || r.Attempts != 0 {
					t.Errorf("%s: %+v", n.Name, r)
				}
				if says := w.ConditionText(n.Name); !strings.HasPrefix(says, "Unknown ") {
					t.Errorf("%s: %s", n.Name, says)
				}
			}
			w.Exit = func(*corev1.Pod) int { return 0 }
			took, ok := l.Until(2*time.Minute, func() bool {
				for _, n := range nodes {
					if r := openNode(t, w, n.Name).Record; r.LastOutcome != attempt.Passed || r.BootID != "boot-2" {
						return false
					}
				}
				return true
			})
			if !ok {
				t.Errorf("not verified after %s", took)
			}
		})
	}
}

// One of four nodes that reboot is broken: it is closed at its second failure, and the others never.
func TestOneOfFourIsBroken(t *testing.T) {
	for name, settings := range map[string]string{"deletion off": "", "deletion on": `{"nodeManagement": {` + world.Deletes + `}}`} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, settings)
			var nodes []*corev1.Node
			for i := range 4 {
				nodes = append(nodes, w.Verified(fmt.Sprint("n", i)))
			}
			l := w.Lead()
			l.Drive()
			broken := nodes[0].Name
			w.Exit = func(p *corev1.Pod) int {
				return map[bool]int{true: 1}[p.Annotations[workerpod.AnnotationNode] == broken]
			}
			for _, n := range nodes {
				w.Reboot(n.Name, "boot-2")
			}
			failures := int32(0)
			if _, ok := l.Until(time.Minute, func() bool {
				for _, n := range nodes[1:] {
					openNode(t, w, n.Name)
				}
				_, f := w.Get(broken)
				if f.Record.Attempts < 2 && (f.Gated || !f.Labelled) {
					t.Fatalf("closed after %d failures: %+v", f.Record.Attempts, f.Record)
				}
				failures = f.Record.Attempts
				return f.Gated
			}); !ok || failures != 2 {
				t.Errorf("closed: %v, after %d failures", ok, failures)
			}
			l.RunFor(30 * time.Second)
			for _, n := range nodes[1:] {
				if r := openNode(t, w, n.Name).Record; r.LastOutcome != attempt.Passed || r.BootID != "boot-2" {
					t.Errorf("%s: %+v", n.Name, r)
				}
			}
		})
	}
}

// An outage of 15 s while nodes are verified again by age closes none.
func TestShortOutageClosesNothing(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {"reverify": {"interval": "60s"}}}`)
	var nodes []*corev1.Node
	for i := range 4 {
		nodes = append(nodes, w.Verified(fmt.Sprint("n", i)))
	}
	l, began := w.Lead(), w.Clock.Now()
	w.Exit = func(*corev1.Pod) int {
		since := w.Clock.Now().Sub(began)
		return map[bool]int{true: 1}[since > 50*time.Second && since < 65*time.Second]
	}
	for w.Clock.Now().Sub(began) < 100*time.Second {
		l.RunFor(time.Second)
		for _, n := range nodes {
			openNode(t, w, n.Name)
		}
	}
	for _, n := range nodes {
		if r := openNode(t, w, n.Name).Record; r.LastOutcome != attempt.Passed || r.Sequence < 3 {
			t.Errorf("%s: %+v", n.Name, r)
		}
	}
}
