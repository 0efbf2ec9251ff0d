//go:build repair

package repair

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// tolerated is longer than the toleration: a condition that is there for so long has its repairer act.
const tolerated = toleration + 5*time.Second

// A repairer replaces a node once the controller has set the condition, which it does only after every guard. So no
// node is replaced in an outage that nodes share, or while a person has paused remediation.
func TestRepairersActAfterTheGuards(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*world) *fleet{"Cluster API": clusterAPI, "Karpenter": karpenter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(begin(t))
			f.await()
			f.controller()
			owners := f.await()
			nodes := slices.Sorted(maps.Keys(owners))
			f.verified(nodes...)
			untouched := func() error { return errors.Join(f.spared(), f.unchanged(owners)()) }

			// DNS fails everywhere, and three nodes are accused.
			f.broken(true, nodes...)
			f.ask("outage", nodes[:3]...)
			f.shares(nodes[:3]...)
			f.throughout(tolerated, "DNS fails everywhere, and nothing is replaced", untouched)
			f.broken(false, nodes...)
			f.verified(nodes...)

			// One node fails while remediation is paused.
			f.pause(true)
			f.broken(true, nodes[0])
			f.eventually("a request is answered", func() error { // the last one may have been less than a minute ago
				f.ask("failure", nodes[0])
				if have, err := f.facts(nodes[0]); err != nil || have.Record.Held != decide.GuardPaused {
					return fmt.Errorf("%w, %+v", err, have.Record)
				}
				return nil
			})
			f.throughout(tolerated, "remediation is paused, and nothing is replaced", untouched)
			f.pause(false)
			f.replaced(owners, nodes[0])
			if have := f.entries(); len(have) != 1 || have[0] != marks.KindCondition {
				t.Errorf("the ledger has %v", have)
			}
			f.eventually("an event says so", func() error { return f.event("RemediationStarted", time.Time{}) })
		})
	}
}

// A detector's false alarm is cleared by the node's own checks, and the node stays open. A true one ends with the gate
// closed and the condition, which goes once the node passes.
func TestDetectorAccuses(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, name := range []string{"node-1", "node-2"} {
		_, err := w.agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name})
		w.must(err)
	}
	w.controller(func(nodeManagement map[string]any) {
		nodeManagement["reverify"] = map[string]any{"onConditions": []any{map[string]any{"type": string(suspected)}}}
	})
	w.verified("node-1", "node-2")
	d := detect(w, "node-1")
	d.await(corev1.ConditionFalse)

	open := func() error {
		f, err := w.facts("node-1")
		if err == nil && (f.Gated || !f.Labelled) {
			err = fmt.Errorf("gated %t, verified %t, %+v", f.Gated, f.Labelled, f.Record)
		}
		return err
	}
	d.exit(1)
	d.await(corev1.ConditionTrue)
	w.eventually("the suspicion is cleared", func() error {
		w.must(open())
		f, err := w.facts("node-1")
		if err == nil && (len(f.Record.Cleared) != 1 || f.Record.Sequence != 2) {
			err = fmt.Errorf("%+v", f.Record)
		}
		return err
	})
	w.eventually("an event says so", func() error { return w.event("SuspicionCleared", time.Time{}) }) // events come beside what they tell of
	w.throughout(5*time.Second, "the alarm goes on, and the node stays open", func() error {
		f, err := w.facts("node-1")
		if err == nil && f.Record.Sequence != 2 {
			err = fmt.Errorf("it was verified again: %+v", f.Record)
		}
		return errors.Join(err, open(), w.spared())
	})

	d.exit(0)
	d.await(corev1.ConditionFalse)
	w.broken(true, "node-1")
	d.exit(1)
	w.carries("node-1")
	w.broken(false, "node-1")
	w.verified("node-1")
	w.eventually("the condition goes", w.spared)
}

// A repairer that acts on the condition reboots the node, here the test. The condition goes with the boot that it was for,
// the node is verified at once, and nothing else is done about it.
func TestRebootIsVerifiedAtOnce(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, name := range []string{"node-1", "node-2"} {
		_, err := w.agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name})
		w.must(err)
	}
	w.controller()
	w.verified("node-1", "node-2")
	w.broken(true, "node-1")
	w.ask("1", "node-1")
	w.carries("node-1")
	// The test writes the boot ID, since one of a real kubelet is this machine's.
	w.broken(false, "node-1")
	w.must(w.agent.Node("node-1").Reboot(t.Context()))
	w.recovered("node-1")
}
