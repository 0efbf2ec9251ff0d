package chart

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/deploy/helm/valuesschema"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
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

// The schema takes each form of prerequisites.daemonSets and refuses what the controller would.
func TestSchemaOfPrerequisites(t *testing.T) {
	for prerequisites, refused := range map[string]bool{
		"{daemonSets: auto}":                      false,
		"{daemonSets: none}":                      false,
		"{daemonSets: [{namespace: a, name: b}]}": false,
		"{daemonSets: {mode: auto, exclude: [{namespace: a, name: b}]}}": false,
		"{daemonSets: all}":                                                                                   true,
		"{daemonSets: {auto: {}}}":                                                                            true,
		"{daemonSets: [{selector: {matchLabels: {a: b}}}]}":                                                   false,
		"{daemonSets: [{selector: a=b}]}":                                                                     true,
		"{daemonSets: [{namespace: a, nam: b}]}":                                                              true,
		"{csiNodes: [{driver: a.example.com, allocatable: true}]}":                                            false,
		"{csiNodes: [{driver: a.example.com, allocatable: 5}]}":                                               true,
		"{allocatable: {nvidia.com/gpu: 1, memory: 1Gi}}":                                                     false,
		"{allocatable: [nvidia.com/gpu]}":                                                                     true,
		"{resourceSlices: [{driver: gpu.nvidia.com}]}":                                                        false,
		"{resourceSlices: [{driver: a.io, minDevices: 8}]}":                                                   false,
		"{resourceSlices: [{driver: a.io, minDevices: 0}]}":                                                   true,
		"{resourceSlices: [gpu.nvidia.com]}":                                                                  true,
		"{pods: [{namespace: a, selector: {matchLabels: {a: b}}, readyAnnotation: warm=1, readyBy: both}]}":   false,
		"{pods: [{namespace: a, selector: {matchLabels: {a: b}}, readyAnnotation: warm=1, readyBy: either}]}": true,
	} {
		values := "controller: {config: {nodeManagement: {prerequisites: " + prerequisites + "}}}"
		if _, failure := template(t, values); (failure != "") != refused {
			t.Errorf("%s: %s", prerequisites, failure)
		} else if !refused {
			parsed(t, values)
		}
	}
}

// The schema has each kind of limit that a field of the configuration may have.
func TestSchemaOfLimits(t *testing.T) {
	for configuration, refused := range map[string]bool{
		"{worker: {timeoutSeconds: 3600}}":                                                        false,
		"{worker: {timeoutSeconds: 3601}}":                                                        true,
		"{reconciliation: {exhaustedRetrySeconds: -1}}":                                           false,
		"{reconciliation: {exhaustedRetrySeconds: 0}}":                                            true,
		"{admission: {mode: off}}":                                                                false,
		"{admission: {mode: on}}":                                                                 true,
		"{leaderElection: {id: ''}}":                                                              true,
		"{worker: {namespace: ''}}":                                                               false,
		"{worker: {namespace: A}}":                                                                true,
		"{nodeManagement: {taints: []}}":                                                          true,
		"{profiles: [{nodeSelector: {matchLabels: {a: b}}}]}":                                     true,
		"{worker: {checks: [{name: a, type: dns, dns: {protocols: [udp, tcp]}}]}}":                false,
		"{worker: {checks: [{name: a, type: dns, dns: {protocols: [udp, udp]}}]}}":                true,
		"{worker: {checks: [{name: a, type: http, http: {url: 'http://a', expectStatus: [2]}}]}}": true,
	} {
		values := "controller: {config: " + configuration + "}"
		if _, failure := template(t, values); (failure != "") != refused {
			t.Errorf("%s: %s", configuration, failure)
		} else if !refused {
			parsed(t, values)
		}
	}
}

// The chart grants what presets need by the table that the controller has.
func TestPresetTableIsCurrent(t *testing.T) {
	compareGenerated(t, filepath.Join(chartDir, "files", "presets.yaml"), func() ([]byte, error) {
		table := map[config.Preset]config.Expansion{}
		for _, d := range config.Presets() {
			table[d.Name] = d.Expansion()
		}
		content, err := yaml.Marshal(table)
		return append([]byte("# Made of internal/config/presets.go: go test ./test/chart -update\n"), content...), err
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
