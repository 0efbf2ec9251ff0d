package manager

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// cacheOptions keeps nodes and our own pods, and of both only what a decision reads.
func cacheOptions(cfg *config.Config, workerNamespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: slimNode(awaited(cfg))},
			&corev1.Pod{}: {
				Transform: slimPod,
				// Not Namespaces: an informer of several does not show its store. This one lists by namespace, too.
				Field: fields.OneTermEqualSelector("metadata.namespace", workerNamespace),
				Label: labels.SelectorFromSet(labels.Set{
					workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component}),
			},
		},
	}
}

// awaited is the resources that a prerequisite asks for in status.allocatable.
func awaited(cfg *config.Config) map[corev1.ResourceName]bool {
	names := map[corev1.ResourceName]bool{}
	for _, v := range cfg.Variants() {
		for _, p := range v.Prerequisites.All() {
			if p.Kind == allocatable.Kind {
				names[corev1.ResourceName(p.Name)] = true
			}
		}
	}
	return names
}

// slimNode drops what no decision reads: the image list alone is most of a Node. Of what is allocatable it keeps the
// resources that are awaited, so that no other one's change enqueues the node.
func slimNode(awaited map[corev1.ResourceName]bool) func(any) (any, error) {
	return func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			n.ManagedFields = nil
			maps.DeleteFunc(n.Status.Allocatable, func(name corev1.ResourceName, _ resource.Quantity) bool {
				return !awaited[name]
			})
			if len(n.Status.Allocatable) == 0 {
				n.Status.Allocatable = nil
			}
			for i := range n.Status.Conditions {
				if c := &n.Status.Conditions[i]; c.Type != marks.ConditionType { // of others' the status decides
					c.Reason, c.Message = "", ""
				}
			}
			// Cloned: decoding has left room for twice as many.
			n.Status = corev1.NodeStatus{Allocatable: n.Status.Allocatable, Conditions: slices.Clone(n.Status.Conditions),
				NodeInfo: corev1.NodeSystemInfo{BootID: strings.Clone(n.Status.NodeInfo.BootID)}}
		}
		return o, nil
	}
}

// slimPod keeps of a worker pod what identifies it, how it ended, and which images it needs.
func slimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName,
			InitContainers: images(p.Spec.InitContainers), Containers: images(p.Spec.Containers)}
	}
	return o, nil
}

func images(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range containers {
		out = append(out, corev1.Container{Image: c.Image, ImagePullPolicy: c.ImagePullPolicy})
	}
	return out
}
