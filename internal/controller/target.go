package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PatchTarget is a node to patch, by its name. Because the target is metadata, the API server answers with only the
// metadata. The whole Node, with up to fifty images, would be several times the size of the patch, and nobody reads it.
func PatchTarget(node string) *metav1.PartialObjectMetadata {
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: node}}
	target.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return target
}
