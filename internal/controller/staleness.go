package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// comparableSince is the first Kubernetes version with ordered resource versions for each resource (KEP-5504).
	comparableSince = "1.35.0"
	// liveFor is the longest time since the last event of the node watch for which the watch counts as alive.
	liveFor = 3 * time.Second
	// awaitedFor is how long a decision on a node waits for the cache to hold our last write of it.
	awaitedFor = 2 * time.Second
	// beginRetry is the time between two requests for the API server's version and for the version of its nodes.
	beginRetry = 2 * time.Second
)

// Store is the store of an informer (client-go's cache.Store), which knows the resource version up to which it is
// complete. Unlike the events of a watch, that version also covers a relist. Read it before the cache, because a later
// read of the cache then shows at least this version.
type Store interface {
	LastStoreSyncResourceVersion() string
}

// Versions knows when the cached node has every record that was written for it, so that it need not be read from the
// API server. Three conditions must hold; docs/design/architecture.md explains why they are enough. The store is at
// least as new as a read of the nodes after this process became the leader. It is at least as new as this process's
// last write to the node, or read of it from the API server. The watch is alive.
type Versions struct {
	// Now is the clock.
	Now func() time.Time
	// Store is that of the nodes' informer.
	Store Store

	mu sync.Mutex
	// began is the version of the nodes once this process led; empty until it is known, and where versions cannot be
	// compared.
	began     string
	last      map[string]version // what was last written to each node or read of it, by name
	lastEvent time.Time          // of the watch
}

// version is a version of a node that this process knows to exist.
type version struct {
	resourceVersion string // empty while the answer to a write is awaited, or was lost
	at              time.Time
}

// NewVersions makes Versions on the clock, for the store of the nodes' informer.
func NewVersions(now func() time.Time, store Store) *Versions {
	return &Versions{Now: now, Store: store, last: map[string]version{}}
}

// Begin reads the version of the nodes while this process leads. It returns once that is known, or once it is clear
// that versions cannot be compared.
func (v *Versions) Begin(ctx context.Context, live client.Reader, server discovery.ServerVersionInterface) error {
	return wait.PollUntilContextCancel(ctx, beginRetry, true, func(ctx context.Context) (bool, error) {
		info, err := server.ServerVersion()
		if err != nil {
			return false, nil
		}
		running, err := utilversion.ParseGeneric(info.GitVersion)
		if err != nil || !running.AtLeast(utilversion.MustParseGeneric(comparableSince)) {
			log.FromContext(ctx).Info("each node is read from the API server before its worker starts: comparable resource "+
				"versions need Kubernetes "+comparableSince, "kubernetes", info.GitVersion)
			return true, nil
		}
		var nodes corev1.NodeList
		if err := live.List(ctx, &nodes, client.Limit(1)); err != nil {
			return false, nil // until then nodes are read
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.began = nodes.ResourceVersion
		return true, nil
	})
}

// Observe records that the watch of nodes has delivered an event.
func (v *Versions) Observe() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lastEvent = v.Now()
}

// Gone drops a node. A later node of its name is newer than all known versions.
func (v *Versions) Gone(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.last, name)
}

// Synced is the version up to which the store is complete. Call it before the node is read from the cache.
func (v *Versions) Synced() string { return v.Store.LastStoreSyncResourceVersion() }

// Current reports whether the node, read from the cache after Synced, is known to have every record that was written
// for it.
func (v *Versions) Current(name, synced string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Now().Sub(v.lastEvent) > liveFor || !holds(synced, v.began) {
		return false
	}
	last, ok := v.last[name]
	return !ok || holds(synced, last.resourceVersion)
}

// Behind reports whether the cache is about to get a newer version of the node, which was read after Synced. The API
// server would reject a write that is based on the older version. It waits at most two seconds for a watch.
func (v *Versions) Behind(name, synced string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, ok := v.last[name]
	return ok && newer(last.resourceVersion, synced) && v.Now().Sub(last.at) < awaitedFor
}

// holds reports whether a store that is complete up to the version synced contains the write with the version.
func holds(synced, version string) bool {
	order, err := resourceversion.CompareResourceVersion(synced, version)
	return err == nil && order >= 0
}

// newer reports whether version a is newer than b. It is false if they cannot be compared.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// Writer is a client that remembers the version after each patch of a node. Writes of a node's status do not go through
// it, because the status has no record.
func (v *Versions) Writer(c client.Client) client.Client { return noting{Client: c, versions: v} }

type noting struct {
	client.Client
	versions *Versions
}

// Patch implements client.Client.
func (w noting) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if o.GetObjectKind().GroupVersionKind().Kind != "Node" { // of a PatchTarget
		return w.Client.Patch(ctx, o, p, opts...)
	}
	name := o.GetName()
	w.versions.note(name, "") // its answer may be lost
	err := w.Client.Patch(ctx, o, p, opts...)
	if err == nil {
		w.versions.note(name, o.GetResourceVersion())
	}
	return err
}

func (v *Versions) note(name, resourceVersion string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last[name] = version{resourceVersion: resourceVersion, at: v.Now()}
}

// Read records a node that was read from the API server. A worker may be started on that read, and its end must not be
// decided on an older one. A read says nothing about a write whose answer was lost, because the API server may still
// carry it out.
func (v *Versions) Read(n *corev1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if last, ok := v.last[n.Name]; !ok || newer(n.ResourceVersion, last.resourceVersion) {
		v.last[n.Name] = version{resourceVersion: n.ResourceVersion, at: v.Now()}
	}
}
