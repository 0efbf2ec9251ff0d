package owner

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of Karpenter's (sigs.k8s.io/karpenter/pkg/apis/v1). Karpenter's own package would bring its modules into the
// plugin.
const (
	// AnnotationDoNotRepair is Karpenter's node-repair opt-out on a Node. It is honoured as marks.AnnotationDoNotDelete.
	AnnotationDoNotRepair = "karpenter.sh/do-not-repair"
	// AnnotationDoNotDisrupt keeps Karpenter from disrupting a node of its own accord (DoNotDisruptAnnotationKey). "true"
	// on the Node or its NodeClaim is honoured as marks.AnnotationDoNotDelete. Karpenter copies the annotations of a
	// NodePool's template to its NodeClaims and Nodes.
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	// LabelNodePool names the NodePool of a Karpenter node (NodePoolLabelKey).
	LabelNodePool = "karpenter.sh/nodepool"
	// LabelRegistered is set once Karpenter no longer puts startup taints back (NodeRegisteredLabelKey).
	LabelRegistered = "karpenter.sh/registered"

	karpenterGroup    = "karpenter.sh"
	finalizer         = "karpenter.sh/termination"
	taintUnregistered = "karpenter.sh/unregistered"
)

var nodeClaim = Kind{
	Name:     "NodeClaim",
	Resource: schema.GroupVersionResource{Group: karpenterGroup, Version: "v1", Resource: "nodeclaims"},
	Version:  schema.GroupVersionKind{Group: karpenterGroup, Version: "v1", Kind: "NodeClaim"},
	Pools:    "NodePool",
	signs: func(n *corev1.Node) Signs {
		pool, pooled := n.Labels[LabelNodePool]
		registered, labelled := n.Labels[LabelRegistered]
		s := Signs{Pool: pool, Registered: registered == "true"}
		for _, o := range n.OwnerReferences {
			if o.Kind == "NodeClaim" && strings.HasPrefix(o.APIVersion, karpenterGroup+"/") {
				s.UIDs, s.Names = append(s.UIDs, string(o.UID)), append(s.Names, o.Name)
			}
		}
		// Labels and owner come at registration only, so a node that just joined may show no more than the taint.
		s.Managed = len(s.UIDs) > 0 || pooled || labelled || slices.Contains(n.Finalizers, finalizer) ||
			slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUnregistered })
		return s
	},
	Machine: func(u *unstructured.Unstructured) (providerID, nodeName string) {
		providerID, _, _ = unstructured.NestedString(u.Object, "status", "providerID") // of another form: counts as none
		nodeName, _, _ = unstructured.NestedString(u.Object, "status", "nodeName")
		return providerID, nodeName
	},
}
