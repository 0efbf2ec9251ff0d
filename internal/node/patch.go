package node

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// Gate is what a change does to the gating taints.
type Gate int

// The changes to the gating taints.
const (
	GateKeep  Gate = iota
	GateOpen       // remove them; the node takes workloads
	GateClose      // put back the missing ones
)

// Change is one write of our marks.
type Change struct {
	Record Record
	Gate   Gate
	// Label sets the verified label (true) or removes it (false); nil leaves it.
	Label *bool
}

// Patch renders the change as one JSON merge patch. It carries the resourceVersion that the
// decision was made on: a merge patch replaces the whole taint list, and must be refused when
// another writer changed the node meanwhile.
func (c Change) Patch(n *corev1.Node, taints []config.Taint, label config.Label) []byte {
	meta := map[string]any{
		"resourceVersion": n.ResourceVersion,
		"annotations":     map[string]string{AnnotationRecord: c.Record.Encode()},
	}
	if c.Label != nil {
		var value any // null removes the key (RFC 7386)
		if *c.Label {
			value = label.Value
		}
		meta["labels"] = map[string]any{label.Key: value}
	}
	patch := map[string]any{"metadata": meta}
	switch c.Gate {
	case GateOpen:
		patch["spec"] = map[string]any{"taints": WithoutTaints(n.Spec.Taints, taints)}
	case GateClose:
		patch["spec"] = map[string]any{"taints": WithTaints(n.Spec.Taints, taints)}
	}
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err) // API types only
	}
	return b
}
