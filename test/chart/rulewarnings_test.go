package chart

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// Who creates a rule that evicts pods is warned, in NRC's words, and not refused.
func testWarningsAboutRules(t *testing.T, c *cluster.Cluster) {
	r := resourcesOn(c)
	create := func(name, mode, effect string) (warned string) {
		t.Helper()
		warned, err := r.create(t, r.rules, `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": "`+name+`"}, "spec": {
			"nodeSelector": {"matchLabels": {"a": "b"}}, "enforcementMode": "`+mode+`", "conditions": [{"type": "c", "requiredStatus": "True"}],
			"taint": {"key": "readiness.k8s.io/`+name+`", "effect": "`+effect+`"}}}`)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return warned
	}
	const caution = "CAUTION: NoExecute with continuous mode evicts pods when conditions fail, risking workload disruption. Consider NoSchedule or bootstrap-only"
	const note = "NOTE: NoExecute will evict existing pods without tolerations. Ensure critical system pods have appropriate tolerations"
	warned := ""
	for i, end := 0, time.Now().Add(patience); !strings.Contains(warned, caution) && time.Now().Before(end); i++ {
		warned = create("evicting"+strings.Repeat("-x", i), "continuous", "NoExecute")
		time.Sleep(200 * time.Millisecond)
	}
	if !strings.Contains(warned, caution) || strings.Contains(warned, note) {
		t.Errorf("continuous: %q", warned)
	}
	if warned := create("evicting-once", "bootstrap-only", "NoExecute"); !strings.Contains(warned, note) || strings.Contains(warned, caution) {
		t.Errorf("bootstrap-only: %q", warned)
	}
	if warned := create("harmless", "continuous", "NoSchedule"); warned != "" {
		t.Errorf("without eviction: %q", warned)
	}
	if warned := r.patch(t, "evicting-once", `{"spec":{"dryRun":true}}`); warned != "" {
		t.Errorf("a change: %q", warned)
	}
	if err := r.rules.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{"rules: {warnings: false}", "controller: {config: {rules: {enabled: false}}}"} {
		for _, o := range render(t, values) {
			if strings.HasSuffix(o.GetName(), "-rule-warnings") {
				t.Errorf("%s makes %s", values, o.GetName())
			}
		}
	}
}
