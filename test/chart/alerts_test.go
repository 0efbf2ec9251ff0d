package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool's tests of the rules as the chart renders them by default.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	const tests = "testdata/alerts.test.yaml"
	dir := t.TempDir()
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{
		"name": "kube-node-ready", "rules": renderedAlerts(t, "prometheusRule: {enabled: true}"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rules.yaml": rules, "test.yaml": []byte(readFile(t, tests))} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), tool("promtool"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v (test/tools/build.sh prometheus builds it)\n%s", args[0], err, out)
		}
	}
}

// Every alert is tested both ways, and has its severity, texts and runbook.
func TestAlertsAreComplete(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				AlertName string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "testdata/alerts.test.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, rule := range test.AlertRuleTest {
			fires[rule.AlertName] = fires[rule.AlertName] || len(rule.ExpAlerts) > 0
			silent[rule.AlertName] = silent[rule.AlertName] || len(rule.ExpAlerts) == 0
		}
	}
	for _, rule := range shippedAlerts(t) {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s: tested to fire: %v, to be silent: %v", rule.Alert, fires[rule.Alert], silent[rule.Alert])
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description", rule.Alert)
		}
		if _, err := os.Stat(filepath.Join("../../docs/runbooks", rule.Alert+".md")); err != nil {
			t.Errorf("%s has no runbook: %v", rule.Alert, err)
		}
	}
}
