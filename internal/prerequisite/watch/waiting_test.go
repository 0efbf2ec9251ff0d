package watch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
)

// An event enqueues the node that the object is of, before and after, and only while it waits.
func TestResourceWakesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages("node={{node}}")}}, mapper(true), dynamicClient(storage("old", "node-a", "False"))).start()
		for _, name := range []string{"node-a", "node-b", "node-c"} {
			if f.whys(name) == "" {
				t.Fatal(name, "does not wait")
			}
		}
		f.enqueuesOnly("an object of node-a", func() { f.put(storage("s", "node-a", "False")) }, "node-a")
		f.enqueuesOnly("its heartbeat", func() {
			beat := storage("s", "node-a", "False")
			beat.SetAnnotations(map[string]string{"seen": "now"})
			f.put(beat)
		})
		f.enqueuesOnly("its status", func() { f.put(storage("s", "node-a", "Unknown")) }, "node-a")
		f.enqueuesOnly("an object of nobody", func() { f.put(storage("n", "node-x", "True")) })
		f.woken()
		f.put(storage("s", "node-b", "True"))
		got := f.woken()
		slices.Sort(got)
		if fmt.Sprint(got) != "[node-a node-b]" {
			t.Errorf("an object that moves from node-a to node-b enqueues %v", got)
		}
		f.waits("node-b", "")
		f.enqueuesOnly("what node-b no longer waits for", func() { f.put(storage("s", "node-b", "False")) })
		f.waits("node-b", "Storage (node=node-b) Attached to be True (s says False)")
		f.enqueuesOnly("a deletion", func() { f.must(f.dynamic.Resource(storageResource).Delete(f.ctx, "s", metav1.DeleteOptions{})) }, "node-b")
		f.Forget("node-a")
		f.enqueuesOnly("a forgotten node's object", func() { f.put(storage("old", "node-a", "True")) })
	})
}

func TestSharedResourceWakesWhoWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := config.Prerequisites{NodeReady: true}
		f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages("node=all")}}, mapper(true), dynamicClient(), other).start()
		f.whys("node-a")
		// Of another profile, which has no such prerequisite.
		if f.Unmet(node("node-b"), other) == nil {
			t.Fatal("node-b does not wait")
		}
		f.enqueuesOnly("a shared object", func() { f.put(storage("s", "all", "True")) }, "node-a")
	})
}

func TestPodsWakeTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := agents()
		current.CurrentRevision = true
		plain := config.Prerequisites{Pods: pods.Settings{agents()}}
		f := prepare(t, config.Prerequisites{Pods: pods.Settings{current}}, nil, nil, plain).start()
		f.whys("node-a")
		if f.Unmet(node("node-b"), plain) == nil {
			t.Fatal("node-b does not wait")
		}
		f.enqueuesOnly("a pod on node-a", func() { f.pods.Add(pod("a", "node-a", ready)) }, "node-a")
		f.whys("node-a") // now the DaemonSet is known whose revisions count
		f.enqueuesOnly("a pod on node-b", func() { f.pods.Add(pod("b", "node-b")) }, "node-b")
		f.enqueuesOnly("a ControllerRevision", func() { f.revisions.Add(revision("ds", "r1", 1)) }, "node-a")
		f.enqueuesOnly("a pod's end", func() { f.pods.Delete(pod("b", "node-b")) }, "node-b")
	})
}

// The first list may be empty, and then there is no object to wake the node.
func TestFirstListWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := config.Prerequisites{Pods: pods.Settings{agents()}, Resources: resources.Settings{storages("node={{node}}")}}
		f := prepare(t, p, mapper(true), dynamicClient())
		f.waits("node-a", "a pod app=agent in namespace x (not read yet); Storage (node=node-a) Attached to be True (not read yet)")
		f.start()
		if got := f.woken(); len(got) == 0 || got[0] != "node-a" {
			t.Errorf("woken: %v", got)
		}
	})
}

// A controller that does not read holds up no informer, and finds each node once.
func TestNobodyReadsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages("")}}, mapper(true), dynamicClient()).start()
		const nodes = 2000
		for i := range nodes {
			f.whys(fmt.Sprint("node-", i))
		}
		for i := range 3 {
			f.put(storage(fmt.Sprint("s", i), "", "False"))
		}
		synctest.Wait()
		f.waits("node-0", "Storage Attached to be True (s0 says False)")
		got := f.woken()
		slices.Sort(got)
		// One was already on its way when the second event came.
		if distinct := len(slices.Compact(slices.Clone(got))); distinct != nodes || len(got) > nodes+1 {
			t.Errorf("%d enqueues of %d nodes, of %d", len(got), distinct, nodes)
		}
	})
}
