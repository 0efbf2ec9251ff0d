// Package helmrender renders the Helm chart for tests: with Helm's own packages, by a process that answers one request
// after the other (test/tools/helm/render). Half of what a process of Helm computes for a rendering is its own start.
package helmrender

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// renderer is the process that answers "helm template".
type renderer struct {
	mu        sync.Mutex
	requests  *json.Encoder
	responses *json.Decoder
}

// theRenderer starts the renderer of a package's tests. It ends with them, when its input does.
var theRenderer = sync.OnceValues(func() (*renderer, error) {
	path, err := cluster.Tool("helm-render")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &renderer{requests: json.NewEncoder(in), responses: json.NewDecoder(out)}, cmd.Start()
})

func (r *renderer) template(args []string) (stdout, failure string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.requests.Encode(map[string][]string{"args": args}); err != nil {
		return "", "", err
	}
	var answer struct{ Stdout, Failure string }
	err = r.responses.Decode(&answer)
	return answer.Stdout, answer.Failure, err
}

// Template is "helm template" with these arguments: what it prints, and its error message where it fails.
func Template(args ...string) (stdout, failure string, err error) {
	r, err := theRenderer()
	if err != nil {
		return "", "", err
	}
	return r.template(args)
}

// Chart renders our chart as release kube-node-ready, which must succeed, with values of which later ones win.
func Chart(t testing.TB, namespace string, values []string, args ...string) string {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(root, "deploy", "helm", "kube-node-ready")
	inputs.Track(t, chart)
	args = append([]string{"kube-node-ready", chart, "--namespace", namespace, "--kube-version", "1.36.0"}, args...)
	for _, v := range values {
		args = append(args, ValuesFile(t, v)...)
	}
	out, failure, err := Template(args...)
	if err != nil || failure != "" {
		t.Fatalf("helm template with\n%s\n%s (%v)", strings.Join(values, "\n"), failure, err)
	}
	return out
}

// ValuesFile writes values and returns Helm's arguments for them.
func ValuesFile(t testing.TB, values string) []string {
	t.Helper()
	// Not t.TempDir: Helm splits file names at commas, and a test's name may have one.
	dir, err := os.MkdirTemp("", "values-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--values", file}
}
