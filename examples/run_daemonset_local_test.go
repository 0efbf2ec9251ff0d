package examples

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunDaemonSetLocal runs the script without a cluster, with the variables that it takes.
func TestRunDaemonSetLocal(t *testing.T) {
	const binary = "../bin/kube-node-ready-worker"
	if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
		must(t, exec.Command("go", "build", "-o", binary, "../cmd/worker").Run())
	}
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
		"passes":        {`worker: {checks: [{name: here, type: file, file: {path: /}}, {name: api, type: kubernetesAPI}]}`, 0, []string{"there is no cluster here", `"node": "a-node"`, "check passed", "needs a cluster", `"outcome": "passed"`}},
		"fails":         {`worker: {checks: [{name: here, type: file, file: {path: /no/such}}]}`, 1, []string{"check failed", `"outcome": "failed"`}},
		"takes a fault": {`nodeManagement: {deleteFailedNodes: true}`, 2, []string{"nodeManagement.deleteFailedNodes", "use deploymentMode controller"}},
	} {
		cmd := exec.CommandContext(t.Context(), "./run-daemonset-local.sh")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NODE_NAME=a-node", "CONFIG_FILE=" + write(strings.ReplaceAll(name, " ", "-")+".yaml", c.config)}
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
