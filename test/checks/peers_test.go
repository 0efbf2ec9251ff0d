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
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
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
	t.Run("zones of nodes", func(t *testing.T) { testZonesOfNodes(t, p, port) })
	for _, c := range []struct {
		settings, reason string
		says             []string
	}{
		{"sample: 3, failPercent: 50", "", []string{"2 of 3 peers in 2 zones connect"}},
		{"sample: 2", "PeersUnreachable", []string{"1 of 2 peers in 2 zones connect", "peer-down-1 on node down-1, zone down", "refused the connection"}},
		{"sample: 3, failPercent: 30", "PeersUnreachable", []string{"2 of 3"}},
		{"minPeers: 4", "TooFewPeers", []string{"3 ready pods on other nodes match app=peer"}},
	} {
		r := single(t, p.run(t, fmt.Sprintf("worker: {checks: [{name: it, type: peers, peers: {selector: app=peer, port: %d, %s}}]}", port, c.settings), nil))
		want := result.Passed
		if c.reason != "" {
			want = result.Failed
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

// testZonesOfNodes takes the zones off the pods, as before Kubernetes 1.35, and looks at the
// nodes, if it may.
func testZonesOfNodes(t *testing.T, p *pod, port int) {
	ctx := context.Background()
	zones := map[string]string{}
	patch := func(name, zone string) {
		body := []byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":` + zone + `}}}`)
		if _, err := p.client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := p.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=peer"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		zone := pod.Labels["topology.kubernetes.io/zone"]
		if zone == "" {
			t.Fatalf("the API server did not copy the zone to pod %s", pod.Name)
		}
		zones[pod.Name] = `"` + zone + `"`
		patch(pod.Name, "null")
	}
	sampled := func() string {
		return single(t, p.run(t, fmt.Sprintf("worker: {checks: [{name: it, type: peers, peers: {selector: app=peer, port: %d, sample: 2, failPercent: 100}}]}", port), nil)).Message
	}
	if m := sampled(); !strings.Contains(m, "in 1 zone ") {
		t.Errorf("without the right to list nodes: %s", m)
	}
	name := metav1.ObjectMeta{Name: "worker"}
	must(t, p.client.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}}})
	must(t, p.client.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "worker"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "worker"}}})
	for n := 0; !strings.Contains(sampled(), "1 of 2 peers in 2 zones connect"); n++ { // the authorizer sees the binding a moment later
		if n == 100 {
			t.Fatalf("with the right to list nodes: %s", sampled())
		}
		time.Sleep(50 * time.Millisecond)
	}
	for name, zone := range zones {
		patch(name, zone)
	}
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
