package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/dynamicinformer"
	appsv1 "k8s.io/client-go/informers/apps/v1"
	corev1 "k8s.io/client-go/informers/core/v1"
	resourcev1 "k8s.io/client-go/informers/resource/v1"
	storagev1 "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// state is the index of the dependency on the informer itself: it is read now, or cannot be for another reason.
const state = ""

// kindRetry is how often to look for a kind that the API server does not serve, because its definition may be installed
// later. Everything else is watched.
const kindRetry = 5 * time.Second

// Reasons for which objects are not known.
const (
	notReadYet   = "not read yet"
	cannotBeRead = "cannot be read: "
	notServed    = cannotBeRead + "the kind is not served"
)

// informer watches the objects of a source, and enqueues the nodes concerned: those that wait for a value under which
// an index has the object.
type informer struct {
	*kind.Source
	waiting  *waiting
	indexers cache.Indexers
	// changes counts the events, so that a result about all objects is known to be up to date.
	changes atomic.Uint64

	mu     sync.Mutex
	cache  cache.SharedIndexInformer
	synced func() bool // nil until the informer runs
	reason string      // for which objects are not known

	results sync.Map // of shared, by name
}

// result is what a function of all objects returned, and the count of changes that it was called at.
type result struct {
	mu     sync.Mutex
	called bool
	at     uint64
	text   string
}

func newInformer(w *waiting, s *kind.Source) *informer {
	return &informer{Source: s, waiting: w, indexers: cache.Indexers{}, reason: notReadYet}
}

// runSource waits until the kind is served, where it may not be, and runs an informer of the source until ctx is done.
func (i *informer) runSource(ctx context.Context, c Clients) {
	resource := i.Resource()
	if i.Object == nil || i.Optional != "" {
		var served bool
		if resource, served = i.discover(ctx, c.Mapper); !served {
			return
		}
	}
	options := func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = i.Labels, i.Fields }
	var shared cache.SharedIndexInformer
	if i.Object == nil {
		shared = dynamicinformer.NewFilteredDynamicInformer(c.Dynamic, resource, i.Namespace, 0, cache.Indexers{},
			options).Informer()
	} else {
		shared = typed[i.Kind.Kind](c.Kubernetes, i.Namespace, options)
	}
	i.run(ctx, shared, "list and watch "+resource.GroupResource().String())
}

// typed makes an informer of a built-in kind. The factory of client-go knows all of them, and would link all of them.
var typed = map[string]func(kubernetes.Interface, string, func(*metav1.ListOptions)) cache.SharedIndexInformer{
	"Pod": func(c kubernetes.Interface, namespace string, o func(*metav1.ListOptions)) cache.SharedIndexInformer {
		return corev1.NewFilteredPodInformer(c, namespace, 0, cache.Indexers{}, o)
	},
	"DaemonSet": func(c kubernetes.Interface, namespace string, o func(*metav1.ListOptions)) cache.SharedIndexInformer {
		return appsv1.NewFilteredDaemonSetInformer(c, namespace, 0, cache.Indexers{}, o)
	},
	"ControllerRevision": func(c kubernetes.Interface, ns string, o func(*metav1.ListOptions)) cache.SharedIndexInformer {
		return appsv1.NewFilteredControllerRevisionInformer(c, ns, 0, cache.Indexers{}, o)
	},
	"CSINode": func(c kubernetes.Interface, _ string, o func(*metav1.ListOptions)) cache.SharedIndexInformer {
		return storagev1.NewFilteredCSINodeInformer(c, 0, cache.Indexers{}, o)
	},
	"ResourceSlice": func(c kubernetes.Interface, _ string, o func(*metav1.ListOptions)) cache.SharedIndexInformer {
		return resourcev1.NewFilteredResourceSliceInformer(c, 0, cache.Indexers{}, o)
	},
}

// discover waits until the API server serves the kind; served is false when ctx is done before.
func (i *informer) discover(ctx context.Context, mapper meta.RESTMapper) (
	resource schema.GroupVersionResource, served bool) {
	err := wait.PollUntilContextCancel(ctx, kindRetry, true, func(ctx context.Context) (bool, error) {
		mapping, err := mapper.RESTMapping(i.Kind.GroupKind(), i.Kind.Version)
		if err != nil {
			i.failed(ctx, err, "discover "+i.Kind.GroupVersion().String())
			return false, nil
		}
		resource = mapping.Resource
		return true, nil
	})
	return resource, err == nil
}

// run runs a shared informer until ctx is done. What it requests is for messages.
func (i *informer) run(ctx context.Context, shared cache.SharedIndexInformer, request string) {
	// These fail only on an informer that already ran.
	_ = shared.AddIndexers(i.indexers)
	_ = shared.SetTransform(func(o any) (any, error) { return i.Slim(o), nil })
	_ = shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if _, unknown := i.objects(); unknown == "" {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		i.failed(ctx, err, request)
	})
	registration, err := shared.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if initial {
				i.changes.Add(1) // the end of the list enqueues whoever waits
				return
			}
			i.changed(o)
		},
		UpdateFunc: func(old, now any) {
			if i.Same == nil || !i.Same(old, now) {
				i.changed(old, now)
			}
		},
		DeleteFunc: func(o any) { i.changed(o) },
	})
	if err != nil {
		return
	}
	i.mu.Lock()
	// The handler's, and not the informer's: a change to whatever is read after this enqueues those who have read it.
	i.cache, i.synced, i.reason = shared, registration.HasSynced, notReadYet
	i.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case <-registration.HasSyncedChecker().Done(): // the list may be empty, and then there is no event
			i.waiting.changed(dependency{i, state, ""})
		case <-ctx.Done():
		}
	})
	shared.RunWithContext(ctx)
}

// objects returns what was read, or the reason for which it is not known.
func (i *informer) objects() (objects cache.Indexer, unknown string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.synced == nil || !i.synced() {
		return nil, i.reason
	}
	return i.cache.GetIndexer(), ""
}

// failed remembers why nothing is read, and logs the whole error once for each such reason.
func (i *informer) failed(ctx context.Context, err error, request string) {
	text := reasonOf(err, request)
	if text == notServed && i.Optional != "" {
		text += "; " + i.Optional
	}
	i.mu.Lock()
	changed := i.reason != text
	i.reason = text
	i.mu.Unlock()
	if changed {
		log.FromContext(ctx).Info("cannot be read", "request", request, "err", err.Error())
		i.waiting.changed(dependency{i, state, ""})
	}
}

// changed enqueues the nodes that an event concerns. An update concerns those of the old object too.
func (i *informer) changed(objects ...any) {
	i.changes.Add(1) // first: an enqueued node must not find an older result
	changed := []dependency{{i, kind.All, ""}}
	for _, o := range objects {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		for name, index := range i.indexers {
			values, _ := index(o) // none of ours fails
			for _, v := range values {
				changed = append(changed, dependency{i, name, v})
			}
		}
	}
	i.waiting.changed(changed...)
}

// shared calls a function of all objects once per change.
func (i *informer) shared(name string, all cache.Indexer, of func([]any) string) string {
	made, _ := i.results.LoadOrStore(name, &result{})
	r := made.(*result)
	r.mu.Lock()
	defer r.mu.Unlock()
	// Read before the objects: a change in between makes the result outdated, and never a new count certify an old one.
	if at := i.changes.Load(); !r.called || r.at != at {
		r.called, r.at, r.text = true, at, of(all.List())
	}
	return r.text
}

// reasonOf reduces the error of a request to the part that is the same for every retry. The result goes into a
// condition's message, and each change of the message causes a write. The full error contains ports, durations and
// resource versions, which vary.
func reasonOf(err error, request string) string {
	if meta.IsNoMatchError(err) || apierr.Of(err, apierr.Read) == apierr.Gone {
		return notServed
	}
	if reason := apierr.ReadReason(err); reason != "" {
		return cannotBeRead + reason + " (" + request + ")"
	}
	return cannotBeRead + "no usable answer from the API server"
}
