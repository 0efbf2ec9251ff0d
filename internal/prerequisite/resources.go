package prerequisite

import (
	"context"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// resourceWatch watches the objects of one kind and namespace.
type resourceWatch struct {
	*feed
	clients   Clients
	kind      schema.GroupVersionKind
	namespace string
}

func resourceKey(r config.ResourcePrerequisite) string {
	return r.APIVersion + "/" + r.Kind + "/" + r.Namespace
}

func newResourceWatch(r config.ResourcePrerequisite, c Clients, w *wakes) *resourceWatch {
	f := newFeed(w, cache.Indexers{}, slimResource)
	f.same = sameResource
	return &resourceWatch{feed: f, clients: c, kind: schema.FromAPIVersionAndKind(r.APIVersion, r.Kind), namespace: r.Namespace}
}

// indexBy adds an index on the values of a label, which bears the label's key. It must be called before run.
func (w *resourceWatch) indexBy(label string) {
	w.indexers[label] = func(o any) ([]string, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			if v, ok := u.GetLabels()[label]; ok {
				return []string{v}, nil
			}
		}
		return nil, nil
	}
}

func (w *resourceWatch) run(ctx context.Context) {
	resource, ok := w.discover(ctx, w.clients.Mapper, w.kind)
	if !ok {
		return
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(w.clients.Dynamic, resource, w.namespace, 0, cache.Indexers{}, nil).Informer()
	w.feed.run(ctx, informer, "list and watch "+resource.GroupResource().String())
}

// slimResource keeps what verdicts read.
func slimResource(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // of another form: counts as absent
	var conditions []any
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			conditions = append(conditions, map[string]any{"type": m["type"], "status": m["status"]})
		}
	}
	slim := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
	slim.SetGroupVersionKind(u.GroupVersionKind())
	slim.SetNamespace(u.GetNamespace())
	slim.SetName(u.GetName())
	slim.SetUID(u.GetUID())
	slim.SetResourceVersion(u.GetResourceVersion())
	slim.SetLabels(u.GetLabels())
	return slim, nil
}

// sameResource spares the waiting nodes an agent's heartbeat, which changes neither a label nor a condition's status.
func sameResource(old, now any) bool {
	a, okA := old.(*unstructured.Unstructured)
	b, okB := now.(*unstructured.Unstructured)
	return okA && okB && maps.Equal(a.GetLabels(), b.GetLabels()) && reflect.DeepEqual(a.Object["status"], b.Object["status"])
}
