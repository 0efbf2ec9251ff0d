package prerequisite

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// kindRetry is how often a kind that the API server does not serve is asked for again; its definition may be installed
// after us. Everything else is watched.
const kindRetry = 5 * time.Second

// resourceWatch watches the objects of one kind and namespace.
type resourceWatch struct {
	clients   Clients
	owner     *Watches
	kind      schema.GroupVersionKind
	namespace string
	informer  atomic.Pointer[cache.SharedIndexInformer] // nil until the kind is served
	trouble   trouble
}

func resourceKey(r config.ResourcePrerequisite) string {
	return r.APIVersion + "/" + r.Kind + "/" + r.Namespace
}

func resourceName(r config.ResourcePrerequisite) string {
	name := r.Kind
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	if r.Selector != "" {
		name += " " + r.Selector
	}
	name += " " + r.Condition
	if r.Status != metav1.ConditionTrue {
		name += "=" + string(r.Status)
	}
	return name
}

func newResourceWatch(r config.ResourcePrerequisite, c Clients, owner *Watches) *resourceWatch {
	return &resourceWatch{clients: c, owner: owner, kind: schema.FromAPIVersionAndKind(r.APIVersion, r.Kind), namespace: r.Namespace}
}

func (w *resourceWatch) run(ctx context.Context) {
	var informer cache.SharedIndexInformer
	request := ""
	err := wait.PollUntilContextCancel(ctx, kindRetry, true, func(context.Context) (bool, error) {
		mapping, err := w.clients.Mapper.RESTMapping(w.kind.GroupKind(), w.kind.Version)
		if err != nil {
			w.trouble.set(err, "discover "+w.kind.GroupVersion().String())
			return false, nil
		}
		w.trouble.set(nil, "")
		request = "list and watch " + mapping.Resource.GroupResource().String()
		informer = dynamicinformer.NewFilteredDynamicInformer(w.clients.Dynamic, mapping.Resource, w.namespace, 0, cache.Indexers{}, nil).Informer()
		return true, nil
	})
	if err != nil {
		return // ctx is done
	}
	wake := func(any) { w.owner.wakeAll() }
	// These fail only on an informer that already runs.
	_ = informer.SetTransform(slimResource)
	_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { w.trouble.set(err, request) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake})
	w.informer.Store(&informer)
	go w.owner.wakeOnSync(ctx, informer)
	informer.RunWithContext(ctx)
}

// unmet says what is missing for the node; empty when the condition holds on every match and there is one.
func (w *resourceWatch) unmet(nodeName string, r config.ResourcePrerequisite) string {
	text := strings.ReplaceAll(r.Selector, config.NodePlaceholder, nodeName)
	what := fmt.Sprintf("%s %s to be %s", r.Kind, r.Condition, r.Status)
	if text != "" {
		what = fmt.Sprintf("%s (%s) %s to be %s", r.Kind, text, r.Condition, r.Status)
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return fmt.Sprintf("%s (selector: %v)", what, err)
	}
	informer := w.informer.Load()
	if informer == nil || !(*informer).HasSynced() {
		return fmt.Sprintf("%s (%s)", what, &w.trouble)
	}
	found := false
	for _, o := range (*informer).GetStore().List() {
		u := o.(*unstructured.Unstructured)
		if !selector.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		found = true
		if got := status(u, r.Condition); got != r.Status {
			return fmt.Sprintf("%s (%s says %s)", what, u.GetName(), orUnset(got))
		}
	}
	if !found {
		return what + " (no such object)"
	}
	return ""
}

func orUnset(s metav1.ConditionStatus) string {
	if s == "" {
		return "nothing"
	}
	return string(s)
}

func status(u *unstructured.Unstructured, condition string) metav1.ConditionStatus {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // of another form: counts as absent
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == condition {
			s, _ := m["status"].(string)
			return metav1.ConditionStatus(s)
		}
	}
	return ""
}

// slimResource keeps what decisions read.
func slimResource(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	slim := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
	slim.SetGroupVersionKind(u.GroupVersionKind())
	slim.SetNamespace(u.GetNamespace())
	slim.SetName(u.GetName())
	slim.SetUID(u.GetUID())
	slim.SetResourceVersion(u.GetResourceVersion())
	slim.SetLabels(u.GetLabels())
	return slim, nil
}
