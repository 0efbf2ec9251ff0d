package plugin

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

const agentRules = `
apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata: {name: agent}
spec:
  nodeSelector: {matchLabels: {kubernetes.io/hostname: ruled}}
  conditions: [{type: example.com/AgentReady, requiredStatus: "True"}]
  enforcementMode: continuous
  taint: {key: readiness.k8s.io/agent, effect: NoSchedule}
---
apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata: {name: preview}
spec:
  nodeSelector: {matchLabels: {kubernetes.io/hostname: ruled}}
  conditions: [{type: example.com/AgentReady, requiredStatus: "True"}]
  enforcementMode: continuous
  taint: {key: readiness.k8s.io/preview, effect: NoSchedule}
  dryRun: true
`

// onceRule is one that a node passes at once.
const onceRule = `
apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata: {name: once}
spec:
  nodeSelector: {matchLabels: {kubernetes.io/hostname: ruled}}
  conditions: [{type: example.com/AgentReady, requiredStatus: "True"}]
  enforcementMode: bootstrap-only
  taint: {key: readiness.k8s.io/once, effect: NoSchedule}
`

// rules shows that the plugin names the rule and the condition that hold a node.
func (e *environment) rules(ctx context.Context, t *testing.T) {
	const definition = "../../deploy/helm/kube-node-ready/files/nodereadinessrules.yaml"
	inputs.Track(t, definition)
	content, err := os.ReadFile(definition)
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Apply(ctx, e.cluster, content); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ruled", Labels: map[string]string{"kubernetes.io/hostname": "ruled"}}}
	if _, err := e.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if err = install.Apply(ctx, e.cluster, []byte(agentRules)); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	eventually := func(want string, args ...string) ran {
		t.Helper()
		var got ran
		for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			if got = e.run(ctx, args...); strings.Contains(got.out, want) {
				return got
			}
			if time.Now().After(end) {
				t.Fatalf("no %q in %+v", want, got)
			}
		}
	}
	eventually("agent: example.com/AgentReady is Unknown and must be True (taint readiness.k8s.io/agent:NoSchedule)\n", "explain", "ruled")
	got := eventually("Rule agent: example.com/AgentReady is Unknown and must be True\n", "status", "ruled", "-o", "wide")
	if !strings.Contains(got.out, "Held by rules   agent 1\n") {
		t.Errorf("%s", got.out)
	}
	var one struct {
		Rules []struct {
			Name, State, Taint string
			Tainted            bool
			Conditions         []struct{ Type, CurrentStatus, RequiredStatus string }
		}
	}
	if err := json.Unmarshal([]byte(e.run(ctx, "explain", "ruled", "-o", "json").out), &one); err != nil || len(one.Rules) != 2 {
		t.Fatalf("%+v, %v", one, err)
	}
	for _, r := range one.Rules {
		want := map[string]string{"agent": "held", "preview": "dry-run"}[r.Name]
		if r.State != want || r.Tainted != (r.Name == "agent") || len(r.Conditions) != 1 || r.Conditions[0].CurrentStatus != "Unknown" {
			t.Errorf("%+v", r)
		}
	}
	patch := []byte(`{"status":{"conditions":[{"type":"example.com/AgentReady","status":"True"}]}}`)
	if _, err := e.client.CoreV1().Nodes().Patch(ctx, "ruled", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		got := e.run(ctx, "explain", "ruled")
		if got.code == 0 && !strings.Contains(got.out, "Held by rule") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", got)
		}
	}
	// The annotation of a bootstrap-only rule is removed once the rule is gone, since others may serve the rule.
	if err := install.Apply(ctx, e.cluster, []byte(onceRule)); err != nil {
		t.Fatal(err)
	}
	const completed = "readiness.k8s.io/bootstrap-completed-"
	for end := time.Now().Add(time.Minute); !slices.ContainsFunc(slices.Collect(maps.Keys(e.node(ctx, "ruled").Annotations)),
		func(key string) bool { return strings.HasPrefix(key, completed) }); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v", e.node(ctx, "ruled").Annotations)
		}
	}
	if got := e.run(ctx, "remove-marks", "ruled", "--dry-run"); strings.Contains(got.out, completed) {
		t.Errorf("while the rule is there: %+v", got)
	}
	once := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule"}}
	once.SetName("once")
	k, err := client.New(e.cluster.Config(), client.Options{})
	if err == nil {
		err = k.Delete(ctx, once)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually("annotation "+completed, "remove-marks", "ruled", "--dry-run")
	if err := e.client.CoreV1().Nodes().Delete(ctx, "ruled", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
