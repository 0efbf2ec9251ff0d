package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// AnnotationWorkers on the election's Lease holds decide.WorkerNamespaces as JSON. The Lease outlasts every leader
// and every configuration, and each leader has read and written it before it creates a pod.
const AnnotationWorkers = "node-ready/workers"

// Namespaces keeps on the election's Lease where workers are created, so that the next leader knows of workers outside
// its own namespace. It costs one read for each leader, and a write if something changed. A nil Namespaces belongs to a
// controller without election: it keeps nothing, and knows no former namespace.
type Namespaces struct {
	// Reader must not be a cache.
	Reader client.Reader
	Writer client.Writer
	// Lease is that of the election.
	Lease client.ObjectKey
	// Namespace is where this controller creates workers, and Seconds their longest activeDeadlineSeconds.
	Namespace string
	Seconds   int64

	former atomic.Pointer[[]decide.FormerNamespace]
}

// Former are the namespaces in which an earlier leader's workers may still run; none before Begin.
func (n *Namespaces) Former() []decide.FormerNamespace {
	if n == nil {
		return nil
	}
	if f := n.former.Load(); f != nil {
		return *f
	}
	return nil
}

// beginTries is how often a Lease that cannot be read or written is tried, a second apart. A conflict with a
// renewal counts.
const beginTries = 5

// Begin reads the former namespaces, and writes this controller's. Call it once the process leads, and create no worker
// before it returns. If the Lease cannot be read or written, it logs that and continues, because no node is held for a
// missing permission. The error is the context's.
func (n *Namespaces) Begin(ctx context.Context, now func() time.Time) error {
	if n == nil {
		return nil
	}
	var last error
	backoff := wait.Backoff{Duration: time.Second, Steps: beginTries}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		last = n.begin(ctx, now())
		return last == nil, nil
	})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if last != nil {
		log.FromContext(ctx).Error(last, "cannot find out whether worker.namespace was changed: a worker may start while "+
			"one in the previous namespace still runs", "lease", n.Lease)
	}
	return nil
}

func (n *Namespaces) begin(ctx context.Context, now time.Time) error {
	lease := &coordinationv1.Lease{}
	if err := n.Reader.Get(ctx, n.Lease, lease); err != nil {
		return fmt.Errorf("read Lease %s: %w", n.Lease, err)
	}
	var have decide.WorkerNamespaces
	if raw := lease.Annotations[AnnotationWorkers]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &have); err != nil {
			log.FromContext(ctx).Error(err, "the Lease's annotation is replaced", "annotation", AnnotationWorkers)
			have = decide.WorkerNamespaces{}
		}
	}
	next := have.Next(n.Namespace, n.Seconds, now)
	n.former.Store(&next.Former)
	for _, f := range next.Former {
		log.FromContext(ctx).Info("workers may still run in a previous worker.namespace, which the controller no longer "+
			"reads: older nodes wait until the deadline of these workers", "namespace", f.Namespace, "until", f.Until())
	}
	raw, err := json.Marshal(next)
	if err != nil || string(raw) == lease.Annotations[AnnotationWorkers] {
		return err
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[AnnotationWorkers] = string(raw)
	// With the resourceVersion that was read: a renewal meanwhile is a conflict.
	if err := n.Writer.Update(ctx, lease); err != nil {
		return fmt.Errorf("write Lease %s: %w", n.Lease, err)
	}
	return nil
}
