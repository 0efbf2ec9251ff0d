package examples

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// TestRunWorkerLocal runs the script without a cluster: what needs one is skipped, and said
// to be.
func TestRunWorkerLocal(t *testing.T) {
	worker, err := install.Binary("kube-node-ready-worker")
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { _ = http.Serve(listener, http.NotFoundHandler()) }()
	config := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(config, []byte(`worker: {checks: [{name: web, type: http, http: {url: "http://`+listener.Addr().String()+`/", expectStatus: [404]}}, {name: api, type: kubernetesAPI}]}`), 0o600))

	for _, c := range []struct {
		name string
		args []string
		env  []string
		says []string
	}{
		{"with the example", []string{"--only", "disk,tmp-writable,api"}, nil, []string{"✓ disk ", "✓ tmp-writable ", "needs a cluster, but this host is not in one", "this node: passed"}},
		{"with a file", []string{"--config", config}, nil, []string{"✓ web ", "- api "}},
		{"with variables", nil, []string{"CONFIG_FILE=" + config, "NODE_NAME=node-1"}, []string{"✓ web ", "node-1: passed"}},
	} {
		cmd := exec.Command("./run-worker-local.sh", c.args...)
		cmd.Env = slices.Concat(c.env, []string{"PATH=" + os.Getenv("PATH"), "BIN=" + filepath.Dir(worker)})
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
		for _, s := range c.says {
			if !strings.Contains(string(out), s) {
				t.Errorf("%s: the output lacks %q:\n%s", c.name, s, out)
			}
		}
	}
}
