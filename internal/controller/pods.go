package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Pods are the effects on worker pods.
type Pods struct {
	Writer    client.Writer
	Namespace string
}

// Create creates a worker pod. A pod without a priority class, for a node that takes workloads, must not preempt any.
// If kube-scheduler might let it do so, or that is unknown, the pod is bound directly. A pod that cannot be bound
// directly is refused: it has claims, or the node does not list an extended resource that it requests (offered is
// false). A kubelet that does not know a resource admits the pod without it.
//
// A pod that the API server stores with another pin, owner or mark is deleted at once, and the error is
// workerpod.AlteredPod.
func (p Pods) Create(ctx context.Context, pod *corev1.Pod, offered bool) error {
	if pod.Spec.NodeName == "" && pod.Spec.PriorityClassName == "" {
		dryRun := pod.DeepCopy()
		err := p.Writer.Create(ctx, dryRun, client.DryRunAll)
		if what := workerpod.Altered(pod, dryRun); err == nil && what != "" {
			return workerpod.AlteredPod{What: what}
		}
		if err != nil || workerpod.MayPreempt(dryRun) {
			why := workerpod.Bind(pod, offered)
			switch {
			case why == "":
			case err != nil:
				return err
			default:
				return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New(why))
			}
		}
	}
	sent := pod.DeepCopy() // the answer is decoded into pod
	if err := p.Writer.Create(ctx, pod); err != nil {
		return err
	}
	what := workerpod.Altered(sent, pod)
	if what == "" {
		return nil
	}
	if err := p.DeleteAltered(ctx, pod); err != nil {
		return err
	}
	return workerpod.AlteredPod{What: what}
}

// DeleteAltered deletes a pod that was made for a node and is not ours any more.
func (p Pods) DeleteAltered(ctx context.Context, pod *corev1.Pod) error {
	err := p.Writer.Delete(ctx, p.named(pod.Name), client.Preconditions{UID: &pod.UID})
	if err = ignoreGone(err, apierr.Delete); err != nil {
		return fmt.Errorf("delete pod %s, which was changed when it was created: %w", pod.Name, err)
	}
	return nil
}

// Keep marks an ended pod that is kept only for its logs. A pod that is gone is not an error.
func (p Pods) Keep(ctx context.Context, o workerpod.Observation) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, o.UID, workerpod.AnnotationRecorded)
	err := p.Writer.Patch(ctx, p.named(o.Name), client.RawPatch(types.MergePatchType, []byte(patch)))
	if err = ignoreGone(err, apierr.Patch); err != nil {
		return fmt.Errorf("mark pod %s: %w", o.Name, err)
	}
	return nil
}

// Delete deletes a pod, on condition that it is still the one observed. A container that may run gets its grace period.
// Without one, no grace period is set: if no container runs, or the kubelet is gone and none ever ran, nobody would
// confirm the end.
func (p Pods) Delete(ctx context.Context, in decide.Input, o workerpod.Observation) error {
	uid := types.UID(o.UID)
	opts := []client.DeleteOption{client.Preconditions{UID: &uid}}
	if !o.Occupies || in.Node.Lost && o.State == workerpod.Pending {
		opts = append(opts, client.GracePeriodSeconds(0))
	}
	if err := ignoreGone(p.Writer.Delete(ctx, p.named(o.Name), opts...), apierr.Delete); err != nil {
		return fmt.Errorf("delete pod %s: %w", o.Name, err)
	}
	return nil
}

// Force deletes a pod without grace, on condition that it is still the one observed.
func (p Pods) Force(ctx context.Context, o workerpod.Observation) error {
	uid := types.UID(o.UID)
	err := p.Writer.Delete(ctx, p.named(o.Name), client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if err = ignoreGone(err, apierr.Delete); err != nil {
		return fmt.Errorf("delete pod %s without grace: %w", o.Name, err)
	}
	return nil
}

func (p Pods) named(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = p.Namespace, name
	return pod
}

// ConflictRetries is how often a write with a conflict is decided again at once, on a fresh read, before the object
// goes back into the queue. Conflicts are common on a node that has just joined.
const ConflictRetries = 8

// ignoreGone drops the errors which mean that the object with the UID is gone, or has another version. An event of the
// pod follows.
func ignoreGone(err error, verb apierr.Verb) error {
	switch apierr.Of(err, verb) {
	case apierr.Gone, apierr.Conflict:
		return nil
	}
	return err
}

// RetryLater is the error of a request that the API server rejected and may accept later. The request is sent again
// after that time. Until then nothing is written for it.
type RetryLater struct {
	After time.Duration
	// For is how long the request has been rejected, and Why is the API server's message.
	For time.Duration
	Why string
}

// Error implements error.
func (e RetryLater) Error() string {
	return fmt.Sprintf("the API server rejected a request; it is sent again in %s", e.After)
}
