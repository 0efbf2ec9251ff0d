package chart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// "helm test" says how the cluster is, and not how a node is that has not passed yet, and it fails only where something is wrong.
func TestHelmTestPod(t *testing.T) {
	const name = "Pod kube-node-ready/kube-node-ready-test"
	pod := get[corev1.Pod](t, render(t, "controller: {config: {nodeManagement: {verifiedLabel: {key: ready.example/ok, value: sure}}}}"), name)
	if len(pod.Spec.Containers) != 1 {
		t.Errorf("%d containers: helm test --logs reads the log of a pod with one", len(pod.Spec.Containers))
	}
	if pod.Spec.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("node selector %v: the image is for Linux", pod.Spec.NodeSelector)
	}
	if len(pod.Spec.Tolerations) != 0 {
		t.Errorf("it may run on nodes that are gated: %+v", pod.Spec.Tolerations)
	}
	preferred := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(preferred) != 1 || preferred[0].Preference.MatchExpressions[0].Key != "ready.example/ok" || preferred[0].Preference.MatchExpressions[0].Values[0] != "sure" {
		t.Errorf("it prefers no verified node: %+v", preferred)
	}
	if policy := pod.Annotations["helm.sh/hook-delete-policy"]; !strings.Contains(policy, "hook-succeeded") {
		t.Errorf("helm uninstall would leave it: %s", policy)
	}
	for values, want := range map[string][]string{
		"":                               {"controller"},
		"networkPolicy: {enabled: true}": {"controller"},
		"networkPolicy: {enabled: false, metricsFrom: [{podSelector: {}}]}":           {"controller"},
		"networkPolicy: {enabled: true, metricsFrom: [{podSelector: {}}]}":            nil,
		"service: {enabled: false}":                                                   nil,
		"controller: {config: {metrics: {enabled: false}}}":                           nil,
		"controller: {config: {worker: {initContainers: [{name: gpu, image: x:1}]}}}": {"gpu", "controller"},
	} {
		pod := get[corev1.Pod](t, render(t, values), name)
		var got []string
		for _, c := range pod.Spec.InitContainers {
			got = append(got, c.Name)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: before the checks run %v, want %v", values, got, want)
		}
	}
}

// The kubelet expands "$$" and "$(NAME)" in a value, and the checks would be others.
func TestHelmTestPodKeepsDollars(t *testing.T) {
	pod := get[corev1.Pod](t, render(t, `controller: {config: {worker: {checks: [{name: a, type: http, http: {url: "https://h/", headers: {A: "$$(HOME)"}}}]}}}`),
		"Pod kube-node-ready/kube-node-ready-test")
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == worker.EnvVar && (strings.Contains(e.Value, "$") || !strings.Contains(e.Value, `"\u0024\u0024(HOME)"`)) {
			t.Error(e.Value)
		}
	}
}
