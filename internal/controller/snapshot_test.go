package controller

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func TestSnapshot(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	c.nodes, c.pods = []corev1.Node{*node("idle"), *node("m"), *n}, amid(v, n)
	s := &Snapshotter{View: v}
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
	released := node("n", passed)
	c.nodes, c.pods = []corev1.Node{*node("idle", passed), *node("m"), *released}, amid(v, n)
	f := NewFleet(v)
	s := &Snapshotter{View: v, Unsettled: f.Unsettled}
	seen, settled, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(seen)
	if settled != 1 || len(all) != 2 || all[0].Node.Name != "m" || all[1].Node.Name != "n" {
		t.Errorf("%d are settled beside %+v", settled, all)
	}
	c.nodes = c.nodes[:2]
	f.Gone("n")
	f.Observe(v.Observe(node("idle")))
	if _, settled, err = s.Snapshot(t.Context()); err != nil || settled != 0 {
		t.Errorf("%d are settled of one that is gone, one that is gated again and one that never passed, %v", settled, err)
	}
}

// passed makes a gated node one that is verified.
func passed(n *corev1.Node) {
	n.Spec.Taints, n.Labels[config.DefaultLabelKey] = nil, "true"
	n.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, LastOutcome: attempt.Passed}.Encode()
}

// TestSnapshotFollowsRecords: what one snapshot read of a node holds for the next only while the node says the same.
func TestSnapshotFollowsRecords(t *testing.T) {
	v, c, _ := view(t)
	s := &Snapshotter{View: v}
	for sequence := range int32(3) {
		n := node("n", func(n *corev1.Node) {
			n.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: "uid-n", Sequence: sequence}.Encode()
		})
		c.nodes = []corev1.Node{*n}
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

	// The record of a settled node is not kept: it is only counted once it has no pods.
	s.Unsettled = NewFleet(v).Unsettled
	settled := node("n", passed)
	c.nodes, c.pods = []corev1.Node{*settled}, amid(v, settled)
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
