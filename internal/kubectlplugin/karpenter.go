package kubectlplugin

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// karpenter adds to nodes that wait what keeps Karpenter from calling them initialised, as their NodeClaims say. Where there are none,
// or they may not be read, nothing is added.
func (v *invocation) karpenter(ctx context.Context, list []subject) {
	if !slices.ContainsFunc(list, func(s subject) bool {
		return s.in.Node.Karpenter.Managed && slices.Contains(attention, s.status(v.now))
	}) {
		return
	}
	waits := map[string]string{}
	_ = pages(ctx, v.cluster.claims.List, "", func(page *unstructured.UnstructuredList) {
		for _, c := range page.Items {
			node, _, _ := unstructured.NestedString(c.Object, "status", "nodeName")
			if why := uninitialised(c); node != "" && why != "" {
				waits[node] = why
			}
		}
	})
	for i := range list {
		if slices.Contains(attention, list[i].status(v.now)) {
			list[i].karpenter = waits[list[i].node.Name]
		}
	}
}

// uninitialised is the reason and message of the NodeClaim's condition Initialized; empty where it is True or not there.
func uninitialised(c unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
	for _, x := range conditions {
		condition, ok := x.(map[string]any)
		if !ok || condition["type"] != "Initialized" || condition["status"] == string(metav1.ConditionTrue) {
			continue
		}
		reason, _ := condition["reason"].(string)
		if message, _ := condition["message"].(string); message != "" && message != reason {
			return reason + ": " + message
		}
		return reason
	}
	return ""
}
