package watch

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
)

// What a node is evaluated from does not grow with the number of nodes, and an event about one enqueues that one alone,
// however many wait. Measured in bytes: to look at all objects is one allocation, of their number.
func TestCostDoesNotGrowWithNodes(t *testing.T) {
	const sets = 3
	auto := allDaemonSets()
	auto.CSINodes = csinodes.Settings{{Driver: "disk.example.com"}}
	auto.ResourceSlices = slicesOfGPUs.ResourceSlices
	auto.Pods = pods.Settings{agents()}
	cost := func(nodes int) (bytes uint64) {
		synctest.Test(t, func(t *testing.T) {
			f := prepare(t, auto, mapper(true), nil)
			for d := range sets {
				f.must(f.kubernetes.Tracker().Add(daemonSet(fmt.Sprint("d", d))))
			}
			for i := range nodes {
				name := fmt.Sprint("node-", i)
				for d := range sets {
					f.must(f.kubernetes.Tracker().Add(podOf(fmt.Sprint("d", d), name)))
				}
				f.must(f.kubernetes.Tracker().Add(csiNode(name, "", storagev1.CSINodeDriver{Name: "disk.example.com"})))
				f.must(f.kubernetes.Tracker().Add(slice(1, name, "p", 1, 2)))
				f.pods.Add(pod("agent-"+name, name))
			}
			f.start()
			for i := range nodes {
				if waits := f.Unmet(node(fmt.Sprint("node-", i)), auto); len(waits) != 4 {
					t.Fatalf("node-%d waits for %v", i, waits)
				}
			}
			f.enqueuesOnly("a pod of node-1", func() {
				_, err := f.kubernetes.CoreV1().Pods("x").Update(f.ctx, podOf("d0", "node-1", ready), metav1.UpdateOptions{})
				f.must(err)
			}, "node-1")
			f.enqueuesOnly("the CSINode of node-1", func() {
				_, err := f.kubernetes.StorageV1().CSINodes().Update(f.ctx, csiNode("node-1", "node-1"), metav1.UpdateOptions{})
				f.must(err)
			}, "node-1")
			bytes = allocated(func() { f.Unmet(node("node-1"), auto) })
		})
		return bytes
	}
	few, many := cost(5), cost(5000)
	t.Logf("%d bytes with 5 nodes, %d with 5000", few, many)
	if few < 100 || many > 2*few {
		t.Errorf("an evaluation takes %d bytes with 5000 nodes, %d with 5", many, few)
	}
}

// allocated is how many bytes a call allocates.
func allocated(call func()) uint64 {
	const runs = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		call()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / runs
}
