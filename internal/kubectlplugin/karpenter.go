package kubectlplugin

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// karpenter adds to nodes that wait what keeps Karpenter from calling them initialised, as their owners say. Where no owner is
// served or may be read, nothing is added.
func (v *invocation) karpenter(ctx context.Context, list []subject) {
	if !slices.ContainsFunc(list, func(s subject) bool {
		return s.in.Node.Owner.Managed && slices.Contains(attention, s.status(v.now))
	}) {
		return
	}
	waits := map[string]string{}
	for _, kind := range owner.Kinds() {
		if kind.Name == owner.Node {
			continue
		}
		_ = pages(ctx, v.cluster.owners(kind.Resource).List, "", func(page *unstructured.UnstructuredList) {
			for _, o := range page.Items {
				_, node := kind.Machine(&o)
				if why := uninitialised(o); node != "" && why != "" {
					waits[node] = why
				}
			}
		})
	}
	for i := range list {
		if slices.Contains(attention, list[i].status(v.now)) {
			list[i].karpenter = waits[list[i].node.Name]
		}
	}
}

// uninitialised is the reason and message of the owner's condition Initialized; empty where it is True or not there.
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
