package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// LabelVersion on the Lease is the version of who holds it.
const LabelVersion = "node-ready/version"

// VersionLabel is the label's value for a version.
func VersionLabel(v string) string {
	v = strings.Map(func(r rune) rune {
		if strings.ContainsRune("+/: ", r) {
			return '_'
		}
		return r
	}, v)
	return strings.Trim(v[:min(len(v), validation.LabelValueMaxLength)], "-_.")
}

// New makes a fence of the Lease namespace/name, as controller-runtime makes its lock (pkg/leaderelection). It copies
// cfg, which may be wrapped with the fence's Transport afterwards. If recorder is nil, there is no event about the
// leader, which the Lease, the log and leader_election_master_status still show. One that is given must not write
// through the fence either: its last event comes after the release.
func New(cfg *rest.Config, namespace, name string, recorder resourcelock.EventRecorder) (*Fence, error) {
	if namespace == "" || name == "" {
		return nil, errors.New("leader election needs the namespace and the name of a Lease")
	}
	// A container that is restarted keeps its host name, and must not take itself for its predecessor.
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find a name for this replica: %w", err)
	}
	own := rest.CopyConfig(cfg)
	own.UserAgent += "/leader-election"
	own.RateLimiter = nil           // a renewal does not queue behind the reconciles' requests
	own.Timeout = RenewDeadline / 2 // one request that hangs must leave time for another
	client, err := coordinationv1.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Lease: %w", err)
	}
	own.Timeout = 0 // a watch stays open
	watcher, err := coordinationv1.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client that watches the Lease: %w", err)
	}
	f := Wrap(&resourcelock.LeaseLock{
		Labels:     map[string]string{LabelVersion: VersionLabel(version.Version)},
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString(), EventRecorder: recorder},
	})
	f.watch = func(ctx context.Context) (watch.Interface, error) {
		this := fields.OneTermEqualSelector("metadata.name", name).String()
		return watcher.Leases(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: this})
	}
	return f, nil
}

// Start watches the lease until ctx ends, so that a successor need not wait for its next look (manager.Runnable).
// Where the watch is broken or forbidden, a look every RetryPeriod shows the same.
func (f *Fence) Start(ctx context.Context) error {
	if f.watch == nil {
		return nil
	}
	logged := ""
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := f.follow(ctx); err != nil && err.Error() != logged && ctx.Err() == nil {
			logged = err.Error()
			klog.FromContext(ctx).Info("Cannot watch the lease: a new leader takes over some seconds later",
				"lock", f.Describe(), "err", err)
		}
	}, RetryPeriod, 1, true)
	return nil
}

// NeedLeaderElection is false, because mainly replicas that do not lead must watch.
func (f *Fence) NeedLeaderElection() bool { return false }

// follow watches until the watch ends.
func (f *Fence) follow(ctx context.Context) error {
	w, err := f.watch(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	for range w.ResultChan() { // what it shows does not matter, the next Get reads it
		f.changed()
	}
	return nil
}
