//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README's "helm test", as it stands there, passes, and says what it checked.
func (s *suite) helmTest(ctx context.Context, t *testing.T) {
	text, err := os.ReadFile(filepath.Join(s.root, "README.md"))
	must(t, err)
	var args []string
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "helm test "); ok {
			args = append([]string{"test"}, strings.Fields(command)...)
		}
	}
	if args == nil {
		t.Fatal("the README has no command that begins with helm test")
	}
	if out := s.helm(ctx, t, args...); !strings.Contains(out, "Succeeded") || !strings.Contains(out, "service-discovery") {
		t.Errorf("helm %s does not say what passed:\n%s", strings.Join(args, " "), out)
	}
	if out := s.kubectl(ctx, t, "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/component=test", "-o", "name"); out != "" {
		t.Errorf("left behind: %s", out)
	}
}
