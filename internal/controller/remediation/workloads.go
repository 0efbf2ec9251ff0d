package remediation

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
// pods and pods that a DaemonSet or the Node owns. It names a few of them, and a static pod that marks a control plane.
// With latest, no pod is missing that was bound before the call. Otherwise the API server answers from its memory
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions), which may be a moment old.
// reader must not be a cache.
func OrdinaryPods(ctx context.Context, reader client.Reader, nodeName string, latest bool) (decide.Workloads, error) {
	opts := &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName)}
	if !latest {
		opts.Raw = &metav1.ListOptions{ResourceVersion: "0"}
	}
	var names []string
	var controlPlane string
	err := apiread.Pages(ctx, reader, podsPage, func() *corev1.PodList { return &corev1.PodList{} },
		func(page *corev1.PodList, first bool) bool {
			if first {
				names, controlPlane = nil, ""
			}
			for i := range page.Items {
				switch p := &page.Items[i]; {
				case marksControlPlane(p):
					controlPlane = p.Namespace + "/" + p.Name
				case len(names) <= podsNamed && !finished(p) && !belongsToNode(p):
					names = append(names, p.Namespace+"/"+p.Name)
				}
			}
			return true // ordinary pods in any number do not show that no later pod is of a control plane
		}, opts)
	if err != nil {
		return decide.Workloads{}, fmt.Errorf("list the pods on node %s: %w", nodeName, err)
	}
	slices.Sort(names)
	named := min(len(names), podsNamed)
	return decide.Workloads{Names: names[:named], More: len(names) > named, Stale: !latest,
		ControlPlane: controlPlane}, nil
}

// marksControlPlane reports whether the pod is the mirror of a static pod of an API server or etcd, by the label that
// kubeadm and RKE2 give them. Only the node's kubelet makes mirror pods on it
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror). One that has ended
// counts, too.
func marksControlPlane(p *corev1.Pod) bool {
	_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
	component := p.Labels["component"]
	return static && p.Namespace == metav1.NamespaceSystem && (component == "kube-apiserver" || component == "etcd")
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
