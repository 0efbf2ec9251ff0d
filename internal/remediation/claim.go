// Package remediation finds and deletes what stands behind a failed node, and keeps the ledger of deletions.
package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
)

// FindClaim looks up the NodeClaim of a node. reader must not be a cache: the answer decides about a deletion.
// It never returns an error: what goes wrong is the Claim's Problem, and holds the deletion.
func FindClaim(ctx context.Context, reader client.Reader, n *corev1.Node) decide.Claim {
	var list karpv1.NodeClaimList
	err := reader.List(ctx, &list)
	switch {
	case meta.IsNoMatchError(err):
		return match(n, nil)
	case err != nil:
		return decide.Claim{Problem: "NodeClaims could not be listed: " + err.Error()}
	}
	return match(n, list.Items)
}

// match finds the one NodeClaim that both the provider ID and, if there is one, the owner reference name.
func match(n *corev1.Node, claims []karpv1.NodeClaim) decide.Claim {
	var owner string
	for _, o := range n.OwnerReferences {
		if o.Kind != node.KindNodeClaim {
			continue
		}
		if owner != "" {
			return decide.Claim{Problem: "the node has more than one owning NodeClaim"}
		}
		owner = string(o.UID)
	}
	_, pooled := n.Labels[node.LabelKarpenterNodePool]
	managed := pooled || owner != ""

	var found []karpv1.NodeClaim
	for _, c := range claims {
		if n.Spec.ProviderID != "" && c.Status.ProviderID == n.Spec.ProviderID {
			found = append(found, c)
		}
	}
	switch {
	case len(found) > 1:
		return decide.Claim{Problem: fmt.Sprintf("%d NodeClaims have the node's provider ID %s", len(found), n.Spec.ProviderID)}
	case len(found) == 0 && managed && n.Spec.ProviderID == "":
		return decide.Claim{Problem: "the node is Karpenter's and has no provider ID to find its NodeClaim by"}
	case len(found) == 0 && managed:
		return decide.Claim{Problem: fmt.Sprintf("the node is Karpenter's, but no NodeClaim has its provider ID %s", n.Spec.ProviderID)}
	case len(found) == 0:
		return decide.Claim{}
	}
	c := found[0]
	if owner != "" && owner != string(c.UID) {
		return decide.Claim{Problem: fmt.Sprintf("the node's owner reference and its provider ID name different NodeClaims (%s has the provider ID)", c.Name)}
	}
	if c.Status.NodeName != "" && c.Status.NodeName != n.Name {
		return decide.Claim{Problem: fmt.Sprintf("NodeClaim %s has the node's provider ID but says it is node %s", c.Name, c.Status.NodeName)}
	}
	return decide.Claim{Name: c.Name, UID: string(c.UID), Deleting: c.DeletionTimestamp != nil}
}

// Delete deletes the NodeClaim or Node, on condition that it still has the UID that was decided on.
func Delete(ctx context.Context, w client.Writer, kind decide.Kind, name, uid string) error {
	var obj client.Object = &corev1.Node{}
	if kind == decide.KindNodeClaim {
		obj = &karpv1.NodeClaim{}
	}
	obj.SetName(name)
	if err := w.Delete(ctx, obj, client.Preconditions{UID: ptrUID(uid)}); err != nil {
		return fmt.Errorf("delete %s %s (UID %s): %w", kind, name, uid, err)
	}
	return nil
}
