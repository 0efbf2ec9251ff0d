package prerequisite

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/verdict"
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

func (r csiNodeRule) describe() (kind, name string) { return verdict.KindCSINodes, r.Driver }

func (r csiNodeRule) topics(nodeName string) []topic {
	return []topic{r.topic(state, ""), r.topic(byNode, nodeName)}
}

func (r csiNodeRule) unmet(n *corev1.Node) lack { return lack{why: r.missing(n)} }

func (r csiNodeRule) missing(n *corev1.Node) string {
	all := r.objects()
	if all == nil {
		return verdict.UnreadCSINode(r.CSINodePrerequisite, r.why())
	}
	own, _, err := all.GetByKey(n.Name)
	if err != nil {
		return verdict.UnreadCSINode(r.CSINodePrerequisite, err.Error())
	}
	c, _ := own.(*storagev1.CSINode) // nil where there is none
	return verdict.CSINode(r.CSINodePrerequisite, n, c)
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
