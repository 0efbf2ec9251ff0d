package config

import (
	"strings"
	"testing"
)

// What needs a controller is refused with the field, its line and what to do about it.
func TestDaemonSetModeRefuses(t *testing.T) {
	for yaml, says := range map[string]string{
		"nodeManagement: {deleteFailedNodes: true}":                                                        "nodeManagement.deleteFailedNodes",
		"nodeManagement: {reverify: {interval: 24h}}":                                                      "nodeManagement.reverify.interval",
		"nodeManagement: {prerequisites: {daemonSets: auto}}":                                              "nodeManagement.prerequisites.daemonSets",
		"nodeManagement: {prerequisites: {daemonSets: [{namespace: a, name: b}]}}":                         "nodeManagement.prerequisites.daemonSets",
		"nodeManagement: {prerequisites: {resourceSlices: [{driver: a.io}]}}":                              "nodeManagement.prerequisites.resourceSlices",
		"nodeManagement: {prerequisites: {resources: [{apiVersion: a.io/v1, kind: A, condition: Ready}]}}": "nodeManagement.prerequisites.resources",
		"nodeManagement: {presets: [cilium]}":                                                              "nodeManagement.presets[0]",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, presets: [cilium]}]":                    "profiles[0].presets[0]",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, prerequisites: {daemonSets: auto}}]":    "profiles[0].prerequisites.daemonSets",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, tolerations: [{operator: Exists}]}]":    "profiles[0].tolerations",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, resources: {limits: {memory: 1Gi}}}]":   "profiles[0].resources",
		profileOf("image: {tag: a}"):                                                                       "profiles[0].image",
		profileOf("initContainers: [{name: a, image: b}]"):                                                 "profiles[0].initContainers",
		profileOf("volumes: []"):                                       "profiles[0].volumes",
		profileOf("volumeMounts: []"):                                  "profiles[0].volumeMounts",
		profileOf("env: [{name: A}]"):                                  "profiles[0].env",
		profileOf("resourceClaims: [{name: a, resourceClaimName: b}]"): "profiles[0].resourceClaims",
		profileOf("runtimeClassName: nvidia"):                          "profiles[0].runtimeClassName",
		profileOf("imagePullSecrets: [{name: a}]"):                     "profiles[0].imagePullSecrets",
		profileOf("podAnnotations: {a: b}"):                            "profiles[0].podAnnotations",
		profileOf("podLabels: {a: b}"):                                 "profiles[0].podLabels",
		profileOf("startTimeoutSeconds: 5"):                            "profiles[0].startTimeoutSeconds",
		profileOf("initTimeoutSeconds: 5"):                             "profiles[0].initTimeoutSeconds",
		"reconciliation: {maxConcurrentVerifications: 3}":              "reconciliation.maxConcurrentVerifications",
		"worker: {namespace: elsewhere}":                               "worker.namespace",
		"rules: {enabled: true}":                                       "rules.enabled",
		"rules: {takeOver: true}":                                      "rules.takeOver",
		"rules: {staleAfter: 5m}":                                      "rules.staleAfter",
	} {
		if _, err := Parse([]byte(yaml), "f.yaml"); err != nil {
			t.Errorf("a controller refuses %s: %v", yaml, err)
		}
		_, err := ParseDaemonSet([]byte(yaml), "f.yaml")
		if err == nil || !strings.Contains(err.Error(), says+":") || !strings.Contains(err.Error(), "f.yaml:1") || strings.Count(err.Error(), "\n") > 1 {
			t.Errorf("%s: %v", yaml, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, "remove it") && !strings.Contains(text, "remove one") && !strings.Contains(text, "use deploymentMode controller") {
			t.Errorf("%s does not say what to do: %v", yaml, err)
		}
	}
}

// What is about the node's own objects works, and nodes that never had the taint are verified.
func TestDaemonSetModeTakes(t *testing.T) {
	c, err := ParseDaemonSet([]byte(`
nodeManagement:
  prerequisites: {nodeReady: true, conditions: [{type: A}], pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}], csiNodes: [{driver: a.io}], allocatable: {a.io/b: 1}, daemonSets: none}
rules: {enabled: false}
leaderElection: {enabled: true, id: x}
kubernetes: {qps: 5}
profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, checks: [{name: d, type: dns}], prerequisites: {nodeReady: true}}]
`), "f.yaml")
	if err != nil || !c.NodeManagement.VerifyUntainted || !bool(c.NodeManagement.Prerequisites.NodeReady) {
		t.Errorf("%v: %+v", err, c)
	}
}
