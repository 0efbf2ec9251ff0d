package chart

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const daemonSetKey = "DaemonSet kube-node-ready/kube-node-ready"

// In DaemonSet mode there is a DaemonSet, what it may do and what keeps it to its own node, and nothing of a controller.
func TestDaemonSetMode(t *testing.T) {
	found := render(t, "deploymentMode: daemonset")
	want := []string{
		"ClusterRole kube-node-ready",
		"ClusterRoleBinding kube-node-ready",
		"ConfigMap kube-node-ready/kube-node-ready",
		daemonSetKey,
		"Pod kube-node-ready/kube-node-ready-test",
		"Role default/kube-node-ready-worker",
		"Role kube-system/kube-node-ready-worker",
		"RoleBinding default/kube-node-ready-worker",
		"RoleBinding kube-system/kube-node-ready-worker",
		"Service kube-node-ready/kube-node-ready",
		"ServiceAccount kube-node-ready/kube-node-ready",
		"ValidatingAdmissionPolicy kube-node-ready-daemonset",
		"ValidatingAdmissionPolicy kube-node-ready-kubelets",
		"ValidatingAdmissionPolicyBinding kube-node-ready-daemonset",
		"ValidatingAdmissionPolicyBinding kube-node-ready-kubelets",
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("rendered\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	d := get[appsv1.DaemonSet](t, found, daemonSetKey)
	pod := d.Spec.Template.Spec
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	verified := corev1.NodeSelectorRequirement{Key: "node-ready/verified", Operator: corev1.NodeSelectorOpDoesNotExist}
	expressions := []corev1.NodeSelectorRequirement{verified}
	for _, l := range marks.VirtualLabels() { // which are not verified, so a pod would stay
		expressions = append(expressions, corev1.NodeSelectorRequirement{Key: l.Key, Operator: corev1.NodeSelectorOpNotIn, Values: []string{l.Value}})
	}
	if len(terms) != 1 || !reflect.DeepEqual(terms[0].MatchExpressions, expressions) {
		t.Errorf("affinity %+v", terms)
	}
	if pod.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("node selector %v: the image is for Linux", pod.NodeSelector)
	}
	if pod.PriorityClassName != "system-node-critical" || pod.ServiceAccountName != "kube-node-ready" || !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists
	}) || d.Spec.Template.Labels["app.kubernetes.io/component"] != "daemonset" {
		t.Errorf("pod %+v", pod)
	}
	if d.Spec.Template.Labels["sidecar.istio.io/inject"] != "false" || d.Spec.Template.Labels["istio.io/dataplane-mode"] != "none" ||
		d.Spec.Template.Annotations["linkerd.io/inject"] != "disabled" {
		t.Errorf("meshes are not kept out: labels %v, annotations %v", d.Spec.Template.Labels, d.Spec.Template.Annotations)
	}
	if args := pod.Containers[0].Args; !slices.Equal(args, []string{"daemonset", "--config", "/etc/kube-node-ready/config.yaml"}) {
		t.Errorf("args %q", args)
	}
	if _, err := config.ParseDaemonSet([]byte(daemonSetFile(t, found)), "config.yaml"); err != nil {
		t.Error(err)
	}
}

func daemonSetFile(t *testing.T, found objects) string {
	t.Helper()
	return get[corev1.ConfigMap](t, found, "ConfigMap kube-node-ready/kube-node-ready").Data["config.yaml"]
}

// The workers' settings are the pod's, and nodes that the configuration excludes get none.
func TestDaemonSetTakesTheWorkersSettings(t *testing.T) {
	found := render(t, `
deploymentMode: daemonset
controller:
  dryRun: true
  config:
    worker: {priorityClassName: mine, env: [{name: A, value: b}], volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}], podLabels: {team: nodes}, initContainers: [{name: i, image: i}]}
    nodeManagement:
      verifiedLabel: {key: a.io/ok}
      nodeSelector: {matchLabels: {pool: p}, matchExpressions: [{key: os, operator: NotIn, values: [w]}]}
networkPolicy: {enabled: true}
`)
	d := get[appsv1.DaemonSet](t, found, daemonSetKey)
	pod := d.Spec.Template.Spec
	var keys []string
	for _, e := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions {
		if !slices.ContainsFunc(marks.VirtualLabels(), func(l marks.Label) bool { return l.Key == e.Key }) {
			keys = append(keys, e.Key)
		}
	}
	if !slices.Equal(keys, []string{"a.io/ok", "pool", "os"}) || pod.PriorityClassName != "mine" || len(pod.Volumes) != 2 || len(pod.InitContainers) != 1 || d.Spec.Template.Labels["team"] != "nodes" ||
		!slices.Contains(pod.Containers[0].Args, "--dry-run") {
		t.Errorf("affinity %q, pod %+v", keys, pod)
	}
	if _, ok := found["NetworkPolicy kube-node-ready/kube-node-ready"]; !ok {
		t.Error("no NetworkPolicy")
	}
}

// What the program refuses the chart refuses before, with the field and what to do.
func TestDaemonSetModeRefuses(t *testing.T) {
	for values, says := range map[string]string{
		"controller: {config: {nodeManagement: {deleteFailedNodes: true}}}":                                                                          "nodeManagement.deleteFailedNodes",
		"controller: {config: {nodeManagement: {presets: [cilium]}}}":                                                                                "nodeManagement.presets",
		"controller: {config: {nodeManagement: {prerequisites: {daemonSets: auto}}}}":                                                                "nodeManagement.prerequisites.daemonSets",
		"controller: {config: {nodeManagement: {prerequisites: {resourceSlices: [{driver: a.io}]}}}}":                                                "nodeManagement.prerequisites.resourceSlices",
		"controller: {config: {admission: {mode: webhook}}}":                                                                                         "admission.mode",
		"controller: {config: {admission: {backfill: true}}}":                                                                                        "admission.backfill",
		"controller: {config: {rules: {enabled: true}}}":                                                                                             "rules.enabled",
		"controller: {config: {worker: {namespace: a}}}":                                                                                             "worker.namespace",
		"controller: {config: {profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, prerequisites: {daemonSets: [{namespace: a, name: b}]}}]}}": "profiles[0].prerequisites.daemonSets",
		"controller: {config: {profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, initContainers: [{name: a, image: b}]}]}}":                  "profiles[0].initContainers",
		"controller: {config: {profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, resources: {limits: {cpu: 1}}}]}}":                          "profiles[0].resources",
		"prometheusRule: {enabled: true}":                                                                                                            "prometheusRule.enabled",
		"grafanaDashboard: {enabled: true}":                                                                                                          "grafanaDashboard.enabled",
	} {
		if _, failure := template(t, values); failure != "" {
			t.Errorf("with a controller %s is refused: %s", values, failure)
		}
		if _, failure := template(t, "deploymentMode: daemonset\n"+values); !strings.Contains(failure, says+":") || !strings.Contains(failure, "daemonset") {
			t.Errorf("%s: %q", values, failure)
		}
	}
}

// The short values overlay the configuration, in both modes.
func TestShortValues(t *testing.T) {
	const values = `
config: {taintKey: a.io/b, taintValue: c, taintEffect: NoExecute, dnsTestDomains: [a.example], maxRetries: 7, retryBackoff: linear, initialTimeout: %s}
controller: {config: {worker: {dnsTestDomains: [b.example]}, reconciliation: {maxRetries: 3}}}`
	for initial, seconds := range map[string]int32{"600s": 600, "10m": 600, "1h": 3600} {
		text := strings.Replace(values, "%s", initial, 1)
		byDaemonSet, err := config.ParseDaemonSet([]byte(daemonSetFile(t, render(t, "deploymentMode: daemonset"+text))), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for mode, c := range map[string]*config.Config{"controller": parsed(t, text), "daemonset": byDaemonSet} {
			taint := c.NodeManagement.Taints[0]
			if taint.Key != "a.io/b" || taint.Value != "c" || taint.Effect != corev1.TaintEffectNoExecute || len(c.NodeManagement.Taints) != 1 ||
				!slices.Equal(c.Worker.DNSTestDomains, []string{"a.example"}) || c.Reconciliation.MaxRetries != 7 || c.Reconciliation.RetryBackoff != config.BackoffLinear || c.Worker.TimeoutSeconds != seconds {
				t.Errorf("%s, %s: %+v", mode, initial, c)
			}
		}
	}
	if _, failure := template(t, "config: {taintEffect: NoExecute}\ncontroller: {config: {nodeManagement: {taints: [{key: a, effect: NoSchedule}, {key: b, effect: NoSchedule}]}}}"); !strings.Contains(failure, "has 2") {
		t.Errorf("two taints: %q", failure)
	}
	for _, bad := range []string{"config: {initialTimeout: 10}", "config: {initialTimeout: soon}", "config: {taintEffect: Never}", "config: {retryBackoff: none}", "config: {timeout: 5s}"} {
		if _, failure := template(t, bad); failure == "" {
			t.Errorf("%s is taken", bad)
		}
	}
}
