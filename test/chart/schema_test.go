package chart

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/deploy/helm/valuesschema"
)

var update = flag.Bool("update", false, "write generated files in place of comparing them")

// chartDir is the chart, seen from this package's folder.
const chartDir = "../../deploy/helm/kube-node-ready"

type alertRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// shippedAlerts reads the chart's alerts as they stand in its file, before any value applies.
func shippedAlerts(t *testing.T) []alertRule {
	t.Helper()
	content := []byte(readFile(t, filepath.Join(chartDir, "files", "alerts.yaml")))
	var file struct {
		Rules []alertRule `json:"rules"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	return file.Rules
}

// The schema in the chart is the one that the Go types and base.yaml make: a configuration key
// that is added to the controller is not refused by the chart.
func TestValuesSchemaIsCurrent(t *testing.T) {
	var names []string
	for _, rule := range shippedAlerts(t) {
		names = append(names, rule.Alert)
	}
	compareGenerated(t, filepath.Join(chartDir, "values.schema.json"), func() ([]byte, error) {
		return valuesschema.Generate(names)
	})
}

// compareGenerated compares a file with what generates it, or writes it with -update.
func compareGenerated(t *testing.T, file string, generate func() ([]byte, error)) {
	t.Helper()
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := readFile(t, file); got != string(want) {
		t.Errorf("%s is out of date; run: go test ./test/chart -update\nit would be:\n%.2000s", filepath.Clean(file), want)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
