package watch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
)

var (
	storageKind     = schema.GroupVersionKind{Group: "warm.example.com", Version: "v1", Kind: "Storage"}
	storageResource = schema.GroupVersionResource{Group: "warm.example.com", Version: "v1", Resource: "storages"}
)

// storages is the prerequisite that all Storages of a selector are attached.
func storages(selector string) resources.Entry {
	return resources.Entry{APIVersion: "warm.example.com/v1", Kind: "Storage", Selector: selector, Condition: "Attached", Status: metav1.ConditionTrue}
}

// agents is the prerequisite of a pod app=agent in namespace x.
func agents() pods.Entry {
	return pods.Entry{Namespace: "x", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}
}

func storage(name, nodeName, status string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Attached", "status": status}}}}}
	u.SetGroupVersionKind(storageKind)
	u.SetName(name)
	u.SetLabels(map[string]string{"node": nodeName})
	return u
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

// mapper knows the kinds once they are served.
func mapper(served bool) *meta.DefaultRESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	if served {
		m.Add(storageKind, meta.RESTScopeRoot)
		m.Add(resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"), meta.RESTScopeRoot)
	}
	return m
}

func dynamicClient(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{storageResource: "StorageList"}, objects...)
}

// fixture runs the watches of one set of prerequisites; the typed ones from sources. It is made inside a bubble of
// synctest.
type fixture struct {
	*testing.T
	*Watches
	config.Prerequisites
	ctx             context.Context
	dynamic         *dynamicfake.FakeDynamicClient
	kubernetes      *kubernetesfake.Clientset
	pods, revisions *cachetest.FakeControllerSource
}

func prepare(t *testing.T, p config.Prerequisites, m meta.RESTMapper, client *dynamicfake.FakeDynamicClient, profiles ...config.Prerequisites) *fixture {
	t.Helper()
	cfg := &config.Config{NodeManagement: config.NodeManagement{Prerequisites: p, Taints: []marks.Taint{{Key: gating.Key, Effect: gating.Effect}}}}
	for i := range profiles {
		cfg.Profiles = append(cfg.Profiles, config.Profile{Prerequisites: &profiles[i]})
	}
	typed := kubernetesfake.NewClientset()
	w := New(cfg, Clients{Kubernetes: typed, Dynamic: client, Mapper: m})
	ctx, cancel := context.WithCancel(t.Context())
	f := &fixture{T: t, Watches: w, Prerequisites: p, ctx: ctx, dynamic: client, kubernetes: typed, pods: cachetest.NewFakeControllerSource(), revisions: cachetest.NewFakeControllerSource()}
	t.Cleanup(func() {
		cancel()
		f.pods.Shutdown()
		f.revisions.Shutdown()
		synctest.Wait()
	})
	return f
}

// listed does not offer the streamed lists that the source behind it does not know.
type listed struct {
	*cachetest.FakeControllerSource
}

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// start runs the watches until they have read what is there.
func (f *fixture) start() *fixture {
	var wg sync.WaitGroup
	f.Cleanup(wg.Wait)
	wg.Go(func() { f.waiting.deliver(f.ctx) })
	for _, i := range f.informers {
		wg.Go(func() {
			switch {
			case i.Kind.Kind == "Pod" && i.Labels != appsv1.DefaultDaemonSetUniqueLabelKey:
				i.run(f.ctx, cache.NewSharedIndexInformer(listed{f.pods}, &corev1.Pod{}, 0, cache.Indexers{}), "list and watch pods")
			case i.Kind.Kind == "ControllerRevision":
				i.run(f.ctx, cache.NewSharedIndexInformer(listed{f.revisions}, revision("", "", 0), 0, cache.Indexers{}), "list and watch controllerrevisions.apps")
			default:
				i.runSource(f.ctx, f.clients)
			}
		})
	}
	synctest.Wait()
	return f
}

// whys are the texts of what a node waits for.
func (f *fixture) whys(nodeName string) string {
	var whys []string
	for _, w := range f.Unmet(node(nodeName), f.Prerequisites) {
		whys = append(whys, w.Message)
	}
	return strings.Join(whys, "; ")
}

func (f *fixture) waits(nodeName, why string) {
	f.Helper()
	if got := f.whys(nodeName); got != why {
		f.Errorf("%s waits for %q, not %q", nodeName, got, why)
	}
}

// woken reads the nodes that were woken so far.
func (f *fixture) woken() []string {
	var names []string
	for {
		synctest.Wait()
		select {
		case e := <-f.Events():
			names = append(names, e.Object.GetName())
		default:
			return names
		}
	}
}

// enqueuesOnly checks which nodes an action enqueues, in order.
func (f *fixture) enqueuesOnly(what string, action func(), names ...string) {
	f.Helper()
	f.woken()
	action()
	if got := f.woken(); fmt.Sprint(got) != fmt.Sprint(names) {
		f.Errorf("%s enqueues %v, not %v", what, got, names)
	}
}

func (f *fixture) put(u *unstructured.Unstructured) {
	f.Helper()
	client := f.dynamic.Resource(storageResource)
	if _, err := client.Get(f.ctx, u.GetName(), metav1.GetOptions{}); err != nil {
		_, err = client.Create(f.ctx, u, metav1.CreateOptions{})
		f.must(err)
		return
	}
	_, err := client.Update(f.ctx, u, metav1.UpdateOptions{})
	f.must(err)
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}
