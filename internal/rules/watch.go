package rules

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// definitionRetry is how often it is asked whether the resource is there; its definition may be installed after us.
	definitionRetry = 2 * time.Second
	// settleEvery is how often it is asked whether somebody's Lease has run out.
	settleEvery = time.Second
)

// Watch keeps Rules up to date with the API server: which rules there are, and whose they are to serve. It is a
// manager.Runnable of the leader.
type Watch struct {
	Rules      *Rules
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Cache has the nodes, Live reads them from the API server.
	Cache ctrlcache.Cache
	Live  client.Reader
	// Begin starts the controller of the rules. It is called once the API server has their definition.
	Begin func() error
	// Identity is the installation's; see Role.
	Identity string

	mu sync.Mutex
}

// Start watches until ctx is done.
func (w *Watch) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("rules"))
	if wait.PollUntilContextCancel(ctx, definitionRetry, true, func(ctx context.Context) (bool, error) {
		err := w.Rules.recallClosings(ctx, w.Live)
		if err != nil {
			log.FromContext(ctx).Error(err, "nodes that rules have closed again are not counted")
		}
		return err == nil, nil
	}) != nil {
		return nil // ctx is done
	}
	if err := w.watchNodes(ctx); err != nil {
		return err
	}
	if w.await(ctx) != nil {
		return nil // ctx is done
	}
	if err := w.Begin(); err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	role := &Role{LeaseInterface: w.Kubernetes.CoordinationV1().Leases(rule.LeaseNamespace), Rules: w.Rules, Identity: w.Identity}
	all.Go(func() { wait.UntilWithContext(ctx, w.Rules.settle, settleEvery) })
	all.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, definitionRetry, true, func(ctx context.Context) (bool, error) {
			err := role.recall(ctx)
			if err != nil {
				log.FromContext(ctx).Error(err, "the role of serving NodeReadinessRules is not read")
			}
			return err == nil, nil
		})
		all.Go(func() { role.run(ctx) })
		w.watchNRC(ctx, role.remembered)
	})
	w.watchRules(ctx)
	return nil
}

// watchNodes accounts for what the cache's informer shows of nodes: every heartbeat, which the node reconciler does not look at.
func (w *Watch) watchNodes(ctx context.Context) error {
	informer, err := w.Cache.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return err
	}
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if n, ok := o.(*corev1.Node); ok {
				w.Rules.ObserveNode(nil, n)
			}
		},
		UpdateFunc: func(old, now any) {
			before, ok := old.(*corev1.Node)
			if n, also := now.(*corev1.Node); ok && also && w.Rules.ObserveNode(before, n) {
				w.Rules.WakeNode(n.Name)
			}
		},
	})
	if err == nil {
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(handle) })
	}
	return err
}

// await waits until the API server has the resource.
func (w *Watch) await(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, definitionRetry, true, func(ctx context.Context) (bool, error) {
		resources, err := w.Kubernetes.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		there := definitionPresent
		switch {
		case apierrors.IsNotFound(err), err == nil && !lists(resources):
			there = definitionAbsent
		case controller.Refusal(err) != "":
			w.Rules.update(ctx, func(s *serving) { s.unlisted = controller.Refusal(err) })
			return false, nil
		case err != nil:
			if !discovery.IsGroupDiscoveryFailedError(err) {
				log.FromContext(ctx).Error(err, "whether there are NodeReadinessRules is not known")
			}
			return false, nil
		}
		w.Rules.update(ctx, func(s *serving) { s.definition, s.unlisted = there, "" })
		return there == definitionPresent, nil
	})
}

func lists(l *metav1.APIResourceList) bool {
	for _, r := range l.APIResources {
		if r.Name == v1alpha1.Resource {
			return true
		}
	}
	return false
}

// watchRules runs the informer of the rules.
func (w *Watch) watchRules(ctx context.Context) {
	informer := newInformer(w.Dynamic)
	replace := func(any) { w.replace(ctx, informer) }
	w.setUp(ctx, informer, func(s *serving, why string) { s.unlisted = why }, typed, cache.ResourceEventHandlerFuncs{AddFunc: replace, UpdateFunc: func(_, now any) { replace(now) }, DeleteFunc: replace})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			replace(nil) // also where there is no rule
		}
	}()
	informer.RunWithContext(ctx)
}

// replace hands all rules over, once all are listed.
func (w *Watch) replace(ctx context.Context, informer cache.SharedIndexInformer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !informer.HasSynced() {
		return
	}
	var all []*v1alpha1.NodeReadinessRule
	for _, o := range informer.GetStore().List() {
		if rule, ok := o.(*v1alpha1.NodeReadinessRule); ok {
			all = append(all, rule)
		}
	}
	if err := w.Rules.Replace(ctx, all); err != nil {
		log.FromContext(ctx).Error(err, "nodes not woken") // the cache; they also look again by themselves
	}
	w.Rules.settle(ctx)
}

// watchNRC runs the informer of NRC's Leases, which are watched by their name in all namespaces: the API server authorises
// that by resourceNames.
func (w *Watch) watchNRC(ctx context.Context, remembered map[string]string) {
	informer := coordinationinformers.NewFilteredLeaseInformer(w.Kubernetes, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, rule.NRCLease).String()
	})
	see := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			w.Rules.update(ctx, func(s *serving) { s.observeNRC(l, remembered[l.Namespace], w.Rules.Now()) })
		}
	}
	w.setUp(ctx, informer, func(s *serving, why string) { s.unwatched = why }, nil, cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }, DeleteFunc: func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if l, ok := o.(*coordinationv1.Lease); ok {
			w.Rules.update(ctx, func(s *serving) { s.nrcDeleted(l.Namespace, w.Rules.Now()) })
		}
	}})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			for _, o := range informer.GetStore().List() {
				see(o)
			}
			w.Rules.update(ctx, func(s *serving) { s.nrcListed() })
		}
	}()
	informer.RunWithContext(ctx)
}

// setUp prepares an informer before it runs.
func (w *Watch) setUp(ctx context.Context, informer cache.SharedIndexInformer, refused func(s *serving, why string),
	transform cache.TransformFunc, handler cache.ResourceEventHandler) {
	failed := func(_ context.Context, _ *cache.Reflector, err error) {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			log.FromContext(ctx).Error(err, "NodeReadinessRules, or NRC's Lease, cannot be watched")
		}
		if why := controller.Refusal(err); why != "" && !informer.HasSynced() {
			w.Rules.update(ctx, func(s *serving) { refused(s, why) })
		}
	}
	err := informer.SetWatchErrorHandlerWithContext(failed)
	if err == nil && transform != nil {
		err = informer.SetTransform(transform)
	}
	if err == nil {
		_, err = informer.AddEventHandler(handler)
	}
	if err != nil {
		panic(fmt.Sprintf("an informer that does not run yet: %v", err))
	}
}

// typed reads a rule.
func typed(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	rule := &v1alpha1.NodeReadinessRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, rule); err != nil {
		// Another definition of the resource: without a spec it is refused, and named.
		rule = &v1alpha1.NodeReadinessRule{}
		rule.Name, rule.UID, rule.ResourceVersion, rule.Generation = u.GetName(), u.GetUID(), u.GetResourceVersion(), u.GetGeneration()
		rule.CreationTimestamp, rule.DeletionTimestamp, rule.Finalizers = u.GetCreationTimestamp(), u.GetDeletionTimestamp(), u.GetFinalizers()
	}
	return rule, nil
}
