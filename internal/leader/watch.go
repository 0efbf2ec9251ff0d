package leader

import (
	"context"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Start watches the lease until ctx ends, so that a successor need not wait for its next look (manager.Runnable).
// Where the watch is broken or forbidden, a look every RetryPeriod shows the same.
func (f *Fence) Start(ctx context.Context) error {
	if f.watch == nil {
		return nil
	}
	said := ""
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := f.follow(ctx); err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			klog.FromContext(ctx).Info("Cannot watch the lease: a successor takes over some seconds later", "lock", f.Describe(), "err", err)
		}
	}, RetryPeriod, 1, true)
	return nil
}

// NeedLeaderElection is false: who does not lead watches most of all.
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
