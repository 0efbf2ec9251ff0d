package workerpod

import (
	"slices"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// requiredImages lists the images that a pod needs on its node to start without a registry. It is nil where the pod's not starting says
// nothing about that: it is not bound to the node yet, a container of it has started, or one is pulled whatever the node has
// (imagePullPolicy Always, which an admission plugin may have set).
func requiredImages(pod *corev1.Pod) []string {
	if pod.Spec.NodeName == "" || slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), started) {
		return nil
	}
	var images []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.ImagePullPolicy != corev1.PullIfNotPresent && c.ImagePullPolicy != corev1.PullNever {
			return nil
		}
		images = append(images, c.Image)
	}
	return images
}

func started(c corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
}

// ImagesPresent reports whether a node that lists the images of its status has all of those; false for none. A reference counts as the
// container runtime reads it: docker.io/library/ before a bare name, and the digest alone where there is one
// (github.com/containerd/containerd pkg/reference, k8s.io/kubernetes pkg/kubelet/kuberuntime/convert.go).
func ImagesPresent(images []string, on []corev1.ContainerImage) bool {
	have := map[string]bool{}
	for _, i := range on {
		for _, name := range i.Names {
			have[canonical(name)] = true
		}
	}
	delete(have, "")
	return len(images) > 0 && !slices.ContainsFunc(images, func(i string) bool { return !have[canonical(i)] })
}

// canonical is empty for what is no reference.
func canonical(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return ""
	}
	return named.String()
}
