package deletion

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

const (
	podsPage  = 100
	podsNamed = 3
)

// OrdinaryPods finds the pods on a node that would be lost with it. Finished pods do not count, and neither do static
// pods and pods that a DaemonSet or the Node owns. It stops reading once it can name a few. reader must not be a cache.
func OrdinaryPods(ctx context.Context, reader client.Reader, nodeName string) (decide.Workloads, error) {
	var names []string
	err := apiread.Pages(ctx, reader, podsPage, func() *corev1.PodList { return &corev1.PodList{} },
		func(page *corev1.PodList, first bool) bool {
			if first {
				names = nil
			}
			for i := range page.Items {
				if p := &page.Items[i]; !finished(p) && !belongsToNode(p) {
					names = append(names, p.Namespace+"/"+p.Name)
				}
				if len(names) > podsNamed {
					return false
				}
			}
			return true
		}, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", nodeName)})
	if err != nil {
		return decide.Workloads{}, fmt.Errorf("list the pods on node %s: %w", nodeName, err)
	}
	slices.Sort(names)
	if len(names) > podsNamed {
		return decide.Workloads{Names: names[:podsNamed], More: true}, nil
	}
	return decide.Workloads{Names: names}, nil
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// belongsToNode compares API groups, too. Other groups have kinds with these names, and their pods may move to other
// nodes.
func belongsToNode(p *corev1.Pod) bool {
	if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return true
	}
	for _, o := range p.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == owner.Node {
			return true
		}
	}
	c := metav1.GetControllerOf(p)
	if c == nil || c.Kind != "DaemonSet" {
		return false
	}
	gv, err := schema.ParseGroupVersion(c.APIVersion)
	return err == nil && gv.Group == "apps"
}
