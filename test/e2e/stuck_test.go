//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// How long a worker's end is waited for: its pods' grace and a minute, and a minute more until that must be seen.
const (
	impatientLabel = "e2e.test/impatient"
	stuckGrace     = 5 * time.Second
	stuckAfter     = stuckGrace + time.Minute
	saidWithin     = time.Minute
)

// A worker's shim is stopped while it runs: to the kubelet the container runs for good and cannot be ended, and the
// node is Ready all the while. The worker counts as one that ran too long; then the node says that it waits for it, and
// at last that it is stuck, which exhausts the node. Beside it another node is verified as ever. Once the shim goes on,
// the node is verified again.
func (s *suite) containerStuck(ctx context.Context, t *testing.T) {
	const name, other, control = "node-h", "node-a", "node-b"
	t.Cleanup(func() { s.removeNode(context.WithoutCancel(ctx), t, name) })
	s.addNodes(ctx, t, realnode.NodeOptions{Labels: map[string]string{impatientLabel: "true"}}, name)
	s.awaitVerified(ctx, t, 60*time.Second, name)
	// A failure of a node that worked counts only beside a pass on a verified node of the same pool and profile.
	s.kubectl(ctx, t, "label", "node", control, impatientLabel+"=true")
	t.Cleanup(func() { s.kubectl(context.WithoutCancel(ctx), t, "label", "node", control, impatientLabel+"-") })
	dns, worker := s.slowly(ctx, t, name)
	shim, err := s.node(name).StopShim(ctx, s.containerOf(ctx, t, worker.name))
	must(t, err)
	t.Cleanup(func() { must(t, shim.Recover(context.WithoutCancel(ctx))) })
	must(t, dns.Recover(ctx)) // whatever the worker finds out, nobody hears of it

	deleted := s.awaitTerminating(ctx, t, worker.name)
	eventually(ctx, t, saidWithin, name+" says that its worker does not end", func() error {
		return s.says(ctx, name, worker.name, "terminating")
	})
	began := time.Now()
	s.reverify(ctx, t, other)
	eventually(ctx, t, 50*time.Second, other+" is verified beside it", func() error { return s.verified(ctx, other) })
	t.Logf("%s was verified within %s beside it", other, time.Since(began).Round(100*time.Millisecond))
	until := time.Until(deleted.Add(stuckAfter + saidWithin))
	eventually(ctx, t, until, name+" says that its worker is stuck", func() error {
		return s.says(ctx, name, "WorkerStuck")
	})
	t.Logf("%s was found stuck %s after its deletion", worker.name, time.Since(deleted).Round(100*time.Millisecond))
	m, err := s.marks(ctx, name)
	must(t, err) // it was verified once, and is not deleted
	if m.recorded.LastReason != "WorkerStuck" || m.recorded.LastOutcome != "failed" {
		t.Errorf("the record does not say so: %s", m)
	}
	must(t, s.readyAllAlong(ctx, name, worker.created))
	if pods := s.watch.of(name, worker.created); len(pods) != 1 {
		t.Errorf("workers were started beside it: %+v", pods)
	}

	must(t, shim.Recover(ctx))
	s.awaitVerified(ctx, t, 90*time.Second, name)
	s.watch.check(t)
}

// containerOf is the ID of a worker's container.
func (s *suite) containerOf(ctx context.Context, t *testing.T, pod string) (id string) {
	t.Helper()
	eventually(ctx, t, 10*time.Second, pod+" has a container that runs", func() error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := p.Status.ContainerStatuses; len(c) > 0 && c[0].State.Running != nil {
			_, id, _ = strings.Cut(c[0].ContainerID, "://")
			return nil
		}
		return fmt.Errorf("it has %+v", p.Status.ContainerStatuses)
	})
	return id
}

// awaitTerminating waits until somebody wants a pod to end, and returns since when.
func (s *suite) awaitTerminating(ctx context.Context, t *testing.T, pod string) (since time.Time) {
	t.Helper()
	eventually(ctx, t, 60*time.Second, pod+" is to end", func() error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp == nil {
			err = errors.New("it is not")
		}
		since = time.Now()
		return err
	})
	return since
}

// says reports whether the condition of a node that is not verified has all of the parts.
func (s *suite) says(ctx context.Context, name string, parts ...string) error {
	m, err := s.marks(ctx, name)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if m.status == corev1.ConditionTrue || !strings.Contains(m.reason+": "+m.message, part) {
			return fmt.Errorf("nothing of %q: %s", part, m)
		}
	}
	return nil
}

// readyAllAlong reports whether the kubelet's Ready has not changed since: otherwise the case shows nothing.
func (s *suite) readyAllAlong(ctx context.Context, name string, since time.Time) error {
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || c.LastTransitionTime.After(since)) {
			return fmt.Errorf("the node was not Ready all along: %+v", c)
		}
	}
	return nil
}
