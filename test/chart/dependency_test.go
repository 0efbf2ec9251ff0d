package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// parent is a chart that depends on this one, in a folder of its own.
func parent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "parent-") // Helm splits names at commas, and a test's may have one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const chart = `apiVersion: v2
name: platform
version: 1.0.0
dependencies:
  - name: kube-node-ready
    version: ">=0.0.0-0"
    condition: kube-node-ready.enabled
`
	if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(chart), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "charts", "kube-node-ready"), os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAsADependency(t *testing.T) {
	dir := parent(t)
	run := func(values string) objects {
		t.Helper()
		args := append([]string{"template", "shared", dir, "--namespace", "release", "--kube-version", "1.36.0"}, valuesFile(t, values)...)
		out, failure := helm(t, args...)
		if failure != "" {
			t.Fatal(failure)
		}
		return read(t, out)
	}
	found := run(`
global:
  imageRegistry: mirror.example:5000/hub
  imagePullSecrets: [mirror, {name: second}]
  anotherCharts: {value: 1}
kube-node-ready:
  namespaceOverride: platform
  nameOverride: gate
  imagePullSecrets: [{name: own}]
  networkPolicy: {enabled: true}
  serviceMonitor: {enabled: true}
  prometheusRule: {enabled: true}
  grafanaDashboard: {enabled: true}
  criticalPodsQuota: {enabled: true}
`)
	pod := get[appsv1.Deployment](t, found, "Deployment platform/shared-gate-controller").Spec.Template.Spec
	if got := pod.Containers[0].Image; got != "mirror.example:5000/hub/kube-node-ready/kube-node-ready:v0.1.0" {
		t.Errorf("image %q", got)
	}
	var secrets []string
	for _, s := range pod.ImagePullSecrets {
		secrets = append(secrets, s.Name)
	}
	if !slices.Equal(secrets, []string{"own", "mirror", "second"}) {
		t.Errorf("pull secrets %q", secrets)
	}
	for key, object := range found {
		if object.GetNamespace() == "release" {
			t.Errorf("%s is in the release's namespace", key)
		}
		if strings.Contains(key, "ConfigMap platform/shared-gate-controller-") {
			config, _ := object.Object["data"].(map[string]any)["config.yaml"].(string)
			for _, want := range []string{"repository: mirror.example:5000/hub/kube-node-ready/kube-node-ready", "name: second"} {
				if !strings.Contains(config, want) {
					t.Errorf("the workers' configuration lacks %q:\n%s", want, config)
				}
			}
		}
	}
	for _, values := range []string{"kube-node-ready: {enabled: false}", "kube-node-ready: {enabled: false, serviceMonitor: {enabled: true}, extraObjects: [{kind: A}]}"} {
		if left := run(values); len(left) > 0 {
			t.Errorf("%s leaves %d objects", values, len(left))
		}
	}
}

// Without a parent, too, the value switches everything off.
func TestDisabledInstallsNothing(t *testing.T) {
	if left := render(t, "enabled: false"); len(left) > 0 {
		t.Errorf("%d objects are left", len(left))
	}
}
