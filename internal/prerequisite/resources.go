package prerequisite

import (
	"context"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	w.runKind(ctx, w.clients, w.kind, w.namespace)
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
	slim := identified(u, map[string]any{"conditions": conditions})
	slim.SetLabels(u.GetLabels())
	return slim, nil
}

// identified is an object of which only its identity is left, with another status.
func identified(u *unstructured.Unstructured, status map[string]any) *unstructured.Unstructured {
	slim := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	slim.SetGroupVersionKind(u.GroupVersionKind())
	slim.SetNamespace(u.GetNamespace())
	slim.SetName(u.GetName())
	slim.SetUID(u.GetUID())
	slim.SetResourceVersion(u.GetResourceVersion())
	return slim
}

// sameResource spares the waiting nodes an agent's heartbeat, which changes neither a label nor a condition's status.
func sameResource(old, now any) bool {
	a, okA := old.(*unstructured.Unstructured)
	b, okB := now.(*unstructured.Unstructured)
	return okA && okB && maps.Equal(a.GetLabels(), b.GetLabels()) && reflect.DeepEqual(a.Object["status"], b.Object["status"])
}
