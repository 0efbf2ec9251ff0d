package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// An upgrade with --reuse-values has no section that is new, and null removes one. Either gets a message that names the
// section, or the chart renders without it.
func TestMissingSections(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, chartDir+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	const advice = "--reset-then-reuse-values"
	named := 0
	examine := func(section, override string) {
		out, failure := template(t, override)
		switch {
		case strings.Contains(failure, "the value "+section+" is missing or null") && strings.Contains(failure, advice):
			named++
		case failure != "":
			t.Errorf("%s: %s", section, failure)
		case !strings.Contains(out, "kind: Deployment"):
			t.Errorf("%s: the controller is not rendered, and nothing says so", section)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		examine(key, key+": null")
		section, _ := values[key].(map[string]any)
		for _, below := range slices.Sorted(maps.Keys(section)) {
			if _, ok := section[below].(map[string]any); ok {
				examine(key+"."+below, key+": {"+below+": null}")
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d sections are named", named)
	}
	if _, failure := template(t, "networkPolicy: null\ncriticalPodsQuota: null"); strings.Count(failure, "is missing or null") != 1 {
		t.Errorf("more or less than one message: %s", failure)
	}
}

// The API server does not store an empty list of a NetworkPolicy, so what is rendered with one differs for ever.
func TestNetworkPoliciesDoNotDrift(t *testing.T) {
	for _, values := range []string{
		"networkPolicy: {enabled: true}",
		"networkPolicy: {enabled: true, metricsFrom: []}\ncontroller: {config: {metrics: {enabled: false}}}",
		"networkPolicy: {enabled: true}\ndeploymentMode: daemonset",
	} {
		seen := 0
		for key, o := range render(t, values) {
			if o.GetKind() != "NetworkPolicy" {
				continue
			}
			seen++
			for field, value := range o.Object["spec"].(map[string]any) {
				if list, ok := value.([]any); value == nil || ok && len(list) == 0 {
					t.Errorf("%s: %s has an empty %s", values, key, field)
				}
			}
			if types := at(o.Object, "spec", "policyTypes"); len(types.([]any)) != 2 {
				t.Errorf("%s: %s has policyTypes %v", values, key, types)
			}
		}
		if seen == 0 {
			t.Errorf("%s: no NetworkPolicy", values)
		}
	}
}

// Argo CD and "helm template" do not pass the suffix of GKE's version. The API groups, if they pass them, name GKE.
func TestQuotaByTheAPIsOfGKE(t *testing.T) {
	for name, test := range map[string]struct {
		values, api string
		want        bool
	}{
		"GKE":                       {"", "networking.gke.io/v1", true},
		"GKE, an older version":     {"", "networking.gke.io/v1beta2", true},
		"GKE, its kind":             {"", "networking.gke.io/v1/ManagedCertificate", true},
		"GKE, where it is not made": {"criticalPodsQuota: {enabled: false}", "networking.gke.io/v1", false},
		"GKE, in DaemonSet mode":    {"deploymentMode: daemonset", "networking.gke.io/v1", true},
		"everywhere":                {"criticalPodsQuota: {enabled: true}", "networking.k8s.io/v1", true},
		"another group":             {"", "networking.k8s.io/v1", false},
		"one with the same end":     {"", "x.networking.gke.io/v1", false},
	} {
		out, failure := template(t, test.values, "--api-versions", test.api)
		if failure != "" || strings.Contains(out, "kind: ResourceQuota") != test.want {
			t.Errorf("%s: want a quota: %v %s", name, test.want, failure)
		}
	}
}
