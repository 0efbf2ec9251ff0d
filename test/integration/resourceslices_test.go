package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A DRA driver that publishes its devices in two slices, and then a second pool.
func TestResourceSlicePrerequisites(t *testing.T) {
	s := begin(t, prerequisites(map[string]any{"resourceSlices": []any{map[string]any{"driver": "gpu.example.com"}}}))
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "ResourceSlices of driver gpu.example.com (there are none for the node)")
	node, _ := s.get(n.Name)
	publish := func(pool string, number int, count int64) {
		s.must(k8s.ResourceV1().ResourceSlices().Create(s.ctx, sliceOf(node, pool, number, count), metav1.CreateOptions{}))
	}
	publish("gpus", 1, 2)
	s.waits(n.Name, "1 of 2 of pool gpus in generation 1")
	publish("links", 1, 2) // before the first pool is complete, so that the node waits on
	publish("gpus", 2, 2)
	s.waits(n.Name, "1 of 2 of pool links in generation 1")
	publish("links", 2, 2)
	s.becomes(n.Name, "verified", isVerified)
}

func sliceOf(n *corev1.Node, pool string, number int, count int64) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", n.Name, pool, number), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
		Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: count},
			Devices: []resourcev1.Device{{Name: fmt.Sprint("device-", number)}}}}
}
