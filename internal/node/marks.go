// Package node reads and writes our marks on a Node: taints, the verified label, the record
// annotation, the opt-outs and the condition.
package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// Names on a Node. The taint and the label are configurable and live in config.NodeManagement.
const (
	// AnnotationRecord holds the Record as JSON.
	AnnotationRecord = "node-ready/record"
	// AnnotationSkip set to "true" opts a node out of verification and remediation.
	AnnotationSkip = "node-ready/skip"
	// AnnotationDoNotDelete set to "true" opts a node out of deletion.
	AnnotationDoNotDelete = "node-ready/do-not-delete"
	// AnnotationKarpenterDoNotRepair is Karpenter's node-repair opt-out, honoured as AnnotationDoNotDelete.
	AnnotationKarpenterDoNotRepair = "karpenter.sh/do-not-repair"
	// AnnotationCAPISkipRemediation is Cluster API's MachineHealthCheck opt-out, honoured as
	// AnnotationDoNotDelete whatever its value, as Cluster API does.
	AnnotationCAPISkipRemediation = "cluster.x-k8s.io/skip-remediation"

	// LabelKarpenterNodePool names the NodePool of a Karpenter node (karpenter.sh/v1 NodePoolLabelKey).
	LabelKarpenterNodePool = "karpenter.sh/nodepool"
	// LabelKarpenterRegistered is set once Karpenter no longer re-adds startup taints (karpenter.sh/v1 NodeRegisteredLabelKey).
	LabelKarpenterRegistered = "karpenter.sh/registered"
	// LabelControlPlane marks a control-plane node (kubeadm's convention, KEP-2067).
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	// KindNodeClaim is the kind of the owner that Karpenter gives its nodes.
	KindNodeClaim = "NodeClaim"
)

// Facts is what decisions need to know of a Node.
type Facts struct {
	Name, UID, BootID, ProviderID string
	Pool                          string // Karpenter NodePool; empty for other nodes
	Gated                         bool   // carries at least one gating taint
	Labelled                      bool   // carries the verified label with its value
	Skip, DoNotDelete             bool
	ControlPlane, Deleting        bool
	Managed, Registered           bool // by Karpenter
	Ready, Lost                   bool // Ready condition True; Unknown (the kubelet stopped posting)
	HasRecord                     bool // carries a record annotation, readable or not
	Record                        Record
	Condition                     *corev1.NodeCondition // ours, if there
}

// Observe distils a Node. The error tells of an unreadable record, which counts as none: the
// node then starts afresh, and is still verified, because it carries one.
func Observe(n *corev1.Node, taints []config.Taint, label config.Label) (Facts, error) {
	f := Facts{
		Name: n.Name, UID: string(n.UID), BootID: n.Status.NodeInfo.BootID, ProviderID: n.Spec.ProviderID,
		Pool:     n.Labels[LabelKarpenterNodePool],
		Labelled: n.Labels[label.Key] == label.Value && hasKey(n.Labels, label.Key),
		Skip:     n.Annotations[AnnotationSkip] == "true",
		DoNotDelete: n.Annotations[AnnotationDoNotDelete] == "true" ||
			n.Annotations[AnnotationKarpenterDoNotRepair] == "true" ||
			hasKey(n.Annotations, AnnotationCAPISkipRemediation),
		ControlPlane: hasKey(n.Labels, LabelControlPlane),
		Deleting:     n.DeletionTimestamp != nil,
		Managed:      hasKey(n.Labels, LabelKarpenterNodePool),
		Registered:   n.Labels[LabelKarpenterRegistered] == "true",
		HasRecord:    hasKey(n.Annotations, AnnotationRecord),
	}
	for _, o := range n.OwnerReferences {
		f.Managed = f.Managed || o.Kind == KindNodeClaim
	}
	for _, t := range n.Spec.Taints {
		f.Gated = f.Gated || gates(taints, t)
	}
	for i, c := range n.Status.Conditions {
		switch c.Type {
		case ConditionType:
			f.Condition = &n.Status.Conditions[i]
		case corev1.NodeReady:
			f.Ready = c.Status == corev1.ConditionTrue
			f.Lost = c.Status == corev1.ConditionUnknown
		}
	}
	var err error
	f.Record, err = parseRecord(n)
	return f, err
}

func hasKey(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// gates tells whether t is one of ours. The value does not count: an autoscaler or a person
// may have set another one.
func gates(ours []config.Taint, t corev1.Taint) bool {
	for _, o := range ours {
		if o.Key == t.Key && o.Effect == t.Effect {
			return true
		}
	}
	return false
}

// WithoutTaints returns the node's taints less ours, in their order.
func WithoutTaints(have []corev1.Taint, ours []config.Taint) []corev1.Taint {
	kept := []corev1.Taint{}
	for _, t := range have {
		if !gates(ours, t) {
			kept = append(kept, t)
		}
	}
	return kept
}

// WithTaints returns the node's taints and those of ours that are missing. The API server
// refuses two taints with one key and effect.
func WithTaints(have []corev1.Taint, ours []config.Taint) []corev1.Taint {
	out := append([]corev1.Taint{}, have...)
	for _, o := range ours {
		t := corev1.Taint{Key: o.Key, Value: o.Value, Effect: o.Effect}
		if !contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func contains(taints []corev1.Taint, t corev1.Taint) bool {
	for _, have := range taints {
		if have.MatchTaint(&t) {
			return true
		}
	}
	return false
}
