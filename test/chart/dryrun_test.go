package chart

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// admitter has an API server admit objects in a dry run, as kubectl apply does with --server-side, --dry-run=server and
// --validate=strict. kubectl would read the schema of all that is served, again for each of the values.
type admitter struct {
	dynamics dynamic.Interface
	mapper   meta.RESTMapper
}

// newAdmitter returns an admitter that hands the API server's warnings to a handler.
func newAdmitter(c *cluster.Cluster, warnings rest.WarningHandler) admitter {
	config := c.Config()
	config.WarningHandler = warnings
	client := kubernetes.NewForConfigOrDie(config)
	return admitter{
		dynamics: dynamic.NewForConfigOrDie(config),
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}
}

// namespaced reports whether objects of the kind are in namespaces.
func (a admitter) namespaced(object *unstructured.Unstructured) (bool, error) {
	mapping, err := a.mapping(object)
	return err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace, err
}

func (a admitter) mapping(object *unstructured.Unstructured) (*meta.RESTMapping, error) {
	gvk := object.GroupVersionKind()
	return a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// admit is for an object with the namespace that it needs.
func (a admitter) admit(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := a.mapping(object)
	if err != nil {
		return err
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	resource := a.dynamics.Resource(mapping.Resource).Namespace(object.GetNamespace())
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, Force: ptr.To(true),
	})
	return err
}

// testEveryRendering has the API server admit, in a dry run, what the tests before this one rendered. Only its limits for a pod's
// place are not met: the namespaces here enforce no Pod Security, which some of the values ask to break.
func testEveryRendering(t *testing.T, c *cluster.Cluster) {
	client, server := kubernetes.NewForConfigOrDie(c.Config()), newAdmitter(c, rest.NoWarnings{})
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
		if object.GroupVersionKind().Group == "cert-manager.io" {
			continue // whose definitions no test installs
		}
		namespaced, err := server.namespaced(object)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if namespaced {
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
		}
		if err := server.admit(t.Context(), object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d objects", len(all))
}
