package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
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
		v.changed("node/"+name, message)
	}
	if l := v.leader(ctx); l.Dead && v.output == "" {
		fmt.Fprintln(&v.out, plain(l.line(v.now)))
	}
	return errors.Join(errs...)
}

// reverify decides on a fresh read and again whenever the node changed before the patch.
func (v *invocation) reverify(ctx context.Context, name string) (message string, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		s, err := v.cluster.node(ctx, name)
		if err != nil {
			return err
		}
		var patch []byte
		patch, message, err = s.reverify(v.now)
		if err != nil || patch == nil {
			return err
		}
		_, err = v.cluster.core.Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-node-ready"})
		return err
	})
	return message, err
}

// reverify is the patch that makes the controller verify the node now; none where an attempt is under way. The record is
// wound back and not removed: it also holds the number of the last attempt, so that none is counted twice, and that the
// node was verified before, so that it is not deleted as one that never was.
func (s subject) reverify(now time.Time) (patch []byte, message string, err error) {
	f, r := s.in.Node, s.in.Node.Record
	switch current := decide.CurrentPod(r, s.in.Pods); {
	case f.Deleting:
		return nil, "", errors.New("it is being deleted")
	case !decide.Eligible(s.in):
		return nil, "", fmt.Errorf("it is excluded from verification by nodeManagement.nodeSelector, the annotation %s, "+
			"as a control-plane or virtual node, or because it is not Linux", marks.AnnotationSkip)
	case current != nil && decide.NeedsVerification(s.in, now):
		return nil, fmt.Sprintf("attempt %d is under way already", current.Attempt.Number), nil
	}
	change := marks.Change{Record: marks.Record{NodeUID: f.UID, BootID: r.BootID, Sequence: r.Sequence,
		VerifiedTime: r.VerifiedTime, HistoryLost: r.HistoryLost, Concluded: r.Concluded}}
	if f.Labelled {
		change.Label = ptr.To(false)
	}
	return change.Patch(s.node, s.in.Config.Vocabulary()), fmt.Sprintf("attempt %d is due now", r.Sequence+1), nil
}

// logs prints the log of the attempt under way, else of the last worker that is still there.
func logs(ctx context.Context, v *invocation) error {
	s, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	at := s.lastWorker()
	if at < 0 {
		text := fmt.Sprintf("node %s has no worker pod; its status is %s", s.node.Name, s.status(v.now))
		if r := s.in.Node.Record; r.LastOutcome != "" {
			text += fmt.Sprintf(". Attempt %d (%s) is gone: the last failed worker is kept for worker.keepFailedSeconds, others are not", r.Sequence, r.LastOutcome)
		}
		return errors.New(text)
	}
	pod := s.pods[at]
	stream, err := v.cluster.core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: v.container, Follow: v.followLog}).Stream(ctx)
	if err != nil {
		if apierrors.IsBadRequest(err) && s.in.Pods[at].State == workerpod.Pending {
			return fmt.Errorf("worker %s/%s has not started: %w", pod.Namespace, pod.Name, err)
		}
		return err
	}
	defer func() { _ = stream.Close() }() // only read
	_, err = io.Copy(v.stream, stream)
	return err
}
