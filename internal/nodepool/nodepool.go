// Package nodepool reads Karpenter's NodePools. Karpenter's own types would bring its modules into the plugin.
package nodepool

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Kind and Resource are the NodePools'.
var (
	Kind     = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}
	Resource = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
)

// Of reads a NodePool. What has another form than Karpenter's counts as not there.
func Of(o *unstructured.Unstructured) decide.NodePool {
	annotation, _, _ := unstructured.NestedString(o.Object,
		"spec", "template", "metadata", "annotations", owner.AnnotationDoNotDisrupt)
	return decide.NodePool{Name: o.GetName(), UID: string(o.GetUID()), Startup: taints(o, "startupTaints"),
		Taints: taints(o, "taints"), DoNotDisrupt: annotation == "true"}
}

func taints(o *unstructured.Unstructured, field string) (out []marks.Taint) {
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", field)
	for _, x := range list {
		if t, ok := x.(map[string]any); ok {
			key, _ := t["key"].(string)
			effect, _ := t["effect"].(string)
			out = append(out, marks.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
		}
	}
	return out
}

// Carried collects the gating taints that nodes have, by the name of their NodePool.
type Carried map[string][]marks.Taint

// Add accounts for a node.
func (c Carried) Add(n *corev1.Node, gating []marks.Taint) {
	pool := n.Labels[owner.LabelNodePool]
	if pool == "" {
		return
	}
	for _, t := range n.Spec.Taints {
		if x := (marks.Taint{Key: t.Key, Effect: t.Effect}); decide.HasTaint(gating, x) && !decide.HasTaint(c[pool], x) {
			c[pool] = append(c[pool], x)
		}
	}
}
