//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// All nodes restart, as after a power cut, while cluster DNS has no pod. All fail, and what all fail for closes no gate:
// a pod that is made meanwhile, and tolerates no taint, is scheduled and runs. Once DNS is back, all nodes are verified
// soon.
func (s *suite) sharedOutage(ctx context.Context, t *testing.T) {
	names := []string{"node-a", "node-b", "node-c"}
	dns := func(replicas int) {
		s.kubectl(ctx, t, "-n", "kube-system", "scale", "deployment", "coredns", fmt.Sprintf("--replicas=%d", replicas))
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.kubectl(ctx, t, "-n", "kube-system", "scale", "deployment", "coredns", "--replicas=2")
		s.kubectl(ctx, t, "-n", "default", "delete", "pod", "meanwhile", "--ignore-not-found", "--grace-period=1")
	})
	before := map[string]marks{}
	for _, name := range names {
		m, err := s.marks(ctx, name)
		must(t, err)
		before[name] = m
	}
	open := func() (all error) {
		for _, name := range names {
			m, err := s.marks(ctx, name)
			must(t, err)
			if m.tainted || !m.labelled {
				t.Fatalf("%s is closed: %s", name, m)
			}
			if m.bootID == before[name].bootID || m.recorded.LastReason != "SharedFailure" || m.recorded.Attempts != 0 {
				all = errors.Join(all, fmt.Errorf("%s: %s", name, m))
			}
		}
		return all
	}

	dns(0)
	reboots := make(chan error, len(names))
	for _, name := range names {
		go func() { reboots <- s.node(name).Reboot(ctx) }()
	}
	for range names {
		must(t, <-reboots)
	}
	eventually(ctx, t, 90*time.Second, "every node says that its failure is shared", open)
	for _, name := range names {
		must(t, s.cluster.AwaitNode(ctx, name, 20*time.Second))
	}
	s.apply(ctx, t, `{apiVersion: v1, kind: Pod, metadata: {name: meanwhile, namespace: default},
		spec: {terminationGracePeriodSeconds: 1, containers: [{name: pause, image: `+realnode.PauseImage+`, imagePullPolicy: IfNotPresent}]}}`)
	s.kubectl(ctx, t, "-n", "default", "wait", "pod/meanwhile", "--for=condition=Ready", "--timeout=30s")
	throughout(ctx, t, 45*time.Second, "no gate closes, and no label goes", func() error { _ = open(); return nil })

	dns(2)
	since := time.Now()
	s.kubectl(ctx, t, "-n", "kube-system", "wait", "deployment/coredns", "--for=condition=Available", "--timeout=60s")
	answered := time.Now()
	for _, name := range names {
		eventually(ctx, t, 2*time.Minute-time.Since(answered), name+" is verified", func() error {
			m, err := s.marks(ctx, name)
			must(t, err)
			if m.tainted || !m.labelled {
				t.Fatalf("%s is closed: %s", name, m)
			}
			return s.verified(ctx, name)
		})
	}
	t.Logf("DNS was back after %s; all nodes were verified %s later", answered.Sub(since).Round(time.Second), time.Since(answered).Round(time.Second))
	if pod := s.kubectl(ctx, t, "-n", "default", "get", "pod", "meanwhile", "-o", "jsonpath={.status.phase}"); pod != string(corev1.PodRunning) {
		t.Errorf("the pod that ran meanwhile is %s", pod)
	}
	s.noWorkersLeft(ctx, t)
	s.watch.check(t)
}
