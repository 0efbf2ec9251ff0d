package marks

import (
	"fmt"
	"slices"
	"strings"

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
	// That of Google's termination handler before a preemption or a host's maintenance
	// (https://github.com/GoogleCloudPlatform/k8s-node-termination-handler).
	"cloud.google.com/impending-node-termination",
	// A person's or a remediator's, on a node that is shut down and does not return
	// (https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown).
	corev1.TaintNodeOutOfService,
}

// terminationHandlerPrefix begins the keys of the taints that aws-node-termination-handler adds on a notice. That is
// of a spot interruption, a scheduled event, a rebalance recommendation, or an instance's end in an Auto Scaling group
// (https://github.com/aws/aws-node-termination-handler/blob/main/pkg/node/node.go).
const terminationHandlerPrefix = "aws-node-termination-handler/"

// leavingConditions are the node conditions of KEP-5683 that, when True, say that a node is being taken out of service.
var leavingConditions = []corev1.NodeConditionType{
	"DrainInProgress", "MaintenanceInProgress", "GracefulNodeShutdownInProgress",
}

// initializationTaints are on a node until another program has set what it knows of the machine, such as the labels of
// its instance type, zone and pool. One is a cloud provider's (TaintExternalCloudProvider in
// k8s.io/cloud-provider/api), one Cluster API's (NodeUninitializedTaint in sigs.k8s.io/cluster-api api/core/v1beta2).
var initializationTaints = []string{
	"node.cloudprovider.kubernetes.io/uninitialized",
	"node.cluster.x-k8s.io/uninitialized",
}

// uninitialized is the key of the taint which says that the node's labels are yet to come, or empty.
func uninitialized(n *corev1.Node) string {
	for _, t := range n.Spec.Taints {
		if slices.Contains(initializationTaints, t.Key) {
			return t.Key
		}
	}
	return ""
}

// leaving is the reason why the node is being removed, as far as the Node shows it, or empty if it is not. The Node
// shows the deletion of its NodeClaim only once the node is registered: then the Node is deleted, too.
func leaving(n *corev1.Node, v Vocabulary) string {
	if n.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	for _, t := range n.Spec.Taints {
		if slices.Contains(leavingTaints, t.Key) || strings.HasPrefix(t.Key, terminationHandlerPrefix) ||
			slices.Contains(v.Leaving, t.Key) {
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
