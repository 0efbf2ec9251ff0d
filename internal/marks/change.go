package marks

import (
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// Gate is what a change does to the gating taints.
type Gate int

// The changes to the gating taints.
const (
	GateKeep  Gate = iota
	GateOpen       // remove all of them; the node takes workloads, and Vocabulary.Completed says since when
	GateClose      // put back those of the node's profile that are missing
)

// Change is one write of our marks.
type Change struct {
	Record Record
	// KeepRecord leaves the record as it is: only what rules ask for is written.
	KeepRecord bool
	Gate       Gate
	// GateTaints are the taints that GateClose puts on.
	GateTaints []Taint
	// Label sets the verified label (true) or removes it (false); nil leaves it.
	Label *bool
	// Answer is the result that is given to Record.Request; empty where none is answered.
	Answer attempt.Outcome
	// Rules is what NodeReadinessRules change, in the same patch.
	Rules RuleChange
}

// Patch renders the change as one JSON merge patch. It carries the resourceVersion that the decision was made on: a
// merge patch replaces the whole taint list, so it must fail if another writer has changed the node meanwhile.
func (c Change) Patch(n *corev1.Node, v Vocabulary) []byte {
	meta := map[string]any{
		"uid":             n.UID,
		"resourceVersion": n.ResourceVersion,
	}
	annotations := c.Rules.annotations()
	if !c.KeepRecord {
		annotations[AnnotationRecord] = c.Record.Encode()
	}
	if c.Answer != "" {
		annotations[AnnotationVerifyCompleted], annotations[AnnotationVerifyResult] = c.Record.Request, string(c.Answer)
	}
	t := c.Record.VerifiedTime
	if c.Record.Released != nil {
		t = c.Record.Released
	}
	if c.Gate == GateOpen && v.Completed != "" && t != nil {
		annotations[v.Completed] = strconv.FormatInt(t.Unix(), 10)
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if c.Label != nil {
		var value any // null removes the key (RFC 7386)
		if *c.Label {
			value = v.Verified.Value
		}
		meta["labels"] = map[string]any{v.Verified.Key: value}
	}
	patch := map[string]any{"metadata": meta}
	if c.Gate != GateKeep || len(c.Rules.Add)+len(c.Rules.Remove) > 0 {
		taints := c.Rules.taints(n.Spec.Taints)
		switch c.Gate {
		case GateOpen:
			taints = v.without(taints)
		case GateClose:
			taints = with(taints, c.GateTaints)
		}
		patch["spec"] = map[string]any{"taints": taints}
	}
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err) // API types only
	}
	return b
}
