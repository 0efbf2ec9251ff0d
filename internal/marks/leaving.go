package marks

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// leavingTaints are the taints that other programs add to a node before they remove it. Their effect does not matter.
var leavingTaints = []string{
	// Cluster Autoscaler's, before it drains and deletes a node (ToBeDeletedTaint in k8s.io/autoscaler
	// cluster-autoscaler/utils/taints).
	"ToBeDeletedByClusterAutoscaler",
	// Karpenter's (DisruptedTaintKey in sigs.k8s.io/karpenter pkg/apis/v1). Its disruption queue adds it before it
	// launches the replacement. Its termination controller adds it when the Node's deletion begins. A disruption that is
	// rolled back removes it.
	"karpenter.sh/disrupted",
}

// leavingConditions are the node conditions of KEP-5683 that, when True, say that a node is being taken out of service.
var leavingConditions = []corev1.NodeConditionType{
	"DrainInProgress", "MaintenanceInProgress", "GracefulNodeShutdownInProgress",
}

// leaving is the reason why the node is being removed, as far as the Node shows it, or empty if it is not. The Node
// shows the deletion of its NodeClaim only once the node is registered: then the Node is deleted, too.
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
