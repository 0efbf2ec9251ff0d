package watch

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/conditions"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
)

// The condition's message is rewritten whenever it differs, so it must not follow the order of a map.
func TestUnmetIsDeterministic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := config.Prerequisites{NodeReady: true,
			Conditions: conditions.Settings{{Type: "Storage", Status: corev1.ConditionTrue}, {Type: "Full", Status: corev1.ConditionFalse}},
			Pods:       pods.Settings{agents()},
			Resources:  resources.Settings{storages("node={{node}}"), storages("")}}
		var objects []runtime.Object
		for i := range 20 {
			objects = append(objects, storage(fmt.Sprintf("s%02d", 19-i), "node-a", "False"), storage(fmt.Sprintf("r%02d", i), "node-b", "Unknown"))
		}
		f := prepare(t, p, mapper(true), dynamicClient(objects...))
		for i := range 20 {
			f.pods.Add(pod(fmt.Sprintf("agent-%02d", 19-i), "node-a"))
		}
		f.start()
		want := []decide.Unmet{
			{Kind: "nodeReady", Name: "Ready", Message: "the node's condition Ready to be True"},
			{Kind: "conditions", Name: "Storage=True", Message: "the node's condition Storage to be True"},
			{Kind: "conditions", Name: "Full=False", Message: "the node's condition Full to be False"},
			{Kind: "pods", Name: "x/app=agent", Message: "a pod app=agent in namespace x (agent-00 is not Ready)"},
			{Kind: "resources", Name: "Storage node={{node}} Attached", Message: "Storage (node=node-a) Attached to be True (s00 says False)"},
			{Kind: "resources", Name: "Storage Attached", Message: "Storage Attached to be True (r00 says Unknown)"},
		}
		for range 100 {
			for _, i := range f.informers {
				i.results.Clear() // or the second call would only repeat the first one's result
			}
			if got := f.Unmet(node("node-a"), p); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v", got)
			}
		}
	})
}

// What a node is evaluated from are its own objects, and what is the same for all nodes is evaluated once per change.
func TestEvaluationDoesNotScan(t *testing.T) {
	for _, selector := range []string{"node={{node}}", "node in ({{node}},shared)", "node=node-1", ""} {
		t.Run(selector, func(t *testing.T) {
			allocations := func(n int) (allocs float64) {
				synctest.Test(t, func(t *testing.T) {
					var objects []runtime.Object
					for i := range n {
						objects = append(objects, storage(fmt.Sprint("s", i), fmt.Sprint("node-", i), "True"))
					}
					f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages(selector)}}, mapper(true), dynamicClient(objects...)).start()
					f.waits("node-1", "")
					allocs = testing.AllocsPerRun(20, func() { f.Unmet(node("node-1"), f.Prerequisites) })
				})
				return allocs
			}
			few, many := allocations(5), allocations(5000)
			if few < 1 || many > 2*few {
				t.Errorf("%.0f allocations with 5000 objects, %.0f with 5", many, few)
			}
		})
	}
}

func TestLongNodeName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages("node={{node}}")}}, mapper(true), dynamicClient()).start()
		name := strings.Repeat("a", 64)
		if got := f.whys(name); !strings.Contains(got, "(selector: ") || !strings.Contains(got, "must be no more than 63") {
			t.Errorf("a name that is no label value is reported as %q", got)
		}
		f.waits(name[1:], "Storage (node="+name[1:]+") Attached to be True (no such object)")
	})
}

// Nobody configured a prerequisite, so nothing is read.
func TestNoPrerequisites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{}, mapper(true), dynamicClient()).start()
		if a := f.dynamic.Actions(); len(a) > 0 || len(f.informers) > 0 {
			t.Errorf("requests %v, watches %v", a, f.informers)
		}
		f.waits("node-a", "")
	})
}

// A change that comes while a node is evaluated enqueues it, as it may have come too late for the evaluation.
func TestWaitsBeforeEvaluating(t *testing.T) {
	p := config.Prerequisites{Resources: resources.Settings{storages("")}}
	w := New(&config.Config{NodeManagement: config.NodeManagement{Prerequisites: p}}, Clients{Dynamic: dynamicClient(), Mapper: mapper(true)})
	ended := make(chan error)
	t.Cleanup(func() { <-ended })
	go func() { ended <- w.Start(t.Context()) }()
	i := w.informers[p.All()[0].Sources[0].Key()]
	eventually(t, "the Storages are read", func() bool {
		_, unknown := i.objects()
		return unknown == ""
	})
	w.Unmet(node("node-a"), p) // so that there is a result, which can be locked
	i.results.Range(func(_, of any) bool {
		of.(*result).mu.Lock()
		return true
	})
	evaluated := make(chan struct{})
	go func() {
		defer close(evaluated)
		w.Unmet(node("node-a"), p)
	}()
	eventually(t, "the node waits", func() bool {
		w.waiting.mu.Lock()
		defer w.waiting.mu.Unlock()
		return len(w.waiting.on["node-a"]) > 0
	})
	i.results.Range(func(_, of any) bool {
		of.(*result).mu.Unlock()
		return true
	})
	<-evaluated
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// What nobody watches for must not pass for met.
func TestPrerequisitesOfNoConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{}, nil, nil)
		if waits := f.Unmet(node("node-a"), config.Prerequisites{Pods: pods.Settings{agents()}}); len(waits) != 1 {
			t.Errorf("node-a waits for %v", waits)
		}
	})
}

// What the watches ask the API server for is what the roles allow for them, and nothing else.
func TestRequestsAreTheRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := daemonsets.Entry{Namespace: "y", Name: "d", Provides: &daemonsets.Provided{
			CSINodes: csinodes.Settings{{Driver: "disk.example.com"}}}}
		current := agents()
		current.CurrentRevision = true
		p := config.Prerequisites{Pods: pods.Settings{current}, ResourceSlices: slicesOfGPUs.ResourceSlices,
			DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{named}},
			Resources:  resources.Settings{storages("")}}
		f := prepare(t, p, mapper(true), dynamicClient(), allDaemonSets())
		var wg sync.WaitGroup
		t.Cleanup(wg.Wait)
		for _, i := range f.informers {
			wg.Go(func() { i.runSource(f.ctx, f.clients) })
		}
		synctest.Wait()
		got, want := map[string]bool{}, map[string]bool{}
		for _, a := range slices.Concat(f.kubernetes.Actions(), f.dynamic.Actions()) {
			r := rights.Right{Namespace: a.GetNamespace(), GroupResource: a.GetResource().GroupResource()}
			got[a.GetVerb()+" "+r.String()] = true
		}
		var cfg config.Config
		cfg.SetDefaults()
		without := rights.DaemonSet(&cfg)
		cfg.NodeManagement.Prerequisites, cfg.Profiles = p, []config.Profile{{Prerequisites: new(allDaemonSets())}}
		for _, r := range rights.DaemonSet(&cfg)[len(without):] {
			for _, verb := range r.Verbs {
				want[verb+" "+r.String()] = true
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("the watches ask for %v, allowed is %v", got, want)
		}
	})
}
