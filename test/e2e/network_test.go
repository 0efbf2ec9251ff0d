//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// clusterChecks are the checks of every run (testdata/values.yaml).
var clusterChecks = []string{"dns", "dns-endpoints", "api", "network", "service-discovery", "mtu", "clock"}

func without(names []string, left ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(left, name) })
}

// broken verifies node-b while a fault lasts, compares the worker's report with what the fault
// touches, takes the fault back, and sees the node recover by itself.
func (s *suite) broken(ctx context.Context, t *testing.T, fault *realnode.Fault, err error, first string, fails []string, meanwhile ...func()) {
	t.Helper()
	const name = "node-b"
	must(t, err)
	t.Cleanup(func() { must(t, fault.Recover(context.WithoutCancel(ctx))) })
	before, err := s.marks(ctx, name)
	must(t, err)
	s.reverify(ctx, t, name)
	s.awaitFailing(ctx, t, 90*time.Second, name, first) // its second failure, and a control probe beside each
	s.awaitEvent(ctx, t, 5*time.Second, name, "VerificationFailed")
	checks := s.lastReport(ctx, t, name)
	s.lastFailed = checks
	expectChecks(t, checks, "failed", fails...)
	expectChecks(t, checks, "passed", without(clusterChecks, fails...)...)
	// It is retried: a second attempt follows the first without anyone's doing.
	eventually(ctx, t, 45*time.Second, name+" is tried again", func() error {
		m, err := s.marks(ctx, name)
		if err == nil && (m.recorded.Sequence < before.recorded.Sequence+2 || m.recorded.Attempts < 2) {
			err = fmt.Errorf("it is not: %s", m)
		}
		return err
	})
	for _, look := range meanwhile {
		look()
	}
	must(t, fault.Recover(ctx))
	s.awaitVerified(ctx, t, 60*time.Second, name)
	m, err := s.marks(ctx, name)
	must(t, err)
	if m.uid != before.uid {
		t.Error("the node was replaced")
	}
	s.watch.check(t)
}

// The node's way to port 53 is dropped: DNS fails and nothing else does.
func (s *suite) dnsDropped(ctx context.Context, t *testing.T) {
	fault, err := s.node("node-b").DropDNS(ctx)
	s.broken(ctx, t, fault, err, "dns", []string{"dns", "dns-endpoints", "service-discovery"}, func() {
		s.awaitAlert(ctx, t, "KubeNodeReadyRetriesExhausted")
	})
}

// kube-proxy programmed nothing: no ClusterIP is reached, neither the DNS Service's nor the API
// server's. What tells it from broken DNS (dnsDropped) is that api and network fail as well.
func (s *suite) servicesLost(ctx context.Context, t *testing.T) {
	fault, err := s.node("node-b").LoseServices(ctx)
	s.broken(ctx, t, fault, err, "", clusterChecks)
}

// A bad line is not a broken node: packets are lost at random, so an attempt may be too, but
// the node is verified before its retries run out.
func (s *suite) lossAndLatency(ctx context.Context, t *testing.T) {
	fault, err := s.node("node-b").Impair(ctx, 0.3, 300*time.Millisecond)
	must(t, err)
	t.Cleanup(func() { must(t, fault.Recover(context.WithoutCancel(ctx))) })
	before, err := s.marks(ctx, "node-b")
	must(t, err)
	began := time.Now()
	s.reverify(ctx, t, "node-b")
	var after marks
	eventually(ctx, t, 60*time.Second, "node-b is verified over the bad line", func() error {
		after, err = s.marks(ctx, "node-b")
		must(t, err)
		if after.recorded.Sequence <= before.recorded.Sequence {
			return fmt.Errorf("no further attempt is recorded: %s", after)
		}
		if after.reason == "RetriesExhausted" {
			t.Fatalf("the node is taken for broken: %s", after)
		}
		return s.verified(ctx, "node-b")
	})
	t.Logf("verified over the bad line in %.1f s, with %d attempts", time.Since(began).Seconds(), after.recorded.Sequence-before.recorded.Sequence)
	s.watch.check(t)
}

// One DNS pod is a ready endpoint and answers nobody. The Service's address works half of the
// time; asking each endpoint finds out which does not.
func (s *suite) deadDNSEndpoint(ctx context.Context, t *testing.T) {
	pods, err := s.client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	must(t, err)
	if len(pods.Items) != 2 {
		t.Fatalf("there are %d CoreDNS pods", len(pods.Items))
	}
	dead, alive := pods.Items[0], pods.Items[1]
	fault, err := s.node(dead.Spec.NodeName).DropDNSTo(ctx, dead.Status.PodIP)
	must(t, err)
	t.Cleanup(func() { must(t, fault.Recover(context.WithoutCancel(ctx))) })
	// Any node but the dead pod's own can tell.
	on := without(baseNodes, dead.Spec.NodeName)[0]
	s.reverify(ctx, t, on)
	var found checkState
	eventually(ctx, t, 60*time.Second, on+" fails dns-endpoints", func() error {
		m, err := s.marks(ctx, on)
		if err != nil {
			return err
		}
		// A control probe passes on the dead pod's own node, and fails on any other.
		if m.recorded.LastOutcome != "failed" && m.recorded.LastReason != "SharedFailure" {
			return fmt.Errorf("it does not: %s", m)
		}
		found = s.lastReport(ctx, t, on)["dns-endpoints"]
		if found.Outcome != "failed" {
			return fmt.Errorf("dns-endpoints: %+v", found)
		}
		return nil
	})
	if !strings.Contains(found.Message, dead.Status.PodIP) {
		t.Errorf("the message does not name the dead endpoint %s: %s", dead.Status.PodIP, found.Message)
	}
	slices, err := s.client.DiscoveryV1().EndpointSlices("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kube-dns"})
	must(t, err)
	ready := 0
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
				ready++
			}
		}
	}
	if ready != 2 {
		t.Errorf("%d of the endpoints are ready: Kubernetes noticed by itself, so the case proves nothing", ready)
	}
	t.Logf("dead %s, alive %s: %s", dead.Status.PodIP, alive.Status.PodIP, found.Message)
	must(t, fault.Recover(ctx))
	s.awaitVerified(ctx, t, 60*time.Second, on)
	s.watch.check(t)
}

// On the way out, a tunnel takes 50 bytes of every packet without telling the sender. Full packets vanish, and all
// smaller ones pass. DNS works and connections are accepted. But a TLS handshake with today's key exchange needs a full
// packet, so every client of the API server hangs. Only the check mtu shows the reason.
func (s *suite) mtuCut(ctx context.Context, t *testing.T) {
	fault, err := s.node("node-b").CutMTU(ctx, 1450)
	s.broken(ctx, t, fault, err, "", without(clusterChecks, "dns", "network"))
	if found := s.lastFailed["mtu"]; found.Reason != "PathMTUBlackHole" {
		t.Errorf("mtu says %+v", found)
	}
}
