package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// renderings are the objects that Helm rendered in this package's tests, each content once.
type renderings struct {
	sync.Mutex
	objects map[string]rendering // by content
}

// rendering is an object and the first test that had it rendered.
type rendering struct {
	test   string
	object *unstructured.Unstructured
}

var rendered = renderings{objects: map[string]rendering{}}

func (r *renderings) add(test string, found objects) {
	r.Lock()
	defer r.Unlock()
	for _, object := range found {
		content, err := object.MarshalJSON()
		if err != nil {
			continue // no object; the test that rendered it says so
		}
		if _, known := r.objects[string(content)]; !known {
			r.objects[string(content)] = rendering{test: test, object: object.DeepCopy()}
		}
	}
}

// testEveryRendering has the API server admit, in a dry run, what the tests before this one rendered. Only its limits for a pod's
// place are not met: the namespaces here enforce no Pod Security, which some of the values ask to break.
func testEveryRendering(t *testing.T, c *cluster.Cluster) {
	config := rest.CopyConfig(c.Config())
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	client := kubernetes.NewForConfigOrDie(config)
	dynamics := dynamic.NewForConfigOrDie(config)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))

	rendered.Lock()
	all := maps.Clone(rendered.objects)
	rendered.Unlock()
	if len(all) < 20 {
		t.Fatalf("%d objects; the chart alone has more", len(all))
	}
	// In namespaces of their own, so that nothing depends on what else there is.
	inside := func(namespace string) string { return "dry-run-" + strings.TrimPrefix(namespace, "dry-run-") }
	made := map[string]bool{}
	need := func(namespace, account string) {
		if !made[namespace] {
			_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			made[namespace] = true
		}
		if account == "" || made[namespace+"/"+account] {
			return
		}
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		made[namespace+"/"+account] = true
	}
	for _, content := range slices.Sorted(maps.Keys(all)) {
		r := all[content]
		object := r.object
		name := fmt.Sprintf("%s %s/%s of %s", object.GetKind(), object.GetNamespace(), object.GetName(), r.test)
		gvk := object.GroupVersionKind()
		if gvk.Group == "cert-manager.io" {
			continue // whose definitions no test installs
		}
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var resource dynamic.ResourceInterface = dynamics.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			namespace := object.GetNamespace()
			if namespace == "" {
				namespace = "default" // what kubectl and Helm would add
			}
			account := ""
			if object.GetKind() == "Pod" {
				account, _, _ = unstructured.NestedString(object.Object, "spec", "serviceAccountName")
			}
			need(inside(namespace), account)
			object.SetNamespace(inside(namespace))
			resource = dynamics.Resource(mapping.Resource).Namespace(inside(namespace))
		}
		body, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resource.Patch(t.Context(), object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, Force: ptr.To(true),
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d objects", len(all))
}
