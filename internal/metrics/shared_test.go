package metrics

import (
	"testing"
	"time"

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
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kube_node_ready_shared_failures" {
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != 2 {
				t.Errorf("%v nodes, want 2", got)
			}
			return
		}
	}
	t.Error("no series")
}
