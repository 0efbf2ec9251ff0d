package prerequisite

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// sliceWatch watches the ResourceSlices of one driver.
type sliceWatch struct {
	*feed
	clients Clients
	driver  string
}

func (w *sliceWatch) run(ctx context.Context) {
	if _, ok := w.discover(ctx, w.clients.Mapper, resourcev1.SchemeGroupVersion.WithKind("ResourceSlice")); !ok {
		return
	}
	w.feed.run(ctx, resourceinformers.NewFilteredResourceSliceInformer(w.clients.Kubernetes, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, w.driver).String()
	}), "list and watch resourceslices.resource.k8s.io")
}

// sliceRule is one entry of prerequisites.resourceSlices.
type sliceRule struct{ *sliceWatch }

func (w *Watches) sliceRule(s config.ResourceSlicePrerequisite) rule {
	return sliceRule{once(w, "resourceSlices "+s.Driver, func() *sliceWatch {
		f := newFeed(w.wakes, cache.Indexers{byNode: func(o any) ([]string, error) {
			if s, ok := o.(*resourcev1.ResourceSlice); ok && s.Spec.NodeName != nil {
				return []string{*s.Spec.NodeName}, nil
			}
			return nil, nil
		}}, slimSlice)
		f.same = sameSlice
		f.needs = "resource.k8s.io/v1 needs Kubernetes 1.34" // KEP-4381: stable since then
		return &sliceWatch{feed: f, clients: w.clients, driver: s.Driver}
	})}
}

func (r sliceRule) describe() (kind, name string) { return "resourceSlices", r.driver }

func (r sliceRule) topics(nodeName string) []topic {
	return []topic{r.topic(state, ""), r.topic(byNode, nodeName)}
}

func (r sliceRule) unmet(n *corev1.Node) lack {
	if why := r.missing(n); why != "" {
		return lack{why: fmt.Sprintf("ResourceSlices of driver %s (%s)", r.driver, why)}
	}
	return lack{}
}

func (r sliceRule) missing(n *corev1.Node) string {
	all := r.objects()
	if all == nil {
		return r.why()
	}
	found, err := all.ByIndex(byNode, n.Name)
	if err != nil {
		return err.Error()
	}
	return incomplete(found, n)
}

// incomplete says which pool of the node is not complete, the first by name, or that there is none. Of a pool only the
// highest generation counts, and it is complete with resourceSliceCount slices (ResourcePool in k8s.io/api/resource/v1).
func incomplete(found []any, n *corev1.Node) string {
	type pool struct{ generation, have, want int64 }
	pools := map[string]pool{}
	for _, o := range found {
		s := o.(*resourcev1.ResourceSlice)
		if s.DeletionTimestamp != nil || slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID != n.UID }) {
			continue // of an earlier node of this name, which a driver's helper makes the owner
		}
		p := pools[s.Spec.Pool.Name]
		if p.have == 0 || s.Spec.Pool.Generation > p.generation {
			p = pool{generation: s.Spec.Pool.Generation, want: s.Spec.Pool.ResourceSliceCount}
		}
		if s.Spec.Pool.Generation == p.generation {
			p.have++
		}
		pools[s.Spec.Pool.Name] = p
	}
	first := ""
	for name, p := range pools {
		if p.have != p.want && (first == "" || name < first) {
			first = name
		}
	}
	switch p := pools[first]; {
	case len(pools) == 0:
		return "there are none for the node"
	case first != "":
		return fmt.Sprintf("%d of %d of pool %s in generation %d", p.have, p.want, first, p.generation)
	}
	return ""
}

func slimSlice(o any) (any, error) {
	if s, ok := o.(*resourcev1.ResourceSlice); ok {
		s.ManagedFields, s.Labels, s.Annotations = nil, nil, nil
		s.Spec = resourcev1.ResourceSliceSpec{Driver: s.Spec.Driver, Pool: s.Spec.Pool, NodeName: s.Spec.NodeName}
	}
	return o, nil
}

func sameSlice(old, now any) bool {
	a, okA := old.(*resourcev1.ResourceSlice)
	b, okB := now.(*resourcev1.ResourceSlice)
	return okA && okB && a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
