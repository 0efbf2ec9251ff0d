package controller

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// store is as much of an informer's store as a Snapshotter reads.
type store []*corev1.Node

func (s store) List() (all []any) {
	for _, n := range s {
		all = append(all, n)
	}
	return all
}

func TestSnapshot(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	c.pods = amid(v, n)
	s := &Snapshotter{View: v, Nodes: store{n, node("m"), node("idle")}}
	seen, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(seen)
	if len(all) != 3 || all[0].Node.Name != "idle" || len(all[0].Pods) != 0 || len(all[1].Pods) != 1 || all[2].Node.Name != "n" || len(all[2].Pods) != 2 {
		t.Errorf("%+v", all)
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
		s.Nodes = store{n}
		for range 2 {
			seen, err := s.Snapshot(t.Context())
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
}
