//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// A verified node is full of ordinary pods when it is verified again. The kubelet would kill one of them for a worker
// with system-node-critical priority that is bound directly (k8s.io/kubernetes pkg/kubelet/preemption). Our worker
// waits instead, which is inconclusive. The node is verified once a pod fits.
func (s *suite) fullNode(ctx context.Context, t *testing.T) {
	const name, room = "node-f", 2
	t.Cleanup(func() { s.removeNode(context.WithoutCancel(ctx), t, name) })
	s.addNodes(ctx, t, realnode.NodeOptions{MaxPods: room}, name)
	s.awaitVerified(ctx, t, 60*time.Second, name)
	s.noWorkersLeft(ctx, t)

	uids := map[string]types.UID{}
	for i := range room {
		pod, err := s.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("full-%d", i)},
			Spec: corev1.PodSpec{
				NodeSelector:                  map[string]string{corev1.LabelHostname: name},
				TerminationGracePeriodSeconds: new(int64),
				Containers:                    []corev1.Container{{Name: "pause", Image: realnode.PauseImage, ImagePullPolicy: corev1.PullIfNotPresent}},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		uids[pod.Name] = pod.UID
	}
	running := func() error {
		for pod, uid := range uids {
			have, err := s.client.CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if have.UID != uid || have.Status.Phase != corev1.PodRunning || have.DeletionTimestamp != nil {
				return fmt.Errorf("%s is %s (%s: %s), deletion %v", pod, have.Status.Phase, have.Status.Reason, have.Status.Message, have.DeletionTimestamp)
			}
		}
		return nil
	}
	eventually(ctx, t, 30*time.Second, "the node is full of ordinary pods", running)

	before, err := s.marks(ctx, name)
	must(t, err)
	s.reverify(ctx, t, name)
	eventually(ctx, t, 60*time.Second, "the node is inconclusive for want of room", func() error {
		must(t, running())
		m, err := s.marks(ctx, name)
		must(t, err)
		if m.recorded.LastOutcome != "inconclusive" || m.recorded.LastReason != "Unschedulable" || m.recorded.Attempts != 0 {
			return fmt.Errorf("it is not: %s", m)
		}
		return nil
	})
	throughout(ctx, t, 5*time.Second, "no workload is displaced", running)

	must(t, s.client.CoreV1().Pods("default").Delete(ctx, "full-0", metav1.DeleteOptions{}))
	delete(uids, "full-0")
	eventually(ctx, t, 60*time.Second, "the node is verified once there is room", func() error {
		must(t, running())
		m, err := s.marks(ctx, name)
		must(t, err)
		if m.recorded.Sequence <= before.recorded.Sequence+1 {
			return fmt.Errorf("no further attempt is recorded: %s", m)
		}
		return s.verified(ctx, name)
	})
	must(t, s.client.CoreV1().Pods("default").Delete(ctx, "full-1", metav1.DeleteOptions{}))
	s.watch.check(t)
}
