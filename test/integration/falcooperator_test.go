package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const falcoExample = "../../examples/falco-operator"

// The example for the Falco Operator, whose part is played: Falco's pod comes to the gated node, and the node is released once
// that is Ready and every artifact Programmed.
func TestRaceFalcoOperatorExample(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(falcoExample, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Controller struct {
			Config struct{ NodeManagement map[string]any }
		}
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	s := begin(t, set("nodeManagement", values.Controller.Config.NodeManagement), set("reconciliation", map[string]any{"intervalSeconds": 3600}))
	s.installFalcoOperator()
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "app.kubernetes.io/name=falco")

	manifest, err := os.ReadFile(filepath.Join(falcoExample, "falco.yaml"))
	s.must(manifest, err)
	s.must(nil, install.Apply(s.ctx, control, manifest))
	s.runFalco()
	for _, artifact := range []string{"Rulesfile", "Plugin", "Config"} {
		s.waits(n.Name, artifact)
		s.program(artifact, map[string]string{"Rulesfile": "falco-rules", "Plugin": "container", "Config": "json-output"}[artifact])
	}
	s.becomes(n.Name, "verified", isVerified)
}

// installFalcoOperator makes the operator's kinds.
func (s *suite) installFalcoOperator() {
	s.Helper()
	type kind struct {
		Group, Kind, Plural string
		Artifact            bool
	}
	const instance, artifact = "instance.falcosecurity.dev", "artifact.falcosecurity.dev"
	var crds bytes.Buffer
	s.must(nil, template.Must(template.ParseFiles("testdata/falco-operator-crds.yaml")).Execute(&crds, []kind{
		{instance, "Falco", "falcos", false}, {instance, "Component", "components", false},
		{artifact, "Rulesfile", "rulesfiles", true}, {artifact, "Plugin", "plugins", true}, {artifact, "Config", "configs", true}}))
	s.must(nil, install.Apply(s.ctx, control, crds.Bytes()))
	s.eventually("the kinds are served", func() string {
		if _, err := k8s.Discovery().ServerResourcesForGroupVersion(artifact + "/v1alpha1"); err != nil {
			return err.Error()
		}
		return ""
	})
}

func falcoResource(group, plural string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(control.Config()).Resource(schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: plural}).Namespace("falco")
}

// runFalco does what the operator makes of a Falco: a DaemonSet of its name, with its pod template and labels.
func (s *suite) runFalco() {
	s.Helper()
	falco, err := falcoResource("instance.falcosecurity.dev", "falcos").Get(s.ctx, "falco", metav1.GetOptions{})
	s.must(falco, err)
	var pod corev1.PodTemplateSpec
	given, _, err := unstructured.NestedMap(falco.Object, "spec", "podTemplateSpec")
	s.must(given, err)
	s.must(nil, runtime.DefaultUnstructuredConverter.FromUnstructured(given, &pod))
	pod.Labels = map[string]string{"app.kubernetes.io/name": falco.GetName(), "app.kubernetes.io/instance": falco.GetName()}
	pod.Spec.NodeSelector = map[string]string{testLabel: s.name}
	pod.Spec.Containers = []corev1.Container{{Name: "falco", Image: tools, Command: []string{"/bin/sleep", "3600"}}}
	s.must(k8s.AppsV1().DaemonSets("falco").Create(s.ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: falco.GetName()},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}}, metav1.CreateOptions{}))
}

// program does what the operator does once an artifact is on every node.
func (s *suite) program(kind, name string) {
	s.Helper()
	artifacts := falcoResource("artifact.falcosecurity.dev", map[string]string{"Rulesfile": "rulesfiles", "Plugin": "plugins", "Config": "configs"}[kind])
	object, err := artifacts.Get(s.ctx, name, metav1.GetOptions{})
	s.must(object, err)
	object.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Programmed", "status": "True", "reason": "Programmed", "message": "",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
	s.must(artifacts.UpdateStatus(s.ctx, object, metav1.UpdateOptions{}))
}
