package prerequisite

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// csiNodeWatch watches CSINodes, of which each node has one of its own name.
type csiNodeWatch struct {
	*feed
	client kubernetes.Interface
}

func (w *csiNodeWatch) run(ctx context.Context) {
	w.feed.run(ctx, storageinformers.NewCSINodeInformer(w.client, 0, cache.Indexers{}), "list and watch csinodes.storage.k8s.io")
}

// csiNodeRule is one entry of prerequisites.csiNodes.
type csiNodeRule struct {
	*csiNodeWatch
	config.CSINodePrerequisite
}

func (w *Watches) csiNodeRule(c config.CSINodePrerequisite) rule {
	watch := once(w, "csiNodes", func() *csiNodeWatch {
		f := newFeed(w.wakes, cache.Indexers{byNode: func(o any) ([]string, error) {
			if c, ok := o.(*storagev1.CSINode); ok {
				return []string{c.Name}, nil
			}
			return nil, nil
		}}, slimCSINode)
		f.same = sameCSINode
		return &csiNodeWatch{feed: f, client: w.clients.Kubernetes}
	})
	return csiNodeRule{watch, c}
}

func (r csiNodeRule) describe() (kind, name string) { return "csiNodes", r.Driver }

func (r csiNodeRule) topics(nodeName string) []topic {
	return []topic{r.topic(state, ""), r.topic(byNode, nodeName)}
}

func (r csiNodeRule) unmet(n *corev1.Node) string {
	if why := r.missing(n); why != "" {
		return fmt.Sprintf("CSI driver %s (%s)", r.Driver, why)
	}
	return ""
}

func (r csiNodeRule) missing(n *corev1.Node) string {
	all := r.objects()
	if all == nil {
		return r.why()
	}
	found, ok, err := all.GetByKey(n.Name)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "the node has no CSINode"
	}
	c := found.(*storagev1.CSINode)
	// The kubelet makes it with the node as owner (CreateCSINode in k8s.io/kubernetes pkg/volume/csi/nodeinfomanager).
	if !slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == n.UID }) {
		return "the CSINode is that of an earlier node of this name"
	}
	i := slices.IndexFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == r.Driver })
	switch {
	case i < 0:
		return "the kubelet has not registered it"
	case r.Allocatable && (c.Spec.Drivers[i].Allocatable == nil || c.Spec.Drivers[i].Allocatable.Count == nil):
		return "it is registered without a volume limit"
	}
	return ""
}

func slimCSINode(o any) (any, error) {
	if c, ok := o.(*storagev1.CSINode); ok {
		c.ManagedFields, c.Labels, c.Annotations = nil, nil, nil
		for i, d := range c.Spec.Drivers {
			c.Spec.Drivers[i] = storagev1.CSINodeDriver{Name: d.Name, Allocatable: d.Allocatable}
		}
	}
	return o, nil
}

func sameCSINode(old, now any) bool {
	a, okA := old.(*storagev1.CSINode)
	b, okB := now.(*storagev1.CSINode)
	return okA && okB && a.UID == b.UID && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
