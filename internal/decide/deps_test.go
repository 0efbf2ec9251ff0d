package decide

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Decisions are pure: they know no client, no logger and no clock.
func TestDecisionsArePure(t *testing.T) {
	// Of what Kubernetes' own types import nobody here has a say.
	out, err := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{range $.Imports}}{{println .}}{{end}}{{end}}{{end}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := strings.Fields(string(out))
	if len(imports) < 20 {
		t.Fatalf("only %d imports were found: %v", len(imports), imports)
	}
	for _, dep := range imports {
		for _, forbidden := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/karpenter", "go.uber.org/zap", "github.com/go-logr", "k8s.io/klog"} {
			if strings.HasPrefix(dep, forbidden) {
				t.Errorf("a decision depends on %s", dep)
			}
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, clock := range []string{"time.Now(", "time.Since(", "time.Until("} {
			if strings.Contains(string(content), clock) {
				t.Errorf("%s reads a clock with %s", name, clock)
			}
		}
	}
}
