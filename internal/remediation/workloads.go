package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OrdinaryPods lists the pods on a node, as namespace/name, that would be lost with it: all but the finished ones and
// those that belong to the node itself (owned by a DaemonSet or by the Node, or static pods, which a Node owns too).
// reader must not be a cache.
func OrdinaryPods(ctx context.Context, reader client.Reader, nodeName string) ([]string, error) {
	var list corev1.PodList
	if err := reader.List(ctx, &list, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName)}); err != nil {
		return nil, fmt.Errorf("list the pods on node %s: %w", nodeName, err)
	}
	var names []string
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || belongsToNode(p) {
			continue
		}
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return names, nil
}

func belongsToNode(p *corev1.Pod) bool {
	if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return true
	}
	for _, o := range p.OwnerReferences {
		if o.Kind == "Node" {
			return true
		}
	}
	c := metav1.GetControllerOf(p)
	return c != nil && c.Kind == "DaemonSet"
}
