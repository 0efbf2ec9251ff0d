// Package checks runs the worker's checks, in this process, against a real API server and CoreDNS.
package checks

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// pod is what a worker finds around it: a real API server, a real CoreDNS, and a service
// account with the rights that docs/reference/checks.md lists.
type pod struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	dir     string
	env     map[string]string
}

func startPod(t *testing.T) *pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{WithoutScheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	dns, err := c.StartDNS(ctx, map[string]string{"known.example": "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{cluster: c, client: client, dir: t.TempDir()}
	must(t, client.CoreV1().ServiceAccounts("default").Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	p.grant(t, "default", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	p.grant(t, "kube-system", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}})

	kubeconfig, err := c.KubeconfigFor(ctx, "default", "worker")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.dir, "token"), config.BearerToken)
	write(t, filepath.Join(p.dir, "ca.crt"), string(c.CA()))
	p.env = map[string]string{
		worker.EnvNodeName: "node-a", worker.EnvPodNamespace: "default",
		worker.EnvServiceHost: c.Host(), worker.EnvServicePort: strconv.Itoa(c.Port()),
		worker.EnvServiceAccountDir: p.dir, worker.EnvResolvConf: filepath.Join(p.dir, "resolv.conf"),
	}
	p.useDNS(t, netip.MustParseAddrPort(dns))
	// CoreDNS is ready before it listens.
	p.await(t, "worker: {checks: [{name: it, type: dns, dns: {protocols: [udp, tcp]}}]}")
	return p
}

func (p *pod) useDNS(t *testing.T, server netip.AddrPort) {
	t.Helper()
	write(t, filepath.Join(p.dir, "resolv.conf"), fmt.Sprintf(
		"nameserver [%s]:%d\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5 timeout:1\n", server.Addr(), server.Port()))
}

func (p *pod) grant(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "worker", Namespace: namespace}
	must(t, p.client.RbacV1().Roles(namespace).Create, &rbacv1.Role{ObjectMeta: name, Rules: rules})
	must(t, p.client.RbacV1().RoleBindings(namespace).Create, &rbacv1.RoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "worker"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "worker"}}})
}

// run verifies with a configuration in YAML.
func (p *pod) run(t *testing.T, yaml string, env map[string]string) result.Report {
	t.Helper()
	config, err := worker.Load([]byte(yaml), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return worker.Run(context.Background(), worker.Options{Config: config, Getenv: func(name string) string {
		if v, ok := env[name]; ok {
			return v
		}
		return p.env[name]
	}})
}

func must[T any](t *testing.T, create func(context.Context, T, metav1.CreateOptions) (T, error), object T) T {
	t.Helper()
	created, err := create(context.Background(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// single is the report's only check.
func single(t *testing.T, r result.Report) result.Check {
	t.Helper()
	if len(r.Checks) != 1 {
		t.Fatalf("want one check, got %+v", r)
	}
	return r.Checks[0]
}

// TestOnARealCluster runs every type of check that needs a cluster against one.
func TestOnARealCluster(t *testing.T) {
	p := startPod(t)

	t.Run("built-ins", func(t *testing.T) {
		r := p.run(t, "worker: {dnsTestDomains: [known.example]}", nil)
		if r.Outcome != result.Passed || len(r.Checks) != 7 || r.Node != "node-a" {
			t.Errorf("got %+v", r)
		}
		// This cluster's DNS Service has no endpoints.
		if w := r.Checks[0]; w.Name != "dns-endpoints" || w.Outcome != result.Warning || w.Reason != "NoReadyEndpoints" {
			t.Errorf("got %+v", w)
		}
	})
	p.createService(t, "headless", corev1.ClusterIPNone, "192.0.2.10", "192.0.2.11")
	lying := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{
		"kubernetes.default.svc.cluster.local.": {"A 10.255.255.254"},
		"headless.default.svc.cluster.local.":   {"A 10.255.255.253"},
	}})

	for _, c := range []struct {
		name, spec   string
		reason, says string
		env          map[string]string
		outcome      result.Outcome
	}{
		{name: "API, both ways", spec: "type: kubernetesAPI", says: "identifies the worker as system:serviceaccount:default:worker"},
		{name: "API, version", spec: "type: kubernetesAPI, kubernetesAPI: {path: /version, via: [address]}", says: "answers /version"},
		{name: "API, another user", spec: "type: kubernetesAPI, kubernetesAPI: {via: [address], expectUser: someone}", reason: "UnexpectedUser",
			says: "identifies the worker as system:serviceaccount:default:worker, expected someone"},
		{name: "discovery, cluster IP and SRV", spec: "type: serviceDiscovery, serviceDiscovery: {srv: [https]}", says: "1 ready endpoint,"},
		{name: "discovery, headless", spec: "type: serviceDiscovery, serviceDiscovery: {service: headless, minReadyEndpoints: 2}", says: "2 ready endpoints"},
		{name: "discovery, too few", spec: "type: serviceDiscovery, serviceDiscovery: {service: headless, minReadyEndpoints: 3}", reason: "NoReadyEndpoints",
			says: "2 ready endpoints of 2, expected at least 3"},
		{name: "discovery, none", spec: "type: serviceDiscovery, serviceDiscovery: {namespace: kube-system, service: kube-dns}", reason: "NoReadyEndpoints"},
		{name: "discovery, no such Service", spec: "type: serviceDiscovery, serviceDiscovery: {service: missing}", reason: "ServiceNotFound", says: "default/missing"},
		{name: "discovery, no such port", spec: "type: serviceDiscovery, serviceDiscovery: {srv: [http]}", reason: "ServiceNotFound", says: "no port named http"},
		{name: "discovery, forbidden", spec: "type: serviceDiscovery, serviceDiscovery: {namespace: kube-public, service: any}", reason: "Forbidden",
			says: "lacks a permission"},
		{name: "DNS, through the Service", spec: "type: dns, dns: {resolver: service, protocols: [udp, tcp]}", says: "over UDP and TCP"},
		{name: "DNS, no endpoints", spec: "type: dns, dns: {resolver: endpoints}", reason: "NoReadyEndpoints", says: "kube-system/kube-dns"},
		{name: "DNS, no such Service", spec: "type: dns, dns: {resolver: service, service: default/nothing}", reason: "ServiceNotFound"},
		{name: "clock", spec: "type: clock", says: "ahead of the API server"},
		{name: "MTU to the API server", spec: "type: mtu", says: "in one segment"},
		{name: "MTU, a small hello", spec: "type: mtu, mtu: {payloadBytes: 1201}", says: "1201 bytes"},
		{name: "network", spec: "type: tcp", says: "connects"},
		{name: "no peers", spec: "type: peers, peers: {selector: app=none, port: 80}", reason: "TooFewPeers", says: "none to connect to", outcome: result.Warning},
		{name: "too few peers", spec: "type: peers, peers: {selector: app=none, port: 80, minPeers: 1}", reason: "TooFewPeers", outcome: result.Inconclusive},
		{name: "peers, forbidden", spec: "type: peers, peers: {selector: app=none, port: 80, namespace: kube-system}", reason: "Forbidden"},
		{name: "DNS lies about the Service", spec: "type: serviceDiscovery", reason: "ServiceDNSMismatch", says: "DNS answers 10.255.255.254",
			env: map[string]string{worker.EnvResolvConf: p.resolvConf(t, lying)}},
		{name: "DNS lies about a headless Service", spec: "type: serviceDiscovery, serviceDiscovery: {service: headless}", reason: "ServiceDNSMismatch",
			says: "DNS answers 10.255.255.253", env: map[string]string{worker.EnvResolvConf: p.resolvConf(t, lying)}},
		{name: "another CA", spec: "type: kubernetesAPI, kubernetesAPI: {via: [address]}", reason: "UntrustedAuthority",
			env: map[string]string{worker.EnvServiceAccountDir: p.account(t, "", string(otherCA(t)))}},
		{name: "a token that is not accepted", spec: "type: kubernetesAPI, kubernetesAPI: {via: [address]}", reason: "Unauthorized", says: "401",
			env: map[string]string{worker.EnvServiceAccountDir: p.account(t, "not.a.token", "")}},
		{name: "nothing listens", spec: "type: kubernetesAPI, kubernetesAPI: {via: [address]}", reason: "ConnectionRefused",
			env: map[string]string{worker.EnvServicePort: closedPort(t)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := single(t, p.run(t, "worker: {checks: [{name: it, timeoutSeconds: 2, "+c.spec+"}]}", c.env))
			want := result.Passed
			switch c.reason {
			case "":
			case "ServiceNotFound", "Forbidden", "Unauthorized", "NoReadyEndpoints":
				want = result.Inconclusive
			default:
				want = result.Failed
			}
			if c.outcome != "" {
				want = c.outcome
			}
			if got.Outcome != want || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
				t.Errorf("got %s %q: %s; want %q with %q", got.Outcome, got.Reason, got.Message, c.reason, c.says)
			}
		})
	}
	t.Run("dry run with a kubeconfig", func(t *testing.T) {
		kubeconfig, err := p.cluster.KubeconfigFor(context.Background(), "default", "worker")
		if err != nil {
			t.Fatal(err)
		}
		r := worker.Run(context.Background(), worker.Options{DryRun: true, Kubeconfig: kubeconfig, Getenv: func(name string) string {
			return map[string]string{worker.EnvResolvConf: p.env[worker.EnvResolvConf]}[name]
		}, Config: worker.Config{TimeoutSeconds: 20}})
		if r.Outcome != result.Passed || r.Checks[len(r.Checks)-1].Outcome != result.Passed || len(r.Checks) != 6 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("peers", func(t *testing.T) { testPeers(t, p) })
}

// createService makes a Service without a selector, and a slice of its endpoints.
func (p *pod) createService(t *testing.T, name, clusterIP string, addresses ...string) {
	t.Helper()
	must(t, p.client.CoreV1().Services("default").Create, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To[int32](80)}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	must(t, p.client.DiscoveryV1().EndpointSlices("default").Create, slice)
	if clusterIP != corev1.ClusterIPNone {
		return
	}
	// CoreDNS serves what its watch has brought.
	p.await(t, "worker: {checks: [{name: it, type: serviceDiscovery, serviceDiscovery: {service: "+name+"}}]}")
}

// await waits until a configuration's checks pass.
func (p *pod) await(t *testing.T, yaml string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		r := p.run(t, yaml, nil)
		if r.Outcome == result.Passed {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never passed: %+v", r)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *pod) resolvConf(t *testing.T, server netip.AddrPort) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, path, fmt.Sprintf("nameserver [%s]:%d\n", server.Addr(), server.Port()))
	return path
}

// account is a copy of the service account's directory with other contents.
func (p *pod) account(t *testing.T, token, ca string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"token": token, "ca.crt": ca} {
		if content == "" {
			data, err := os.ReadFile(filepath.Join(p.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			content = string(data)
		}
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
