package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/dnstest"
)

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
		if code != 0 || strings.Count(stdout, `"outcome":"passed"`) != 4 || !strings.Contains(stdout, "takes us for me") {
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
