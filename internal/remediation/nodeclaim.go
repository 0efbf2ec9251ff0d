package remediation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

const (
	claimsPage = 500
	// claimsAge is how long a listing serves nodes that are held anyway.
	claimsAge = 10 * time.Second
)

// NodeClaims is the back-end of Karpenter's NodeClaims. There is no informer behind it, because Karpenter's CRDs may be
// absent or appear later, for which an informer would fail or block. An informer's answer may also be old, while this
// one decides about an action. The zero value with Reader and Writer set is ready for use.
type NodeClaims struct {
	// Reader must not be a cache.
	Reader client.Reader
	Writer client.Writer

	last apiread.Last[claimIndex]
}

// Kind implements Backend.
func (*NodeClaims) Kind() string { return nodeClaim }

const nodeClaim = "NodeClaim"

// Find implements Backend.
func (c *NodeClaims) Find(ctx context.Context, n *corev1.Node, read Read) owner.Owner {
	if names := owner.Of(n).Names; read == ByName && len(names) == 1 {
		// A list of one object by its name costs what a get does, and needs no other permission than the list of all.
		var named karpv1.NodeClaimList
		err := c.Reader.List(ctx, &named, client.MatchingFields{metav1.ObjectNameField: names[0]})
		if o := match(n, named.Items); err == nil && o.Name != "" {
			return o
		} else if err == nil {
			read = Latest // a list from before would still show it
		}
	}
	index, err := c.last.Get(ctx, claimsAge, read == Latest, c.list)
	if err != nil {
		return owner.Owner{Problem: "NodeClaims could not be listed (" + reason(err) + ")"}
	}
	return match(n, index.candidates(n))
}

// Act implements Backend: it deletes the NodeClaim.
func (c *NodeClaims) Act(ctx context.Context, t owner.Target) error {
	return deleteByUID(ctx, c.Writer, &karpv1.NodeClaim{}, t)
}

func (c *NodeClaims) list(ctx context.Context) (claimIndex, error) {
	var index claimIndex
	err := apiread.Pages(ctx, c.Reader, claimsPage, func() *karpv1.NodeClaimList { return &karpv1.NodeClaimList{} },
		func(page *karpv1.NodeClaimList, first bool) bool {
			if first {
				index = claimIndex{byProviderID: map[string][]karpv1.NodeClaim{}, byNodeName: map[string][]karpv1.NodeClaim{}}
			}
			for i := range page.Items {
				index.add(&page.Items[i])
			}
			return true
		})
	switch {
	case meta.IsNoMatchError(err) || apierr.Of(err, apierr.Read) == apierr.Gone:
		return claimIndex{}, nil // Karpenter is not installed; Gone: its CRD was removed since it was discovered
	case err != nil:
		log.FromContext(ctx).Error(err, "NodeClaims could not be listed")
		return claimIndex{}, err
	}
	return index, nil
}

// reason is the part of an API error that is the same each time.
func reason(err error) string { return cmp.Or(apierr.ReadReason(err), "no usable answer") }

// claimIndex holds, of all NodeClaims, what match needs.
type claimIndex struct {
	byProviderID, byNodeName map[string][]karpv1.NodeClaim
	open                     []karpv1.NodeClaim // one at most: match only asks whether there is any
}

func (x *claimIndex) add(full *karpv1.NodeClaim) {
	c := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: full.Name, UID: full.UID, DeletionTimestamp: full.DeletionTimestamp}}
	if pool, ok := full.Labels[karpv1.NodePoolLabelKey]; ok {
		c.Labels = map[string]string{karpv1.NodePoolLabelKey: pool}
	}
	if value, ok := full.Annotations[karpv1.DoNotDisruptAnnotationKey]; ok {
		c.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: value}
	}
	c.Status.ProviderID, c.Status.NodeName = full.Status.ProviderID, full.Status.NodeName

	if id := c.Status.ProviderID; id != "" {
		x.byProviderID[id] = append(x.byProviderID[id], c)
	}
	if name := c.Status.NodeName; name != "" {
		x.byNodeName[name] = append(x.byNodeName[name], c)
	}
	if isOpen(&c) && len(x.open) == 0 {
		x.open = append(x.open, c)
	}
}

// candidates returns the NodeClaims that can matter to the node: match answers the same on them as on all.
func (x claimIndex) candidates(n *corev1.Node) []karpv1.NodeClaim {
	var out []karpv1.NodeClaim
	if n.Spec.ProviderID != "" {
		out = append(out, x.byProviderID[n.Spec.ProviderID]...)
	} else {
		out = append(out, x.open...)
	}
	for _, c := range x.byNodeName[n.Name] {
		if n.Spec.ProviderID == "" || c.Status.ProviderID != n.Spec.ProviderID { // the others are there already
			out = append(out, c)
		}
	}
	return out
}

// match finds the one NodeClaim that provider ID, owner reference, status and NodePool agree on. A node that Karpenter
// may have made, and whose NodeClaim is not certain, is a Problem: to delete the Node would leave its machine running.
func match(n *corev1.Node, claims []karpv1.NodeClaim) owner.Owner {
	signs := owner.Of(n)
	owners := signs.UIDs
	if len(owners) > 1 {
		return problem("the node has more than one owning NodeClaim")
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
		return problem("more than one NodeClaim has the node's provider ID %q", n.Spec.ProviderID)
	case named != "":
		return problem("NodeClaim %s names this node, but does not have the node's provider ID %q",
			named, n.Spec.ProviderID)
	case n.Spec.ProviderID == "" && open:
		// Whatever the node's labels say: Karpenter adds its own at registration only.
		return problem("the node has no provider ID, and a NodeClaim without a provider ID or without a node may own it")
	case len(found) == 0 && signs.Managed:
		return problem("Karpenter manages the node, but no NodeClaim has its provider ID %q", n.Spec.ProviderID)
	case len(found) == 0:
		return owner.Owner{}
	}
	c := found[0]
	pool, pooled := c.Labels[karpv1.NodePoolLabelKey]
	nodePool, nodePooled := n.Labels[karpv1.NodePoolLabelKey]
	switch {
	case len(owners) == 1 && owners[0] != string(c.UID):
		return problem("NodeClaim %s has the node's provider ID, but the node's owner is another NodeClaim", c.Name)
	case c.Status.NodeName != "" && c.Status.NodeName != n.Name:
		return problem("NodeClaim %s has the node's provider ID, but names node %s",
			c.Name, c.Status.NodeName)
	case pool != nodePool || pooled != nodePooled:
		// The limits count by NodePool: a label that somebody set must not have an action counted in another pool.
		return problem("NodeClaim %s and the node differ in label %s (%q and %q)",
			c.Name, karpv1.NodePoolLabelKey, pool, nodePool)
	}
	target := owner.Target{Kind: nodeClaim, Name: c.Name, UID: string(c.UID)}
	o := owner.Owner{Target: target, Terminating: c.DeletionTimestamp != nil}
	if c.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		o.OptedOut = karpv1.DoNotDisruptAnnotationKey
	}
	return o
}

// problem is an owner that cannot be found for certain.
func problem(format string, args ...any) owner.Owner {
	return owner.Owner{Problem: fmt.Sprintf(format, args...)}
}

// isOpen reports whether the NodeClaim may yet turn out to be that of some node.
func isOpen(c *karpv1.NodeClaim) bool { return c.Status.ProviderID == "" || c.Status.NodeName == "" }
