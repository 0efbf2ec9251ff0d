package integration

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A CSI driver that the kubelet registers late, and with its volume limit later still.
func TestCSINodePrerequisites(t *testing.T) {
	s := begin(t, prerequisites(map[string]any{"csiNodes": []any{map[string]any{"driver": "disk.example.com", "allocatable": true}}}))
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "CSI driver disk.example.com (the node has no CSINode)")
	node, _ := s.get(n.Name)
	c, err := k8s.StorageV1().CSINodes().Create(s.ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: node.UID}}}}, metav1.CreateOptions{})
	s.must(c, err)
	s.waits(n.Name, "the kubelet has not registered it")
	c.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "disk.example.com", NodeID: "i-1"}}
	c, err = k8s.StorageV1().CSINodes().Update(s.ctx, c, metav1.UpdateOptions{})
	s.must(c, err)
	s.waits(n.Name, "without a volume limit")
	// A registered driver's entry cannot be changed: the kubelet takes it out and puts it back.
	drivers := c.Spec.Drivers
	c.Spec.Drivers = nil
	c, err = k8s.StorageV1().CSINodes().Update(s.ctx, c, metav1.UpdateOptions{})
	s.must(c, err)
	drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)}
	c.Spec.Drivers = drivers
	s.must(k8s.StorageV1().CSINodes().Update(s.ctx, c, metav1.UpdateOptions{}))
	s.becomes(n.Name, "verified", isVerified)
}
