package examples

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// TestRunDaemonSetLocal runs the script without a cluster, with the variables that it takes.
func TestRunDaemonSetLocal(t *testing.T) {
	worker, err := install.Binary("kube-node-ready-worker")
	must(t, err)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		config string
		code   int
		says   []string
	}{
		"passes":        {`worker: {checks: [{name: here, type: file, file: {path: /}}, {name: api, type: kubernetesAPI}]}`, 0, []string{"dry run outside a cluster", `"node": "a-node"`, "check passed", "needs a cluster", `"outcome": "passed"`}},
		"fails":         {`worker: {checks: [{name: here, type: file, file: {path: /no/such}}]}`, 1, []string{"check failed", `"outcome": "failed"`}},
		"takes a fault": {`nodeManagement: {deleteFailedNodes: true}`, 2, []string{"nodeManagement.deleteFailedNodes", "use deploymentMode controller"}},
	} {
		cmd := exec.CommandContext(t.Context(), "./run-daemonset-local.sh")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BIN=" + filepath.Dir(worker), "NODE_NAME=a-node", "CONFIG_FILE=" + write(strings.ReplaceAll(name, " ", "-")+".yaml", c.config)}
		out, err := cmd.CombinedOutput()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			must(t, err)
		}
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		for _, s := range c.says {
			if !strings.Contains(string(out), s) {
				t.Errorf("%s: the output lacks %q:\n%s", name, s, out)
			}
		}
	}
}
