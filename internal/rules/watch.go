package rules

import (
	"context"
	"fmt"
	"slices"
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
	"k8s.io/client-go/dynamic/dynamicinformer"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// definitionRetry is how often discovery looks for the resource. Its definition may be installed after the controller.
	definitionRetry = 2 * time.Second
	// expiryInterval is how often the state is evaluated in case NRC's Lease is no longer renewed.
	expiryInterval = time.Second
)

// Watch keeps Rules up to date with the API server: which rules exist, and whether NRC serves them. It is a
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

	mu sync.Mutex
}

// NeedLeaderElection says that only the leader watches.
func (*Watch) NeedLeaderElection() bool { return true }

// Start watches until ctx is done.
func (w *Watch) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("rules"))
	recalled := func(ctx context.Context) error { return w.Rules.recallClosings(ctx, w.Live) }
	if retry(ctx, "cannot count the nodes that rules have tainted again", recalled) != nil {
		return nil // ctx is done
	}
	if err := w.watchNodes(ctx); err != nil {
		return err
	}
	if w.awaitDefinition(ctx) != nil {
		return nil // ctx is done
	}
	if err := w.Begin(); err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { wait.UntilWithContext(ctx, w.Rules.reportState, expiryInterval) })
	all.Go(func() { w.watchNRC(ctx) })
	w.watchRules(ctx)
	return nil
}

// retry calls do until it succeeds, and logs each failure with the message. It fails only when ctx is done.
func retry(ctx context.Context, message string, do func(context.Context) error) error {
	return wait.PollUntilContextCancel(ctx, definitionRetry, true, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, message)
		}
		return err == nil, nil
	})
}

// watchNodes passes on the events of the cache's node informer, including every heartbeat, which the node reconciler
// ignores.
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
				w.Rules.EnqueueNode(n.Name)
			}
		},
	})
	if err == nil {
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(handle) })
	}
	return err
}

// awaitDefinition waits until the API server has the resource.
func (w *Watch) awaitDefinition(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, definitionRetry, true, func(ctx context.Context) (bool, error) {
		resources, err := w.Kubernetes.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		found := definitionPresent
		switch {
		case apierrors.IsNotFound(err), err == nil && !slices.ContainsFunc(resources.APIResources, isRule):
			found = definitionAbsent
		case apierr.Refusal(err, apierr.Read) != "":
			w.Rules.update(ctx, func(s *serving) { s.unlisted = apierr.Refusal(err, apierr.Read) })
			return false, nil
		case err != nil:
			if !discovery.IsGroupDiscoveryFailedError(err) {
				log.FromContext(ctx).Error(err, "cannot find out whether the API server has NodeReadinessRules")
			}
			return false, nil
		}
		w.Rules.update(ctx, func(s *serving) { s.definition, s.unlisted = found, "" })
		return found == definitionPresent, nil
	})
}

func isRule(r metav1.APIResource) bool { return r.Name == v1alpha1.Resource }

// watchRules runs the informer of the rules.
func (w *Watch) watchRules(ctx context.Context) {
	informer := newInformer(w.Dynamic)
	replace := func() { w.replace(ctx, informer) }
	refused := func(s *serving, why string) { s.unlisted = why }
	w.setUp(ctx, informer, refused, typed, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { replace() },
		UpdateFunc: func(any, any) { replace() }, DeleteFunc: func(any) { replace() }})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			replace() // also if there is no rule
		}
	}()
	informer.RunWithContext(ctx)
}

// replace passes on all rules once they are all listed.
func (w *Watch) replace(ctx context.Context, informer cache.SharedIndexInformer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !informer.HasSynced() {
		return
	}
	if err := w.Rules.Replace(ctx, stored(informer)); err != nil {
		log.FromContext(ctx).Error(err, "cannot enqueue nodes") // the cache; they are also reconciled periodically
	}
	w.Rules.reportState(ctx)
}

// watchNRC runs the informer of NRC's Leases. They are watched by name in all namespaces, which the API server
// authorises by resourceNames. A Lease elsewhere than in rules.otherControllerNamespaces is not looked at.
func (w *Watch) watchNRC(ctx context.Context) {
	namespaces := nrcNamespaces(w.Rules.Config)
	if len(namespaces) == 0 {
		return
	}
	byName := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, rule.NRCLease).String()
	}
	informer := coordinationinformers.NewFilteredLeaseInformer(w.Kubernetes, metav1.NamespaceAll, 0, nil, byName)
	observe := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok && slices.Contains(namespaces, l.Namespace) {
			w.Rules.update(ctx, func(s *serving) { s.observeNRC(l, w.Rules.Now()) })
		}
	}
	refused := func(s *serving, why string) { s.unwatched = why }
	w.setUp(ctx, informer, refused, nil, cache.ResourceEventHandlerFuncs{AddFunc: observe,
		UpdateFunc: func(_, now any) { observe(now) }})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			for _, o := range informer.GetStore().List() {
				observe(o)
			}
			w.Rules.update(ctx, (*serving).nrcListed)
		}
	}()
	informer.RunWithContext(ctx)
}

// setUp prepares an informer before it runs. refused records the reason if the API server refuses its first list.
func (w *Watch) setUp(ctx context.Context, informer cache.SharedIndexInformer, refused func(s *serving, why string),
	transform cache.TransformFunc, handler cache.ResourceEventHandler) {
	failed := func(_ context.Context, _ *cache.Reflector, err error) {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			log.FromContext(ctx).Error(err, "cannot watch NodeReadinessRules, or the Lease of NRC")
		}
		if why := apierr.Refusal(err, apierr.Read); why != "" && !informer.HasSynced() {
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

func newInformer(c dynamic.Interface) cache.SharedIndexInformer {
	resource := v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)
	return dynamicinformer.NewFilteredDynamicInformer(c, resource, metav1.NamespaceAll, 0, nil, nil).Informer()
}

// typed converts a rule of the dynamic client.
func typed(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	r := &v1alpha1.NodeReadinessRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r); err != nil {
		// The object follows another definition of the resource. It becomes a rule without a spec, which is refused under its
		// name.
		r = &v1alpha1.NodeReadinessRule{}
		r.Name, r.UID, r.ResourceVersion, r.Generation = u.GetName(), u.GetUID(), u.GetResourceVersion(), u.GetGeneration()
		r.CreationTimestamp, r.DeletionTimestamp, r.Finalizers =
			u.GetCreationTimestamp(), u.GetDeletionTimestamp(), u.GetFinalizers()
	}
	return r, nil
}

// stored are the rules that an informer holds.
func stored(informer cache.SharedIndexInformer) (all []*v1alpha1.NodeReadinessRule) {
	for _, o := range informer.GetStore().List() {
		if r, ok := o.(*v1alpha1.NodeReadinessRule); ok {
			all = append(all, r)
		}
	}
	return all
}

// Lister knows which rules exist as far as this replica has observed, for the webhook that every replica serves. It is
// a manager.Runnable. While nothing is known, because the resource is not defined or not listed yet, there are none:
// nodes that are created meanwhile get their taints from the leader.
type Lister struct {
	gating   []marks.Taint
	informer cache.SharedIndexInformer
}

// NewLister prepares it. gating are the taints that verification owns.
func NewLister(c dynamic.Interface, gating []marks.Taint) (*Lister, error) {
	l := &Lister{gating: gating, informer: newInformer(c)}
	err := l.informer.SetTransform(typed)
	if err == nil {
		err = l.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if !apierrors.IsNotFound(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				log.FromContext(ctx).Error(err, "the webhook cannot watch NodeReadinessRules")
			}
		})
	}
	return l, err
}

// Start watches until ctx is done.
func (l *Lister) Start(ctx context.Context) error {
	l.informer.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection says that every replica watches.
func (*Lister) NeedLeaderElection() bool { return false }

// Rules are the known rules, sorted by rule.Sort.
func (l *Lister) Rules() (rules []rule.Rule) {
	for _, o := range stored(l.informer) {
		rules = append(rules, rule.Compile(o, l.gating))
	}
	rule.Sort(rules)
	return rules
}
