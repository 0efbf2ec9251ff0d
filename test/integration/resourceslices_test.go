package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A DRA driver that publishes an empty pool, then its devices in two slices, and a second pool.
func TestResourceSlicePrerequisites(t *testing.T) {
	s := begin(t, prerequisites(map[string]any{"resourceSlices": []any{map[string]any{"driver": "gpu.example.com", "minDevices": 3}}}))
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "ResourceSlices of driver gpu.example.com (there are none for the node)")
	node, _ := s.get(n.Name)
	slices := k8s.ResourceV1().ResourceSlices()
	publish := func(pool string, number int, count int64) {
		s.must(slices.Create(s.ctx, sliceOf(node, pool, number, count), metav1.CreateOptions{}))
	}
	// A driver that found no device publishes a pool all the same (kubernetes-sigs/dra-driver-nvidia-gpu issue 1008).
	empty := sliceOf(node, "gpus", 0, 1)
	empty.Spec.Devices = nil
	s.must(slices.Create(s.ctx, empty, metav1.CreateOptions{}))
	s.waits(n.Name, "ResourceSlices of driver gpu.example.com (they have 0 of at least 3 devices)")
	s.must(nil, slices.Delete(s.ctx, empty.Name, metav1.DeleteOptions{}))
	publish("gpus", 1, 2)
	s.waits(n.Name, "1 of 2 of pool gpus in generation 1")
	publish("links", 1, 2) // before the first pool is complete, so that the node waits on
	publish("gpus", 2, 2)
	s.waits(n.Name, "1 of 2 of pool links in generation 1")
	publish("links", 2, 2) // now there are four devices
	s.becomes(n.Name, "verified", isVerified)
}

func sliceOf(n *corev1.Node, pool string, number int, count int64) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", n.Name, pool, number), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
		Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: count},
			Devices: []resourcev1.Device{{Name: fmt.Sprint("device-", number)}}}}
}
