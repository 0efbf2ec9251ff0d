package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// probe creates a control probe. All nodes of its group that fail together share one.
func (r *Reconciler) probe(ctx context.Context, d decision) error {
	p, now := d.plan.Probe, r.View.Tracker.Now()
	pod := r.View.Builder.Probe(p.On, d.in.Profile, p.Subject, p.Group)
	on := &corev1.Node{} // of a node that is gone nothing is known, and nothing is bound to it
	if err := r.View.Cache.Get(ctx, client.ObjectKey{Name: p.On.Name}, on); client.IgnoreNotFound(err) != nil {
		return err
	}
	asked, err := r.create(ctx, d, pod, marks.Observe(on, r.View.Config.Vocabulary()))
	switch {
	case !asked:
		return nil // another node of the group has just asked for one
	case err == nil:
		log.FromContext(ctx).Info("control probe created", "pod", pod.Name, "on", p.On.Name)
		return nil
	}
	why := ""
	switch class := apierr.Of(err, apierr.Create); {
	case class == apierr.Exists:
		have := &corev1.Pod{}
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Pods.Namespace, Name: pod.Name}, have); err != nil {
			return client.IgnoreNotFound(err)
		}
		var failed error
		if _, why, failed = r.foreign(ctx, pod, have, p.On); failed != nil {
			return failed
		}
		if why == "" {
			r.View.Tracker.Created(have)
			return nil // created a moment ago; its events will come
		}
	case errors.As(err, &workerpod.AlteredPod{}):
		why = err.Error()
	case class == apierr.Later, class == apierr.Refused:
		if again := r.retryLater(d, pod.Name, err); again != nil {
			return again
		}
		why = "the API server rejected the control probe: " + err.Error()
	default:
		return fmt.Errorf("create probe %s on node %s: %w", pod.Name, p.On.Name, err)
	}
	d.ev.Probes, d.ev.ProbeRefused = nil, why // the probes are listed again
	loaders := r.loaders(ctx, &d)
	delete(loaders, decide.NeedFresh) // the probe was decided on for this reading of the node
	plan, err := decide.Resolve(&d.in, &d.ev, func() time.Time { return now }, loaders)
	if err != nil || plan.Step != decide.StepRecord {
		return err // without one, another probe has come meanwhile
	}
	return r.record(ctx, d, plan)
}

// deleteAltered deletes the control probes on a node that were changed so that they are not ours any more. Whoever
// creates such a probe deletes it at once. If the process ends in between, or the deletion is refused, the failure may
// be recorded without another probe, and then nobody asks for the name again. The node itself may be gone.
func (r *Reconciler) deleteAltered(ctx context.Context, host string) error {
	cached, err := r.View.AlteredProbes(ctx, host)
	errs := []error{err}
	for i := range cached {
		pod := &corev1.Pod{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(&cached[i]), pod); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		if _, altered := r.View.AlteredProbe(pod); !altered || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.Pods.DeleteAltered(ctx, pod); err != nil {
			errs = append(errs, err)
			continue
		}
		log.FromContext(ctx).Info("deleted a control probe that a policy changed", "pod", pod.Name)
	}
	return errors.Join(errs...)
}
