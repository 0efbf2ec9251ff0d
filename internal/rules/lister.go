package rules

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// Lister is which rules there are, as far as this replica knows, for the webhook that every replica serves. It is a
// manager.Runnable. While nothing is known, because the resource is not defined or the list is not there yet, there
// are none: nodes that are created meanwhile get their taints from the leader.
type Lister struct {
	gating   []marks.Taint
	informer cache.SharedIndexInformer
}

// NewLister prepares it. gating are the taints that verification owns.
func NewLister(c dynamic.Interface, gating []marks.Taint) (*Lister, error) {
	k := &Lister{gating: gating, informer: newInformer(c)}
	err := k.informer.SetTransform(typed)
	if err == nil {
		err = k.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if !apierrors.IsNotFound(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				log.FromContext(ctx).Error(err, "the webhook does not learn of NodeReadinessRules")
			}
		})
	}
	return k, err
}

func newInformer(c dynamic.Interface) cache.SharedIndexInformer {
	resource := v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)
	return dynamicinformer.NewFilteredDynamicInformer(c, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
}

// Start watches until ctx is done.
func (k *Lister) Start(ctx context.Context) error {
	k.informer.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection says that every replica watches.
func (*Lister) NeedLeaderElection() bool { return false }

// Rules are those that are known, sorted by rule.Sort.
func (k *Lister) Rules() []rule.Rule {
	var rules []rule.Rule
	for _, o := range k.informer.GetStore().List() {
		if r, ok := o.(*v1alpha1.NodeReadinessRule); ok {
			rules = append(rules, rule.Compile(r, k.gating))
		}
	}
	rule.Sort(rules)
	return rules
}
