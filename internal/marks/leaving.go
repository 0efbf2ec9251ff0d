package marks

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// leavingTaints are the taints that others put on a node which they are about to remove; the effect does not count.
var leavingTaints = []string{
	// Cluster Autoscaler's, before it drains and deletes a node (ToBeDeletedTaint in k8s.io/autoscaler
	// cluster-autoscaler/utils/taints).
	"ToBeDeletedByClusterAutoscaler",
	// Karpenter's (DisruptedTaintKey in sigs.k8s.io/karpenter pkg/apis/v1): its disruption queue sets it before it
	// launches the replacement, its termination controller when the Node's deletion begins. A disruption that is rolled
	// back takes it off.
	"karpenter.sh/disrupted",
}

// leavingConditions are the node conditions of KEP-5683 that, when True, say that a node is being taken out of service.
var leavingConditions = []corev1.NodeConditionType{
	"DrainInProgress", "MaintenanceInProgress", "GracefulNodeShutdownInProgress",
}

// leaving says why the node is on its way out; empty for one that is not, as far as the Node shows it. That its
// NodeClaim is being deleted it shows only once it is registered, by its own deletion.
func leaving(n *corev1.Node) string {
	if n.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	for _, t := range n.Spec.Taints {
		if slices.Contains(leavingTaints, t.Key) {
			return "it has the taint " + t.Key
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue && slices.Contains(leavingConditions, c.Type) {
			return fmt.Sprintf("its condition %s is True", c.Type)
		}
	}
	return ""
}
