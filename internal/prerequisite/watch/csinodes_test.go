package watch

import (
	"testing"
	"testing/synctest"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
)

// csiNode is the CSINode that the kubelet makes for a node of that UID.
func csiNode(name string, of types.UID, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: of}}},
		Spec: storagev1.CSINodeSpec{Drivers: drivers}}
}

func TestCSINodes(t *testing.T) {
	const disk, why = "disk.example.com", "CSI driver disk.example.com "
	plain := storagev1.CSINodeDriver{Name: disk, NodeID: "i-1"}
	limited := plain
	limited.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)}
	unbounded := plain
	unbounded.Allocatable = &storagev1.VolumeNodeResources{}
	without := csiNode("node-a", "node-a", limited)
	without.OwnerReferences = nil
	for name, test := range map[string]struct {
		allocatable bool
		objects     []*storagev1.CSINode
		why         string
	}{
		"none":          {why: why + "(the node has no CSINode)"},
		"another's":     {objects: []*storagev1.CSINode{csiNode("node-b", "node-b", plain)}, why: why + "(the node has no CSINode)"},
		"predecessor's": {objects: []*storagev1.CSINode{csiNode("node-a", "before", plain)}, why: why + "(the CSINode belongs to an earlier node of this name)"},
		"nobody's":      {objects: []*storagev1.CSINode{without}, why: why + "(the CSINode belongs to an earlier node of this name)"},
		"empty":         {objects: []*storagev1.CSINode{csiNode("node-a", "node-a", storagev1.CSINodeDriver{Name: "files.example.com"})}, why: why + "(the kubelet has not registered it)"},
		"registered":    {objects: []*storagev1.CSINode{csiNode("node-a", "node-a", storagev1.CSINodeDriver{Name: "files.example.com"}, plain)}},
		"no limit":      {allocatable: true, objects: []*storagev1.CSINode{csiNode("node-a", "node-a", plain)}, why: why + "(it is registered without a volume limit)"},
		"unbounded":     {allocatable: true, objects: []*storagev1.CSINode{csiNode("node-a", "node-a", unbounded)}, why: why + "(it is registered without a volume limit)"},
		"limited":       {allocatable: true, objects: []*storagev1.CSINode{csiNode("node-a", "node-a", limited)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := prepare(t, config.Prerequisites{CSINodes: csinodes.Settings{{Driver: disk, Allocatable: test.allocatable}}}, nil, nil)
				for _, o := range test.objects {
					f.must(f.kubernetes.Tracker().Add(o))
				}
				f.waits("node-a", why+"(not read yet)")
				f.start().waits("node-a", test.why)
			})
		})
	}
}

func TestCSINodeWakesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{CSINodes: csinodes.Settings{{Driver: "disk.example.com"}}}, nil, nil).start()
		f.whys("node-a")
		f.whys("node-b")
		client := f.kubernetes.StorageV1().CSINodes()
		f.enqueuesOnly("a CSINode", func() {
			_, err := client.Create(f.ctx, csiNode("node-a", "node-a"), metav1.CreateOptions{})
			f.must(err)
		}, "node-a")
		f.enqueuesOnly("its annotation", func() {
			annotated := csiNode("node-a", "node-a")
			annotated.Annotations = map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "x"}
			_, err := client.Update(f.ctx, annotated, metav1.UpdateOptions{})
			f.must(err)
		})
		f.enqueuesOnly("a registration", func() {
			_, err := client.Update(f.ctx, csiNode("node-a", "node-a", storagev1.CSINodeDriver{Name: "disk.example.com"}), metav1.UpdateOptions{})
			f.must(err)
		}, "node-a")
		f.waits("node-a", "")
	})
}
