package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resourceslices"
)

var slicesOfGPUs = config.Prerequisites{ResourceSlices: resourceslices.Settings{{Driver: "gpu.example.com"}}}

// slice is one of a pool's slices, numbered so that its name is unique. It has one device.
func slice(number int, nodeName, pool string, generation, count int64) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(nodeName, "-", pool, "-", generation, "-", number)}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &nodeName, Pool: resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count}, Devices: make([]resourcev1.Device, 1)}}
}

func sliceOf(owner types.UID, s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: *s.Spec.NodeName, UID: owner}}
	return s
}

// with is a slice with so many devices.
func with(devices int, s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	s.Spec.Devices = make([]resourcev1.Device, devices)
	return s
}

func TestResourceSlices(t *testing.T) {
	const why = "ResourceSlices of driver gpu.example.com "
	everywhere := slice(1, "node-a", "network", 1, 1)
	everywhere.Spec.NodeName = nil
	for name, test := range map[string]struct {
		objects []*resourcev1.ResourceSlice
		why     string
		least   int32 // the default where it is 0
	}{
		"an empty pool": {objects: []*resourcev1.ResourceSlice{with(0, slice(1, "node-a", "p", 1, 1))},
			why: why + "(they have 0 devices, expected at least 1)"},
		"emptied": {objects: []*resourcev1.ResourceSlice{slice(1, "node-a", "p", 1, 1), with(0, slice(1, "node-a", "p", 2, 1))},
			why: why + "(they have 0 devices, expected at least 1)"},
		"too few": {objects: []*resourcev1.ResourceSlice{with(2, slice(1, "node-a", "p", 1, 1)), slice(1, "node-a", "q", 1, 1)},
			why: why + "(they have 3 devices, expected at least 4)", least: 4},
		"enough in all": {objects: []*resourcev1.ResourceSlice{with(2, slice(1, "node-a", "p", 1, 2)), slice(2, "node-a", "p", 1, 2),
			with(0, slice(1, "node-a", "q", 1, 1)), slice(1, "node-a", "r", 1, 1)}, least: 4},
		"enough, and a pool incomplete": {objects: []*resourcev1.ResourceSlice{with(8, slice(1, "node-a", "p", 1, 1)), slice(1, "node-a", "q", 1, 2)},
			why: why + "(1 of 2 slices of pool q in generation 1)", least: 4},
		"none":          {why: why + "(there are none for the node)"},
		"another's":     {objects: []*resourcev1.ResourceSlice{slice(1, "node-b", "p", 1, 1), everywhere}, why: why + "(there are none for the node)"},
		"predecessor's": {objects: []*resourcev1.ResourceSlice{sliceOf("before", slice(1, "node-a", "p", 1, 1))}, why: why + "(there are none for the node)"},
		"complete":      {objects: []*resourcev1.ResourceSlice{sliceOf("node-a", slice(1, "node-a", "p", 1, 2)), slice(2, "node-a", "p", 1, 2)}},
		"one of two":    {objects: []*resourcev1.ResourceSlice{slice(1, "node-a", "p", 1, 2)}, why: why + "(1 of 2 slices of pool p in generation 1)"},
		"a new generation": {objects: []*resourcev1.ResourceSlice{slice(1, "node-a", "p", 1, 2), slice(2, "node-a", "p", 1, 2), slice(1, "node-a", "p", 2, 2)},
			why: why + "(1 of 2 slices of pool p in generation 2)"},
		"an old one left": {objects: []*resourcev1.ResourceSlice{slice(1, "node-a", "p", 2, 1), slice(2, "node-a", "p", 1, 2)}},
		"two pools": {objects: []*resourcev1.ResourceSlice{slice(1, "node-a", "q", 1, 3), slice(1, "node-a", "o", 1, 1), slice(1, "node-a", "p", 1, 2)},
			why: why + "(1 of 2 slices of pool p in generation 1)"},
		"too many": {objects: []*resourcev1.ResourceSlice{slice(1, "node-a", "p", 1, 1), slice(2, "node-a", "p", 1, 1)}, why: why + "(2 of 1 slices of pool p in generation 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wanted := resourceslices.Entry{Driver: "gpu.example.com"}
				if test.least > 0 {
					wanted.MinDevices = &test.least
				}
				f := prepare(t, config.Prerequisites{ResourceSlices: resourceslices.Settings{wanted}}, mapper(true), nil)
				for _, o := range test.objects {
					f.must(f.kubernetes.Tracker().Add(o))
				}
				f.waits("node-a", why+"(not read yet)")
				f.start().waits("node-a", test.why)
			})
		})
	}
}

// Where the API is not served the message says which Kubernetes serves it, and the node is woken once.
func TestResourceSlicesAreNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := &lateMapper{}
		f := prepare(t, slicesOfGPUs, kind, nil)
		f.whys("node-a")
		f.enqueuesOnly("the first refusal", func() { f.start() }, "node-a")
		const what = "ResourceSlices of driver gpu.example.com "
		f.waits("node-a", what+"(cannot be read: the kind is not served; resource.k8s.io/v1 needs Kubernetes 1.34)")
		f.enqueuesOnly("the next ones", func() { time.Sleep(10 * time.Minute) })
		kind.served.Store(true)
		f.enqueuesOnly("the upgrade", func() { time.Sleep(kindRetry + time.Second) }, "node-a")
		f.waits("node-a", what+"(there are none for the node)")
	})
}

func TestResourceSliceWakesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, slicesOfGPUs, mapper(true), nil).start()
		f.whys("node-a")
		f.whys("node-b")
		client := f.kubernetes.ResourceV1().ResourceSlices()
		one := slice(1, "node-a", "p", 1, 2)
		f.enqueuesOnly("a slice", func() {
			_, err := client.Create(f.ctx, one, metav1.CreateOptions{})
			f.must(err)
		}, "node-a")
		f.enqueuesOnly("its device's name", func() {
			changed := one.DeepCopy()
			changed.Spec.Devices = []resourcev1.Device{{Name: "gpu-0"}}
			_, err := client.Update(f.ctx, changed, metav1.UpdateOptions{})
			f.must(err)
		})
		f.enqueuesOnly("a further device", func() {
			changed := one.DeepCopy()
			changed.Spec.Devices = make([]resourcev1.Device, 2)
			_, err := client.Update(f.ctx, changed, metav1.UpdateOptions{})
			f.must(err)
		}, "node-a")
		f.enqueuesOnly("the other slice", func() {
			_, err := client.Create(f.ctx, slice(2, "node-a", "p", 1, 2), metav1.CreateOptions{})
			f.must(err)
		}, "node-a")
		f.waits("node-a", "")
	})
}
