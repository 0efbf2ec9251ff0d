//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/docs/commands"
)

// What a person who begins with the README does on "make cluster", command by command as the pages have them: each ends with
// exit code 0, and "helm test" says what it checked.
func (s *suite) pages(ctx context.Context, t *testing.T) {
	s.helm(ctx, t, "uninstall", release, "--ignore-not-found", "--wait", "--timeout", "60s")
	var said strings.Builder
	for _, page := range []string{"README.md", "docs/first-hour.md"} {
		text, err := os.ReadFile(filepath.Join(s.root, page))
		must(t, err)
		blocks, err := commands.Of(string(text))
		must(t, err)
		ran := 0
		for _, b := range blocks {
			if b.RunBy == "test/e2e" {
				ran++
				out, err := s.shell(ctx, strings.ReplaceAll(b.Script, "NODE", "node-a"))
				if err != nil {
					t.Fatalf("%s:%d: %v\n%s", page, b.Line, err, out)
				}
				said.WriteString(out)
			}
		}
		if ran == 0 {
			t.Fatalf("%s has no commands for this run", page)
		}
	}
	for _, want := range []string{"Succeeded", "service-discovery", "Nothing wrong was found"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no command says %q:\n%s", want, said.String())
		}
	}
	must(t, s.verified(ctx, "node-a"))
	if out := s.kubectl(ctx, t, "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/component=test", "-o", "name"); out != "" {
		t.Errorf("left behind: %s", out)
	}
	s.helm(ctx, t, "uninstall", release, "--wait", "--timeout", "60s")
}

// shell runs commands as a person in the repository, who has done what "make cluster" says, up to the first that fails.
func (s *suite) shell(ctx context.Context, script string) (string, error) {
	plugin, err := install.Binary("kubectl-node_ready")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.ControlPlane.Kubeconfig(), "HOME="+filepath.Join(s.root, ".cache", "cluster", "home"),
		fmt.Sprintf("PATH=%s:%s:%s", s.cluster.ControlPlane.Bin(), filepath.Dir(plugin), os.Getenv("PATH")))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
