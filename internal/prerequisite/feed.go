package prerequisite

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// What a feed publishes beside the values of its indexes. The names are no label keys, which name the other indexes.
const (
	anyObject = "*"
	state     = "" // the feed itself: it is read now, or cannot be for another reason
)

// kindRetry is how often a kind that the API server does not serve is asked for again; its definition may be installed
// after us. Everything else is watched.
const kindRetry = 5 * time.Second

// feed is an informer that wakes the nodes concerned: those that wait for a value under which an index has the object.
type feed struct {
	wakes    *wakes
	indexers cache.Indexers
	slim     cache.TransformFunc
	// same reports whether an update changes nothing that a verdict depends on; nil for never.
	same func(old, now any) bool
	// needs says what serves the kind, for messages while nothing does; empty for nothing to say.
	needs string
	// changes counts the events, so that a verdict about all objects is known to be up to date.
	changes atomic.Uint64

	mu       sync.Mutex
	informer cache.SharedIndexInformer
	synced   func() bool // nil until the informer runs
	trouble  string
}

func newFeed(w *wakes, indexers cache.Indexers, slim cache.TransformFunc) *feed {
	return &feed{wakes: w, indexers: indexers, slim: slim, trouble: notReadYet}
}

func (f *feed) topic(index, value string) topic { return topic{feed: f, index: index, value: value} }

// run runs an informer until ctx is done. What it requests is for messages.
func (f *feed) run(ctx context.Context, informer cache.SharedIndexInformer, request string) {
	// These fail only on an informer that already ran.
	_ = informer.AddIndexers(f.indexers)
	_ = informer.SetTransform(f.slim)
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if f.objects() != nil {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		f.failed(ctx, err, request)
	})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if initial {
				f.changes.Add(1) // the end of the list wakes whoever waits
				return
			}
			f.changed(o)
		},
		UpdateFunc: func(old, now any) {
			if f.same == nil || !f.same(old, now) {
				f.changed(old, now)
			}
		},
		DeleteFunc: func(o any) { f.changed(o) },
	})
	if err != nil {
		return
	}
	f.mu.Lock()
	// The handler's, and not the informer's: whatever is read after this is woken for when it changes.
	f.informer, f.synced, f.trouble = informer, registration.HasSynced, notReadYet
	f.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case <-registration.HasSyncedChecker().Done(): // the list may be empty, and then there is no event
			f.wakes.publish(f.topic(state, ""))
		case <-ctx.Done():
		}
	})
	informer.RunWithContext(ctx)
}

// discover waits until the API server serves a kind; ok is false when ctx is done before.
func (f *feed) discover(ctx context.Context, mapper meta.RESTMapper, kind schema.GroupVersionKind) (resource schema.GroupVersionResource, ok bool) {
	err := wait.PollUntilContextCancel(ctx, kindRetry, true, func(ctx context.Context) (bool, error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			f.failed(ctx, err, "discover "+kind.GroupVersion().String())
			return false, nil
		}
		resource = mapping.Resource
		return true, nil
	})
	return resource, err == nil
}

// runKind waits until a kind is served, and then runs an informer of its objects until ctx is done.
func (f *feed) runKind(ctx context.Context, c Clients, kind schema.GroupVersionKind, namespace string) {
	if resource, ok := f.discover(ctx, c.Mapper, kind); ok {
		informer := dynamicinformer.NewFilteredDynamicInformer(c.Dynamic, resource, namespace, 0, cache.Indexers{}, nil).Informer()
		f.run(ctx, informer, "list and watch "+resource.GroupResource().String())
	}
}

// objects returns what was read; nil before that.
func (f *feed) objects() cache.Indexer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced == nil || !f.synced() {
		return nil
	}
	return f.informer.GetIndexer()
}

// why says why objects returns nil.
func (f *feed) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// failed remembers why nothing is read, and logs the whole error once for each such reason.
func (f *feed) failed(ctx context.Context, err error, request string) {
	text := phrase(err, request)
	if text == notServed && f.needs != "" {
		text += "; " + f.needs
	}
	f.mu.Lock()
	changed := f.trouble != text
	f.trouble = text
	f.mu.Unlock()
	if changed {
		log.FromContext(ctx).Info("cannot be read", "request", request, "err", err.Error())
		f.wakes.publish(f.topic(state, ""))
	}
}

// changed wakes the nodes that an event concerns. An update concerns those of the old object too.
func (f *feed) changed(objects ...any) {
	f.changes.Add(1) // first: a woken node must not find an older verdict
	topics := []topic{f.topic(anyObject, "")}
	for _, o := range objects {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		for name, index := range f.indexers {
			values, _ := index(o) // none of ours fails
			for _, v := range values {
				topics = append(topics, f.topic(name, v))
			}
		}
	}
	f.wakes.publish(topics...)
}
