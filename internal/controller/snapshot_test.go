package controller

import (
	"iter"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// cached is what a Snapshotter reads of the cache.
func cached(nodes ...*corev1.Node) func(func(name, uid string) bool) (iter.Seq[*corev1.Node], int) {
	return func(skip func(name, uid string) bool) (iter.Seq[*corev1.Node], int) {
		rest := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return skip(n.Name, string(n.UID)) })
		return slices.Values(rest), len(nodes) - len(rest)
	}
}

func TestSnapshot(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	c.pods = amid(v, n)
	s := &Snapshotter{View: v, Nodes: cached(node("idle"), node("m"), n)}
	seen, _, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(seen)
	if len(all) != 3 || all[0].Node.Name != "idle" || len(all[0].Pods) != 0 || len(all[1].Pods) != 1 || all[2].Node.Name != "n" || len(all[2].Pods) != 2 {
		t.Errorf("%+v", all)
	}
}

// Nodes that are settled are only counted, but where a worker pod is on one.
func TestSnapshotCountsSettledNodes(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	c.pods = amid(v, n)
	s := &Snapshotter{View: v, Nodes: cached(node("idle"), node("m"), n), Settled: func(name, _ string) bool { return name != "m" }}
	seen, settled, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(seen)
	if settled != 1 || len(all) != 2 || all[0].Node.Name != "m" || all[1].Node.Name != "n" {
		t.Errorf("%d are settled beside %+v", settled, all)
	}
}

// TestSnapshotFollowsRecords: what one snapshot read of a node holds for the next only while the node says the same.
func TestSnapshotFollowsRecords(t *testing.T) {
	v, _, _ := view(t)
	s := &Snapshotter{View: v}
	for sequence := range int32(3) {
		n := node("n", func(n *corev1.Node) {
			n.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: "uid-n", Sequence: sequence}.Encode()
		})
		s.Nodes = cached(n)
		for range 2 {
			seen, _, err := s.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for in := range seen {
				if want := v.Observe(n); !reflect.DeepEqual(in, want) || in.Node.Record.Sequence != sequence {
					t.Errorf("%+v, want %+v", in, want)
				}
			}
		}
	}
	if read := *s.read.Load(); len(read) != 1 {
		t.Errorf("%d records are kept of one node", len(read))
	}

	// A settled node is only counted once the fleet has seen it: its record is not kept for that.
	s.Settled = func(string, string) bool { return false }
	s.Nodes = cached(node("n", func(n *corev1.Node) {
		n.Spec.Taints, n.Labels[config.DefaultLabelKey] = nil, "true"
		n.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: "uid-n", BootID: n.Status.NodeInfo.BootID, LastOutcome: attempt.Passed}.Encode()
	}))
	seen, _, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for in := range seen {
		if !decide.Settled(in) {
			t.Errorf("%+v is not settled", in)
		}
	}
	if read := *s.read.Load(); len(read) != 0 {
		t.Errorf("%d records are kept of a settled node", len(read))
	}
}
