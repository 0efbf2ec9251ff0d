package node_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// takesAWhile is Exit for pods that end with the code only when the kubelets act on them a second time.
func takesAWhile(code func(*corev1.Pod) int) func(*corev1.Pod) int {
	began := map[types.UID]bool{}
	return func(p *corev1.Pod) int {
		if !began[p.UID] {
			began[p.UID] = true
			return world.Stays
		}
		return code(p)
	}
}

// A controller makes no more workers at once than maxConcurrentVerifications, whether or not its cache shows them yet.
func TestSlotsLimitWorkers(t *testing.T) {
	for name, unshown := range map[string]bool{"the cache shows each worker": false, "the cache shows none for a while": true} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, `{"reconciliation": {"maxConcurrentVerifications": 2}}`)
			w.Exit = takesAWhile(func(*corev1.Pod) int { return 0 })
			for i := range 6 {
				w.Node(fmt.Sprint("n", i))
			}
			l := w.Lead()
			l.Deliver()
			if unshown {
				l.StalePods = &corev1.PodList{}
				for range 30 { // a minute, in which each node is decided again and finds its worker by its name
					w.Clock.Advance(min(2*time.Second, l.ReconcileAll()))
				}
				l.StalePods = nil
			}
			l.Drive()
			for _, name := range w.NodeNames {
				if _, f := w.Get(name); !f.Labelled || f.Gated || f.Record.Sequence != 1 {
					t.Errorf("%s: %+v", name, f.Record)
				}
			}
			if most := w.MostAtOnce(); most != 2 || len(l.Errs) > 0 {
				t.Errorf("%d workers at once, want 2; errors %v", most, l.Errs)
			}
		})
	}
}

// A new leader whose cache shows no worker of the leader before counts those, too.
func TestSlotsOverAFailover(t *testing.T) {
	w := world.Begin(t, `{"reconciliation": {"maxConcurrentVerifications": 2}}`)
	runs := true
	w.Exit = func(*corev1.Pod) int {
		if runs {
			return world.Stays
		}
		return 0
	}
	for i := range 6 {
		w.Node(fmt.Sprint("n", i))
	}
	w.Lead().Steps(2)
	l := w.Lead()
	l.StalePods = &corev1.PodList{}
	w.Must(l.Nodes.View.Begin(w.Ctx, l.Live()))
	for range 10 {
		w.Clock.Advance(min(2*time.Second, l.ReconcileAll()))
	}
	if made := w.Created("verify"); made != 2 {
		t.Errorf("%d workers, want 2", made)
	}
	l.StalePods, runs = nil, false
	l.Drive()
	for _, name := range w.NodeNames {
		if _, f := w.Get(name); !f.Labelled || f.Gated {
			t.Errorf("%s: %+v", name, f.Record)
		}
	}
	if most := w.MostAtOnce(); most != 2 || len(l.Errs) > 0 {
		t.Errorf("%d workers at once, want 2; errors %v", most, l.Errs)
	}
}

// A control probe takes a slot like a worker.
func TestProbeTakesASlot(t *testing.T) {
	w := world.Begin(t, `{"reconciliation": {"maxConcurrentVerifications": 1, "maxRetries": 1},
		"nodeManagement": {`+world.Deletes+`, "remediation": {"dryRun": true}}}`)
	w.Verified("control")
	broken := w.Node("broken", world.Pooled)
	w.Claim(broken)
	well := w.Node("well")
	w.Exit = takesAWhile(func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify && p.Annotations[workerpod.AnnotationNode] == broken.Name {
			return 1
		}
		return 0
	})
	w.Lead().Drive()
	if r := w.Record(broken.Name); r.LastOutcome != attempt.Failed || !r.Probed || w.Created("probe") == 0 {
		t.Errorf("%d probes, record %+v", w.Created("probe"), r)
	}
	if _, f := w.Get(well.Name); !f.Labelled || f.Gated {
		t.Errorf("record %+v", f.Record)
	}
	if most := w.MostAtOnce(); most != 1 {
		t.Errorf("%d pods at once, want 1", most)
	}
}

// Nodes of a pool that fail together share one control probe, whether or not the cache shows it yet.
func TestOneProbeForNodesThatFailTogether(t *testing.T) {
	for name, unshown := range map[string]bool{"the cache shows it": false, "the cache does not show it for a while": true} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {`+world.Deletes+`, "remediation": {"dryRun": true}}}`)
			probed := false
			w.Exit = func(p *corev1.Pod) int {
				switch {
				case p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify:
					return 1
				case probed:
					return 0
				}
				return world.Stays
			}
			for i := range 2 {
				w.Verified(fmt.Sprint("control-", i))
			}
			var broken []string
			for i := range 3 {
				n := w.Node(fmt.Sprint("broken-", i), world.Pooled)
				w.Claim(n)
				broken = append(broken, n.Name)
			}
			l := w.Lead()
			for pass := 0; w.Created("verify") < len(broken); pass++ {
				if pass == 20 {
					t.Fatalf("writes %v, errors %v", l.Writes, l.Errs)
				}
				l.Steps(1)
			}
			l.Deliver() // the workers have failed
			if unshown {
				l.StalePods = &corev1.PodList{Items: w.Pods("")}
			}
			for range 3 {
				w.Clock.Advance(min(2*time.Second, l.ReconcileAll()))
			}
			if probes := w.Created("probe"); probes != 1 {
				t.Errorf("%d probes, want 1", probes)
			}
			l.StalePods, probed = nil, true
			l.Drive()
			for _, name := range broken {
				if r := w.Record(name); r.LastOutcome != attempt.Failed || !r.Probed {
					t.Errorf("%s: %+v", name, r)
				}
			}
		})
	}
}
