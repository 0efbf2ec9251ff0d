package checks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// testPeers puts pods with addresses of this machine on nodes in two zones: those of zone
// "up" are listened for, those of zone "down" are not.
func testPeers(t *testing.T, p *pod) {
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	for _, n := range []struct{ node, zone, ip string }{
		{"node-a", "up", "127.0.0.9"}, {"up-1", "up", "127.0.0.2"}, {"up-2", "up", "127.0.0.2"}, {"down-1", "down", "127.0.0.3"},
	} {
		p.createPeer(t, n.node, n.zone, n.ip)
	}
	t.Run("of a Service", func(t *testing.T) { testPeersOfService(t, p) })
	for _, c := range []struct {
		settings, reason string
		says             []string
	}{
		{"sample: 3, failPercent: 50", "PeersUnreachable", []string{"2 of 3 peers in 2 zones connect"}},
		{"sample: 2", "PeersUnreachable", []string{"1 of 2 peers in 2 zones connect", "peer-down-1 on node down-1, zone down", "refused the connection"}},
		{"sample: 3, failPercent: 30", "PeersUnreachable", []string{"2 of 3"}},
		{"minPeers: 4", "TooFewPeers", []string{"found 3 ready pods on other nodes (selector app=peer in namespace default)"}},
	} {
		r := single(t, p.run(t, fmt.Sprintf("worker: {checks: [{name: it, type: peers, timeoutSeconds: 2, "+
			"peers: {selector: app=peer, port: %d, %s}}]}", port, c.settings), nil))
		want := result.Failed
		switch {
		case c.reason == "TooFewPeers":
			want = result.Inconclusive
		case c.settings == "sample: 3, failPercent: 50":
			want = result.Warning // one that does not connect is too few
		}
		if r.Outcome != want || r.Reason != c.reason {
			t.Errorf("%s: got %s %s: %s", c.settings, r.Outcome, r.Reason, r.Message)
		}
		for _, s := range c.says {
			if !strings.Contains(r.Message, s) {
				t.Errorf("%s: %q does not say %q", c.settings, r.Message, s)
			}
		}
	}
}

// testPeersOfService finds the same nodes by a Service's EndpointSlices. An endpoint cannot have a loopback address, so
// it is this machine's.
func testPeersOfService(t *testing.T, p *pod) {
	ip := machineAddress(t)
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "peers-a", Labels: map[string]string{discoveryv1.LabelServiceName: "peers"}},
		AddressType: discoveryv1.AddressTypeIPv4}
	for _, n := range []struct {
		node, zone string
		ready      bool
	}{{"node-a", "up", true}, {"up-1", "up", true}, {"down-1", "down", true}, {"up-2", "up", false}} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &n.node, Zone: &n.zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &n.ready}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "peer-" + n.node, UID: types.UID(n.node)}})
	}
	must(t, p.client.DiscoveryV1().EndpointSlices("default").Create, slice)
	port := listener.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		settings     string
		outcome      result.Outcome
		reason, says string
	}{
		{"service: peers", result.Passed, "", "2 of 2 peers in 2 zones connect"},
		{"service: peers, minPeers: 3", result.Inconclusive, "TooFewPeers", "found 2 ready pods on other nodes (Service default/peers), expected at least 3"},
		{"service: nothing", result.Inconclusive, "ServiceNotFound", "Service default/nothing does not exist"},
		{"service: nothing, selector: app=none", result.Warning, "TooFewPeers", "found no running pod (selector app=none in namespace default)"},
	} {
		r := single(t, p.run(t, fmt.Sprintf("worker: {checks: [{name: it, type: peers, peers: {%s, port: %d}}]}", c.settings, port), nil))
		if r.Outcome != c.outcome || r.Reason != c.reason || !strings.Contains(r.Message, c.says) {
			t.Errorf("%s: got %s %s: %s", c.settings, r.Outcome, r.Reason, r.Message)
		}
	}
}

// machineAddress is an IPv4 address of this machine that an endpoint may have.
func machineAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	missing.Skip(t, "an IPv4 address other than loopback", "connect the machine to a network")
	return ""
}

func (p *pod) createPeer(t *testing.T, node, zone, ip string) {
	t.Helper()
	must(t, p.client.CoreV1().Nodes().Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"topology.kubernetes.io/zone": zone}}})
	// The binding, through which the API server copies the zone to the pod, and not a pod
	// that is created bound, is how peers come to their nodes.
	ctx, pods := context.Background(), p.client.CoreV1().Pods("default")
	var created *corev1.Pod
	for try := 0; ; try++ {
		created = must(t, pods.Create, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "peer-" + node, Labels: map[string]string{"app": "peer"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		})
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: created.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var err error
		if created, err = pods.Get(ctx, created.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if created.Labels[corev1.LabelTopologyZone] == zone {
			break
		}
		if try == 100 {
			t.Fatalf("the API server did not copy the zone to pod %s", created.Name)
		}
		// Its admission sees a node a moment after it was made.
		if err := pods.Delete(ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	created.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if _, err := pods.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// otherCA is an authority that has nothing to do with the cluster.
func otherCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "other"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
