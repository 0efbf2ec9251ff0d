package manager

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// cacheOptions limits the cache to nodes and our own pods, and to the parts of them that decisions read. unwatched is
// called with the API server's message whenever it refuses to list or watch the pods.
func cacheOptions(cfg *config.Config, workerNamespace string, unwatched func(why string)) cache.Options {
	// By one label only, whatever its value: a pod of ours that a policy changed must be seen, or nobody deletes it.
	ours, _ := labels.Parse(workerpod.LabelPurpose) // a key alone is a selector
	return cache.Options{
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
			if why := refusedPods(err); why != "" {
				unwatched(why)
			}
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: slimNode(cfg)},
			&corev1.Pod{}: {
				Transform: slimPod,
				// The informer lists by namespace, too (restrictNamespaceBySelector in controller-runtime pkg/cache/internal).
				Field: fields.OneTermEqualSelector("metadata.namespace", workerNamespace),
				Label: ours,
			},
		},
	}
}

// refusedPods is the API server's message if it refuses a request for pods; otherwise empty.
func refusedPods(err error) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil || answer.Status().Details.Kind != "pods" {
		return ""
	}
	return apierr.Refusal(err, apierr.Read)
}

// awaited are the resources that a prerequisite or a worker pod requires in status.allocatable.
func awaited(cfg *config.Config) map[corev1.ResourceName]bool {
	names := map[corev1.ResourceName]bool{}
	for _, v := range cfg.Variants() {
		for _, p := range v.Prerequisites.All() {
			if p.Kind == allocatable.Kind {
				names[corev1.ResourceName(p.Name)] = true
			}
		}
		for _, name := range v.ExtendedResources() {
			names[name] = true
		}
	}
	return names
}

// slimPod reduces a worker pod to its identity, its result, and what its status is read against.
func slimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Affinity: p.Spec.Affinity, NodeSelector: p.Spec.NodeSelector,
			ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds, InitContainers: named(p.Spec.InitContainers),
			Priority: p.Spec.Priority}
	}
	return o, nil
}

// named keeps what a container's status is found by and whether it is a sidecar.
func named(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range containers {
		out = append(out, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
	}
	return out
}
