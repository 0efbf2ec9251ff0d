package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// apiServer serves an API to a worker, and returns the environment of its pod.
func apiServer(t *testing.T, h http.HandlerFunc) map[string]string {
	t.Helper()
	authority := tlstest.NewAuthority(t)
	server := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), h)
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	dir := t.TempDir()
	for name, content := range map[string]string{"token": "t", "ca.crt": authority.PEM()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{worker.EnvServiceHost: host, worker.EnvServicePort: port, worker.EnvServiceAccountDir: dir}
}

// An API server that refuses would refuse any node.
func TestAnAPIServerThatRefuses(t *testing.T) {
	const api, discovery, broken = `{"name":"api","type":"kubernetesAPI","timeoutSeconds":1,"kubernetesAPI":{"via":["address"]}}`,
		`{"name":"sd","type":"serviceDiscovery","timeoutSeconds":1}`, `{"name":"broken","type":"file","file":{"path":"/no/such"}}`
	for _, c := range []struct {
		name, checks string
		status, code int
	}{
		{"500", api, 500, 4}, {"503", api, 503, 4}, {"429", api, 429, 4}, {"401", api, 401, 4}, {"403", api, 403, 4},
		{"RBAC, of a Service", discovery, 403, 4},
		{"no such Service", discovery, 404, 4},
		{"and a check that failed", api + "," + broken, 503, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
			env["KUBE_NODE_READY_CONFIG"] = `{"worker":{"checks":[` + c.checks + `]}}`
			code, stdout, stderr := runWorker(t, env, "--output", "json")
			report, err := result.Parse([]byte(strings.TrimSpace(stdout)))
			if code != c.code || err != nil {
				t.Errorf("exit code %d, want %d: %v\n%s%s", code, c.code, err, stdout, stderr)
			}
			for _, check := range report.Checks {
				if check.Name != "broken" && check.Outcome != result.Inconclusive {
					t.Errorf("got %+v", check)
				}
			}
		})
	}
}

// The built-in checks run on a node that cannot reach one of the two DNS servers. The other server's answers hide the
// fault. A warning names the unreachable server, and costs the node no more than a second.
func TestADNSServerOutOfReach(t *testing.T) {
	zone := map[string][]string{"kubernetes.default.svc.corp.example.": {"A 10.96.0.1"}}
	good := dnstest.StartAt(t, "127.0.0.1", dnstest.Behaviour{Zone: zone})
	dead := dnstest.StartAt(t, "127.0.0.3", dnstest.Behaviour{DropUDP: true, DropTCP: true})
	endpoint := func(ip string, port uint16, pod string) string {
		return fmt.Sprintf(`{"addressType":"IPv4","endpoints":[{"addresses":[%q],"targetRef":{"kind":"Pod","name":%q}}],
			"ports":[{"name":"dns","protocol":"UDP","port":%d},{"name":"dns-tcp","protocol":"TCP","port":%d}]}`, ip, pod, port, port)
	}
	env := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/apis/discovery.k8s.io/v1") {
		case "/readyz":
		case "/apis/authentication.k8s.io/v1/selfsubjectreviews":
			_, _ = fmt.Fprint(w, `{"status":{"userInfo":{"username":"worker"}}}`)
		case "/api/v1/namespaces/default/services/kubernetes":
			_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.1"}}`)
		case "/namespaces/default/endpointslices":
			_, _ = fmt.Fprint(w, `{"items":[{"endpoints":[{"addresses":["192.0.2.1"]}]}]}`)
		case "/api/v1/namespaces/kube-system/services/kube-dns":
			_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"127.0.0.1"}}`)
		case "/namespaces/kube-system/endpointslices":
			_, _ = fmt.Fprintf(w, `{"items":[%s,%s]}`, endpoint("127.0.0.1", good.Port(), "coredns-a"), endpoint("127.0.0.3", dead.Port(), "coredns-b"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, fmt.Appendf(nil, "nameserver [127.0.0.1]:%d\nsearch ns.svc.corp.example svc.corp.example corp.example\noptions ndots:5\n", good.Port()), 0o600); err != nil {
		t.Fatal(err)
	}
	env[worker.EnvResolvConf] = resolv
	start := time.Now()
	code, stdout, stderr := runWorker(t, env, "--output", "json")
	took := time.Since(start)
	report, err := result.Parse([]byte(strings.TrimSpace(stdout)))
	if err != nil || code != 0 || report.Outcome != result.Passed || len(report.Checks) != 6 || took > 5*time.Second {
		t.Fatalf("exit code %d after %s: %v\n%s%s", code, took, err, stdout, stderr)
	}
	warning := report.Checks[0]
	for _, says := range []string{"(coredns-b), asked over UDP, did not answer", "(coredns-b), asked over TCP, did not answer", "the 2 other queries succeeded",
		"2 endpoints of Service kube-system/kube-dns, which has the address in resolv.conf"} {
		if warning.Name != "dns-endpoints" || warning.Outcome != result.Warning || warning.Reason != "Timeout" || !strings.Contains(warning.Message, says) {
			t.Errorf("no %q in %+v", says, warning)
		}
	}
}

// A dry run takes the cluster that kubectl would, and asks the host's own nameservers.
func TestADryRunWithAKubeconfig(t *testing.T) {
	env := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			_, _ = fmt.Fprint(w, `{"status":{"userInfo":{"username":"me"}}}`)
		}
	})
	ca, err := os.ReadFile(filepath.Join(env[worker.EnvServiceAccountDir], "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	path := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	kubeconfig := fmt.Sprintf("current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: 'https://%s:%s', certificate-authority-data: %s}}]\nusers: [{name: a, user: {token: t}}]\n",
		env[worker.EnvServiceHost], env[worker.EnvServicePort], base64.StdEncoding.EncodeToString(ca))
	server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"kubernetes.default.svc.cluster.local.": {"A 127.0.0.1"}}})
	for name, content := range map[string]string{path: kubeconfig, filepath.Join(home, "resolv.conf"): fmt.Sprintf("nameserver [%s]:%d\n", server.Addr(), server.Port())} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	resolv := filepath.Join(home, "resolv.conf")
	for _, c := range []struct {
		env  map[string]string
		args []string
	}{
		{map[string]string{"HOME": home}, nil},
		{map[string]string{"HOME": "/no/such", "KUBECONFIG": "/no/such/either:" + path}, nil},
		{nil, []string{"--kubeconfig", path}},
	} {
		host := map[string]string{worker.EnvResolvConf: resolv}
		for k, v := range c.env {
			host[k] = v
		}
		code, stdout, stderr := runWorker(t, host, append(c.args, "--dry-run", "--only", "dns,api,network", "-o", "json")...)
		if code != 0 || strings.Count(stdout, `"outcome":"passed"`) != 4 || !strings.Contains(stdout, "identifies the worker as me") {
			t.Errorf("%v %v: exit code %d: %s%s", c.env, c.args, code, stdout, stderr)
		}
	}
	// Without one, DNS and network are tried all the same, and the API is not.
	code, stdout, _ := runWorker(t, map[string]string{worker.EnvResolvConf: resolv}, "--dry-run", "-o", "text")
	for _, says := range []string{"✓ dns ", "✗ network ", "- api ", "- service-discovery "} {
		if code != 1 || !strings.Contains(stdout, says) {
			t.Errorf("exit code %d, no %q in\n%s", code, says, stdout)
		}
	}
}
