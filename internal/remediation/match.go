package remediation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// match finds the one NodeClaim that provider ID, owner reference, status and NodePool agree on. A node that Karpenter
// may have made, and whose NodeClaim is not certain, is a Problem: to delete the Node would leave its machine running.
func match(n *corev1.Node, claims []karpv1.NodeClaim) owner.Owner {
	signs := owner.Of(n)
	owners := signs.UIDs
	if len(owners) > 1 {
		return owner.Owner{Problem: "the node has more than one owning NodeClaim"}
	}
	var found []*karpv1.NodeClaim
	var named string // the first by name, so that the text does not depend on the order
	open := false
	for i := range claims {
		c := &claims[i]
		switch {
		case n.Spec.ProviderID != "" && c.Status.ProviderID == n.Spec.ProviderID:
			found = append(found, c)
		case c.Status.NodeName == n.Name && (named == "" || c.Name < named):
			named = c.Name
		}
		open = open || isOpen(c)
	}
	switch {
	case len(found) > 1:
		return owner.Owner{Problem: fmt.Sprintf("more than one NodeClaim has the node's provider ID %q", n.Spec.ProviderID)}
	case named != "":
		return owner.Owner{Problem: fmt.Sprintf("NodeClaim %s says that it is this node, but does not have the node's provider ID %q", named, n.Spec.ProviderID)}
	case n.Spec.ProviderID == "" && open:
		// Whatever the node's labels say: Karpenter adds its own at registration only.
		return owner.Owner{Problem: "the node has no provider ID, and a NodeClaim that has none or no node yet may be its own"}
	case len(found) == 0 && signs.Managed:
		return owner.Owner{Problem: fmt.Sprintf("the node is Karpenter's, but no NodeClaim has its provider ID %q", n.Spec.ProviderID)}
	case len(found) == 0:
		return owner.Owner{}
	}
	c := found[0]
	pool, pooled := c.Labels[karpv1.NodePoolLabelKey]
	nodePool, nodePooled := n.Labels[karpv1.NodePoolLabelKey]
	switch {
	case len(owners) == 1 && owners[0] != string(c.UID):
		return owner.Owner{Problem: fmt.Sprintf("NodeClaim %s has the node's provider ID, but the node's owner is another NodeClaim", c.Name)}
	case c.Status.NodeName != "" && c.Status.NodeName != n.Name:
		return owner.Owner{Problem: fmt.Sprintf("NodeClaim %s has the node's provider ID, but says that it is node %s", c.Name, c.Status.NodeName)}
	case pool != nodePool || pooled != nodePooled:
		// The limits count by NodePool: a label that somebody set must not have a deletion counted in another pool.
		return owner.Owner{Problem: fmt.Sprintf("NodeClaim %s and the node differ in label %s (%q and %q)", c.Name, karpv1.NodePoolLabelKey, pool, nodePool)}
	}
	o := owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: c.Name, UID: string(c.UID)}, Terminating: c.DeletionTimestamp != nil}
	if c.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		o.OptedOut = karpv1.DoNotDisruptAnnotationKey
	}
	return o
}

// isOpen reports whether the NodeClaim may yet turn out to be that of some node.
func isOpen(c *karpv1.NodeClaim) bool { return c.Status.ProviderID == "" || c.Status.NodeName == "" }
