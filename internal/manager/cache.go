package manager

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// cacheOptions keeps nodes and our own pods, and of both only what a decision reads.
func cacheOptions(workerNamespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: slimNode},
			&corev1.Pod{}: {Transform: slimPod, Namespaces: map[string]cache.Config{workerNamespace: {
				LabelSelector: labels.SelectorFromSet(labels.Set{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component}),
			}}},
		},
	}
}

// slimNode drops what no decision reads: the image list alone is most of a Node.
func slimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields = nil
		n.Status = corev1.NodeStatus{Conditions: n.Status.Conditions, NodeInfo: corev1.NodeSystemInfo{BootID: strings.Clone(n.Status.NodeInfo.BootID)}}
	}
	return o, nil
}

// slimPod keeps of a worker pod what tells its identity and its end.
func slimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	}
	return o, nil
}
