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
	// comparableSince is the first Kubernetes whose resource versions of one resource are ordered (KEP-5504).
	comparableSince = "1.35.0"
	// liveFor is how long ago the watch of nodes may have shown its last event to count as alive.
	liveFor = 3 * time.Second
	// showsWithin is how long the watch has to show our own write of a node before it is decided on without.
	showsWithin = 2 * time.Second
	// beginRetry is how soon the API server is asked again for its version, and for that of its nodes.
	beginRetry = 2 * time.Second
)

// Versions knows when a node in the cache holds every record that was written for it, so that it need not be read from the API
// server. Three things must hold; docs/architecture.md says why they are enough. The node changed after this process began to lead,
// it is no older than what this process last wrote to it or read of it from the API server, and the watch is alive.
type Versions struct {
	// Now is the clock.
	Now func() time.Time

	mu sync.Mutex
	// began is the nodes' version once this process led; empty until it is known, and where versions cannot be compared.
	began string
	last  map[string]version // the last of each node that we wrote or read, by its name
	seen  time.Time          // when the watch last showed an event of after began
}

// version is a node's version that this process knows to exist.
type version struct {
	name string // its resourceVersion; empty while the answer to a write is awaited, or was lost
	at   time.Time
}

// NewVersions makes an account on the clock.
func NewVersions(now func() time.Time) *Versions {
	return &Versions{Now: now, last: map[string]version{}}
}

// Begin learns the version of the nodes at a time when this process leads. It returns once that is known, or it is clear that
// versions cannot be compared.
func (v *Versions) Begin(ctx context.Context, live client.Reader, server discovery.ServerVersionInterface) error {
	return wait.PollUntilContextCancel(ctx, beginRetry, true, func(ctx context.Context) (bool, error) {
		info, err := server.ServerVersion()
		if err != nil {
			return false, nil
		}
		running, err := utilversion.ParseGeneric(info.GitVersion)
		if err != nil || !running.AtLeast(utilversion.MustParseGeneric(comparableSince)) {
			log.FromContext(ctx).Info("each node is read from the API server before its worker starts: resource versions are comparable since Kubernetes "+comparableSince, "kubernetes", info.GitVersion)
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

// See accounts for a version of a node that the watch has shown.
func (v *Versions) See(n *corev1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if newer(n.ResourceVersion, v.began) {
		v.seen = v.Now()
	}
}

// Gone drops a node. What has its name next is newer than all that is known of it.
func (v *Versions) Gone(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.last, name)
}

// Current reports whether the node, read from the cache just now, is proved to hold every record that was written for it.
func (v *Versions) Current(n *corev1.Node) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Now().Sub(v.seen) > liveFor || !newer(n.ResourceVersion, v.began) {
		return false
	}
	last, ok := v.last[n.Name]
	return !ok || n.ResourceVersion == last.name || newer(n.ResourceVersion, last.name)
}

// Behind reports whether the watch is about to show a version of the node that is newer than this one, from the cache: what is decided
// on it the API server would refuse. A watch that takes longer than two seconds is not waited for.
func (v *Versions) Behind(n *corev1.Node) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, ok := v.last[n.Name]
	return ok && newer(last.name, n.ResourceVersion) && v.Now().Sub(last.at) < showsWithin
}

// newer reports whether version a is of after b; of versions that cannot be compared none is.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// Writer is the client with an account of what it writes to nodes.
func (v *Versions) Writer(c client.Client) client.Client { return accounted{Client: c, versions: v} }

// accounted notes the version that each patch of a node leaves behind. Its status is not written through it: no record is there.
type accounted struct {
	client.Client
	versions *Versions
}

// Patch implements client.Client.
func (a accounted) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	n, ok := o.(*corev1.Node)
	if !ok {
		return a.Client.Patch(ctx, o, p, opts...)
	}
	name := n.Name
	a.versions.note(name, "") // its answer may be lost
	err := a.Client.Patch(ctx, o, p, opts...)
	if err == nil {
		a.versions.note(name, n.ResourceVersion)
	}
	return err
}

func (v *Versions) note(name, resourceVersion string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last[name] = version{name: resourceVersion, at: v.Now()}
}

// Read accounts for a node that was read from the API server. A worker may be started on it, whose end must not be decided on what
// the node was before. It says nothing about a write whose answer was lost.
func (v *Versions) Read(n *corev1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if last, ok := v.last[n.Name]; !ok || newer(n.ResourceVersion, last.name) {
		v.last[n.Name] = version{name: n.ResourceVersion, at: v.Now()}
	}
}
