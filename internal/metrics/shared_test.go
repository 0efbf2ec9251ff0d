package metrics

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// kube_node_ready_shared_failures counts nodes that worked, whether or not they have series of their own.
func TestSharedFailures(t *testing.T) {
	now := time.Now()
	cfg := &config.Config{}
	cfg.SetDefaults()
	node := func(name string, change func(*marks.Facts)) decide.Input {
		f := marks.Facts{Name: name, UID: name, Labelled: true, Ready: true, HasRecord: true, Record: marks.Record{NodeUID: name, Checks: "c",
			Sequence: 2, Inconclusive: 1, Shared: 1, LastOutcome: attempt.Inconclusive, LastReason: attempt.ReasonSharedFailure, LastTime: &now, VerifiedTime: &now}}
		change(&f)
		return decide.Input{Config: cfg, Profile: cfg.For(nil), Checks: "c", Selected: true, Node: f}
	}
	c := newCluster(t, config.PerNodeNone)
	c.present = []decide.Input{
		node("shares", func(*marks.Facts) {}),
		node("closed-first", func(f *marks.Facts) { f.Gated, f.Labelled = true, false }),
		node("passed", func(f *marks.Facts) { f.Record.LastOutcome = attempt.Passed }),
		node("its-own", func(f *marks.Facts) { f.Record.LastOutcome, f.Record.Attempts, f.Record.Shared = attempt.Failed, 1, 0 }),
		node("never-passed", func(f *marks.Facts) { f.Gated, f.Labelled, f.Record.VerifiedTime = true, false, nil }),
		node("opted-out", func(f *marks.Facts) { f.Skip = true }),
	}
	if got := gauge(t, c, "kube_node_ready_shared_failures"); got != 2 {
		t.Errorf("%v nodes, want 2", got)
	}
}

// gauge scrapes a gauge without labels.
func gauge(t *testing.T, c *cluster, name string) float64 {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no series")
	return 0
}

// kube_node_ready_other_effect_nodes counts a gating key with an effect that gates nothing, on verified nodes too: those
// are else only counted.
func TestOtherEffect(t *testing.T) {
	cfg := &config.Config{}
	cfg.SetDefaults()
	node := func(name string, effects ...corev1.TaintEffect) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelOSStable: "linux", config.DefaultLabelKey: "true"}}}
		for _, e := range effects {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: config.DefaultTaintKey, Value: "true", Effect: e})
		}
		return n
	}
	c := newCluster(t, config.PerNodeNone)
	for _, n := range []*corev1.Node{node("verified"), node("gated", corev1.TaintEffectNoSchedule), node("stays", corev1.TaintEffectNoExecute),
		node("both", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)} {
		in := decide.Input{Config: cfg, Profile: cfg.For(nil), Selected: true, Node: marks.Observe(n, cfg.Vocabulary())}
		if got := decide.Settled(in); got != (n.Name == "verified") {
			t.Errorf("%s: settled %t, so a scrape would not look at it", n.Name, got)
		}
		c.present = append(c.present, in)
	}
	if got := gauge(t, c, "kube_node_ready_other_effect_nodes"); got != 2 {
		t.Errorf("%v nodes, want 2", got)
	}
}
