package install

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

var update = flag.Bool("update", false, "write rbac.yaml anew from the chart")

// TestManifestIsTheCharts keeps tests and the demo from having other rights than an installation has.
func TestManifestIsTheCharts(t *testing.T) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(root, "deploy/helm/kube-node-ready")
	inputs.Track(t, chart)
	args := []string{"template", "kube-node-ready", chart, "--namespace", Namespace, "--kube-version", "1.36.0"}
	for _, template := range []string{"serviceaccounts", "controller-rbac", "worker-rbac"} {
		args = append(args, "--show-only", "templates/"+template+".yaml")
	}
	helm, err := cluster.Tool("helm")
	if err != nil {
		t.Fatal(err)
	}
	var failure bytes.Buffer
	cmd := exec.CommandContext(t.Context(), helm, args...)
	cmd.Stderr = &failure
	rendered, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v: %s", err, &failure)
	}
	// A release's version and the chart's are not what this is about.
	var want strings.Builder
	for line := range strings.Lines(string(rendered)) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "helm.sh/chart:") && !strings.HasPrefix(trimmed, "app.kubernetes.io/version:") {
			want.WriteString(line)
		}
	}
	if *update {
		if err := os.WriteFile("rbac.yaml", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !reflect.DeepEqual(documents(t, want.String()), documents(t, string(manifest))) {
		t.Errorf("the chart's service accounts and rights are no longer those of rbac.yaml: go test ./test/cluster/install -update\n%s", want.String())
	}
}

// documents reads a YAML stream; how it is laid out does not matter.
func documents(t *testing.T, stream string) []any {
	t.Helper()
	var all []any
	for text := range strings.SplitSeq(stream, "\n---\n") {
		var document any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
	if len(all) < 8 {
		t.Fatalf("only %d documents", len(all))
	}
	return all
}
