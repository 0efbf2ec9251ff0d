package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Pods are the effects on worker pods.
type Pods struct {
	Writer    client.Writer
	Namespace string
}

// Create creates a worker pod. One without a priority class, for a node that takes workloads, must not displace any:
// where the scheduler might have it do so, or that cannot be found out, it is bound directly. One that cannot be is
// refused: it has claims, or offered is false, which says that the node does not list an extended resource that the pod
// asks for, and a kubelet that does not know a resource admits the pod without it.
func (p Pods) Create(ctx context.Context, pod *corev1.Pod, offered bool) error {
	if pod.Spec.NodeName == "" && pod.Spec.PriorityClassName == "" {
		dryRun := pod.DeepCopy()
		err := p.Writer.Create(ctx, dryRun, client.DryRunAll)
		why := workerpod.ClaimsPreempt
		if !workerpod.HasClaims(pod) {
			why = workerpod.ResourcesPreempt
		}
		switch {
		case err == nil && !workerpod.MayPreempt(dryRun):
		case offered && !workerpod.HasClaims(pod):
			workerpod.Bind(pod)
		case err != nil:
			return err
		default:
			return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New(why))
		}
	}
	return p.Writer.Create(ctx, pod)
}

// Keep marks an ended pod that only stays for its logs. One that is gone is none.
func (p Pods) Keep(ctx context.Context, o workerpod.Observation) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, o.UID, workerpod.AnnotationRecorded)
	err := p.Writer.Patch(ctx, p.named(o.Name), client.RawPatch(types.MergePatchType, []byte(patch)))
	if err = ignoreReplaced(err); err != nil {
		return fmt.Errorf("mark pod %s: %w", o.Name, err)
	}
	return nil
}

// Delete deletes a pod, on condition that it is still the one observed. A container that may run is given its grace;
// where none runs, or the kubelet is gone and none ever did, nobody would confirm the end.
func (p Pods) Delete(ctx context.Context, in decide.Input, o workerpod.Observation) error {
	uid := types.UID(o.UID)
	opts := []client.DeleteOption{client.Preconditions{UID: &uid}}
	if !o.Occupies || in.Node.Lost && o.State == workerpod.Pending {
		opts = append(opts, client.GracePeriodSeconds(0))
	}
	if err := ignoreReplaced(p.Writer.Delete(ctx, p.named(o.Name), opts...)); err != nil {
		return fmt.Errorf("delete pod %s: %w", o.Name, err)
	}
	return nil
}

// Force deletes a pod without grace, on condition that it is still the one observed.
func (p Pods) Force(ctx context.Context, o workerpod.Observation) error {
	uid := types.UID(o.UID)
	err := p.Writer.Delete(ctx, p.named(o.Name), client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if err = ignoreReplaced(err); err != nil {
		return fmt.Errorf("delete pod %s without grace: %w", o.Name, err)
	}
	return nil
}

func (p Pods) named(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = p.Namespace, name
	return pod
}

// ConflictRetries is how often a write that another writer overtook is decided again at once, on a fresh read, before
// the object goes back into the queue: a node that just joined is written by many.
const ConflictRetries = 8

// ignoreReplaced drops the errors by which the API server answers that the object of the UID is gone: NotFound; and,
// where another object has its name, Conflict, or Invalid for a patch, since a UID cannot change.
func ignoreReplaced(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// Refusal is the API server's message where it refuses a request and will do so again until somebody changes a
// permission or an admission policy; empty for a nil error and for every other one, which may pass: no answer, a
// conflict, an object that is not there or expired, too many requests, an error of the server.
func Refusal(err error) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return ""
	}
	switch s := answer.Status(); s.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		return s.Message
	}
	return ""
}
