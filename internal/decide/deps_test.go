package decide

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kube-node-ready/kube-node-ready/internal/"

// list is what go list -deps prints of a package with a template, word by word.
func list(t *testing.T, pkg, template string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", template, pkg).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// Decisions are pure: they know no client, no logger and no clock.
func TestDecisionsArePure(t *testing.T) {
	for pkg, dir := range map[string]string{"decide": ".", "rules/rule": "../rules/rule"} {
		t.Run(pkg, func(t *testing.T) { pure(t, pkg, dir) })
	}
}

func pure(t *testing.T, pkg, dir string) {
	// The types of Kubernetes have imports of their own, which are exempt. The configuration file validates checks by the
	// table of their types. The folders of those types also hold the code that performs checks. That code belongs to the
	// worker, and no decision reaches it in another way.
	worker := func(pkg string) bool { return pkg == module+"worker" || strings.HasPrefix(pkg, module+"worker/") }
	edges := list(t, dir, `{{with .Module}}{{if .Main}}{{range $.Imports}}{{printf "%s>%s\n" $.ImportPath .}}{{end}}{{end}}{{end}}`)
	if len(edges) < 40 || !slices.Contains(edges, module+pkg+">"+module+"marks") {
		t.Fatalf("only %d imports were found: %v", len(edges), edges)
	}
	for _, edge := range edges {
		from, to, _ := strings.Cut(edge, ">")
		if worker(from) {
			continue
		}
		if worker(to) && from != module+"config" && from != module+"workerpod" {
			t.Errorf("%s imports %s", from, to)
		}
		for _, forbidden := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/karpenter", "go.uber.org/zap", "github.com/go-logr", "k8s.io/klog",
			module + "controller", module + "rules", module + "metrics", module + "event", module + "logging", "os/exec", "math/rand", "log/slog"} {
			if to != module+"rules/rule" && (to == forbidden || strings.HasPrefix(to, forbidden+"/")) {
				t.Errorf("a decision depends on %s", to)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, clock := range []string{"time.Now(", "time.Since(", "time.Until(", "time.After(", "time.NewTimer("} {
			if strings.Contains(string(content), clock) {
				t.Errorf("%s reads a clock with %s", name, clock)
			}
		}
	}
}

// The vocabulary of marks and the attempt do not know the configuration file: it imports them.
func TestTheVocabularyDoesNotImportTheConfiguration(t *testing.T) {
	for pkg, forbidden := range map[string][]string{
		"marks":   {"config", "worker", "workerpod", "decide"},
		"attempt": {"config", "worker", "workerpod", "decide", "marks"},
	} {
		deps := list(t, module+pkg, "{{.ImportPath}}")
		if !slices.Contains(deps, module+"result") {
			t.Fatalf("%s: only %d packages were found", pkg, len(deps))
		}
		for _, f := range forbidden {
			if slices.Contains(deps, module+f) {
				t.Errorf("%s imports %s", pkg, f)
			}
		}
	}
	if deps := list(t, module+"config", "{{.ImportPath}}"); !slices.Contains(deps, module+"marks") {
		t.Error("the configuration does not use the vocabulary")
	}
}
