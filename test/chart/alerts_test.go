package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool's tests of the rules as the chart renders them by default.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "prometheusRule: {enabled: true}", readFile(t, "testdata/alerts.test.yaml"))
}

// What takes days is evaluated every five minutes, or it costs four fifths of all that promtool computes here.
func TestAlertsOverDays(t *testing.T) {
	promtool(t, "prometheusRule: {enabled: true}", readFile(t, "testdata/alerts-days.test.yaml"))
}

// DaemonSet mode has the one alert of its page.
func TestAlertOfDaemonSetMode(t *testing.T) {
	_, rest, _ := strings.Cut(readFile(t, "../../docs/guides/daemonset-mode.md"), "```yaml\n- alert: ")
	alert, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/guides/daemonset-mode.md has no alert")
	}
	var rules []any
	if err := yaml.Unmarshal([]byte("- alert: "+alert), &rules); err != nil {
		t.Fatal(err)
	}
	promtoolOn(t, rules, readFile(t, "testdata/daemonset-alerts.test.yaml"))
}

// Where no deletion is allowed, none is near the limit.
func TestDeletionsNearALimitOfNone(t *testing.T) {
	promtool(t, `
prometheusRule: {enabled: true}
controller: {config: {nodeManagement: {remediation: {maxDeletionsPerHour: 0}}}}`, `
rule_files: [rules.yaml]
tests:
- input_series:
  - {series: 'kube_node_ready_remediations_total{kind="NodeClaim",result="deleted"}', values: '0x200'}
  - {series: 'kube_node_ready_remediations_total{kind="NodeClaim",result="held"}', values: '0+1x200'}
  alert_rule_test:
  - {eval_time: 90m, alertname: KubeNodeReadyDeletionsNearLimit, exp_alerts: []}
`)
}

// promtool checks the rules that the chart renders with the values, and tests them.
func promtool(t *testing.T, values, tests string) {
	t.Helper()
	promtoolOn(t, renderedAlerts(t, values), tests)
}

// promtoolOn checks the alerts and tests them.
func promtoolOn(t *testing.T, alerts any, tests string) {
	t.Helper()
	dir := t.TempDir()
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{
		"name": "kube-node-ready", "rules": alerts,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rules.yaml": rules, "test.yaml": []byte(tests)} {
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
		if _, err := os.Stat(filepath.Join("../../docs/operate/runbooks", rule.Alert+".md")); err != nil {
			t.Errorf("%s has no runbook: %v", rule.Alert, err)
		}
	}
}
