package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/kube-node-ready/kube-node-ready/internal/nodestatus"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// reverify makes the controller verify nodes now.
func reverify(ctx context.Context, v *invocation) error {
	var errs []error
	for _, name := range v.args {
		message, err := v.reverify(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
			continue
		}
		fmt.Fprintf(&v.out, "node/%s: %s\n", name, message)
	}
	return errors.Join(errs...)
}

// reverify decides on a fresh read and again whenever the node changed before the patch.
func (v *invocation) reverify(ctx context.Context, name string) (message string, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, pods, err := v.cluster.node(ctx, name)
		if err != nil {
			return err
		}
		var patch []byte
		patch, message, err = nodestatus.Reverify(v.cluster.config, n, pods, v.now)
		if err != nil || patch == nil {
			return err
		}
		_, err = v.cluster.core.Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-node-ready"})
		return err
	})
	return message, err
}

// logs prints the log of the attempt under way, else of the last worker that is still there.
func logs(ctx context.Context, v *invocation) error {
	n, pods, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	pod := lastWorker(pods)
	if pod == nil {
		s := nodestatus.Of(v.cluster.config, n, pods, v.now)
		text := fmt.Sprintf("node %s has no worker pod; its status is %s", n.Name, s.Status)
		if s.Last != nil {
			text += fmt.Sprintf(". Attempt %d (%s) is gone: the last failed worker is kept for worker.keepFailedSeconds, others are not", s.Last.Number, s.Last.Outcome)
		}
		return errors.New(text)
	}
	stream, err := v.cluster.core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: v.container, Follow: v.follow}).Stream(ctx)
	if err != nil {
		if apierrors.IsBadRequest(err) && pod.State == workerpod.Pending {
			return fmt.Errorf("worker %s/%s has not started: %w", pod.Namespace, pod.Name, err)
		}
		return err
	}
	defer func() { _ = stream.Close() }() // only read
	_, err = io.Copy(v.stream, stream)
	return err
}

// lastWorker is the verify pod with the highest attempt.
func lastWorker(pods []nodestatus.Pod) *nodestatus.Pod {
	var last *nodestatus.Pod
	for i, p := range pods {
		if p.Purpose == workerpod.PurposeVerify && (last == nil || p.Attempt > last.Attempt) {
			last = &pods[i]
		}
	}
	return last
}
