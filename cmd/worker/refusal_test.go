package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/tlstest"
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
