// Package conditions is prerequisites.conditions.
package conditions

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Settings are conditions of the node that must have the given status.
type Settings []Entry

// Entry is a node condition and its status.
type Entry struct {
	// Type of the node's condition.
	Type corev1.NodeConditionType `json:"type" required:"" format:"qualified-name"`
	// Status it must have. Default True.
	Status corev1.ConditionStatus `json:"status,omitempty" enum:"True False Unknown"`
}

// SetDefaults fills each entry's status.
func (s Settings) SetDefaults() {
	for i := range s {
		s[i].Status = cmp.Or(s[i].Status, corev1.ConditionTrue)
	}
}

// Validate reports conditions that are given twice, or that would never hold.
func (s Settings) Validate(p *field.Path) (faults field.ErrorList) {
	seen := map[corev1.NodeConditionType]bool{}
	for i, c := range s {
		at := p.Index(i).Child("type")
		switch {
		case c.Type == marks.ConditionType:
			faults = append(faults, field.Invalid(at, c.Type,
				"is the condition that kube-node-ready sets, so a node would wait for it forever"))
		case seen[c.Type]:
			faults = append(faults, field.Duplicate(at, c.Type))
		}
		seen[c.Type] = c.Type != ""
	}
	return faults
}

// Prerequisites are the conditions. Nothing is read: a node's reconciler watches the node.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, c := range s {
		all = append(all, kind.Prerequisite{Name: fmt.Sprintf("%s=%s", c.Type, c.Status),
			Unmet: func(n *corev1.Node, in kind.Cluster) kind.Unmet { return kind.Unmet{Why: c.missing(n, in)} }})
	}
	return all
}

func (c Entry) missing(n *corev1.Node, in kind.Cluster) string {
	what := fmt.Sprintf("the node's condition %s to be %s", c.Type, c.Status)
	for _, have := range n.Status.Conditions {
		if have.Type != c.Type {
			continue
		}
		stale := ""
		if have.Type != corev1.NodeReady { // which the kubelet writes in one request with its boot ID
			stale = in.Stale(n, kind.Object{ID: "condition " + string(have.Type), Created: n.CreationTimestamp,
				Sign: have.LastTransitionTime.String()})
		}
		switch {
		case have.Status == c.Status && stale == "":
			return ""
		case have.Status == c.Status:
			return fmt.Sprintf("%s (it %s)", what, stale)
		}
	}
	return what
}
