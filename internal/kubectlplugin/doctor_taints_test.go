package kubectlplugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// After a taint was renamed, doctor names the nodes that still carry the earlier one.
func TestDoctorOfEarlierTaints(t *testing.T) {
	old := func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }
	young := func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }
	inPool := func(n *corev1.Node) { n.Labels[owner.LabelNodePool] = "default" }
	owned := annotated(marks.AnnotationRules, marks.Owned{"uid-r": {Key: "readiness.k8s.io/orphan", Effect: corev1.TaintEffectNoSchedule}}.Encode())
	const renamed = `{"nodeManagement":{"taints":[{"key":"example.com/gate","effect":"NoSchedule"}]}}`
	for name, tc := range map[string]struct {
		config, other string // of another installation
		nodes         [][]change
		finds, notes  string // none: nothing
	}{
		"no node":                     {config: renamed},
		"the default key":             {config: renamed, nodes: [][]change{{old, gated}, {old}, {old, gated, labelled}}, finds: "has the taint node-ready/unverified:NoSchedule, so nobody removes it from n0, n2: it may be"},
		"a rule's prefix":             {nodes: [][]change{{old, tainted("readiness.k8s.io/node-ready")}}, finds: "the taint readiness.k8s.io/node-ready:NoSchedule, so nobody removes it from n0"},
		"it gates now":                {nodes: [][]change{{old, gated}}},
		"the new one":                 {config: renamed, nodes: [][]change{{old, tainted("example.com/gate")}}},
		"another installation's":      {config: renamed, other: "{}", nodes: [][]change{{old, gated}}},
		"a rule's":                    {nodes: [][]change{{old, tainted("readiness.k8s.io/agent")}}},
		"a deleted rule's, in a bit":  {nodes: [][]change{{old, tainted("readiness.k8s.io/orphan"), owned}}},
		"a new node":                  {config: renamed, nodes: [][]change{{young, gated}}},
		"on its way out":              {config: renamed, nodes: [][]change{{old, gated, leaving}}},
		"a start-up taint":            {nodes: [][]change{{old, tainted("example.com/gate"), inPool}}, notes: "n0, older than 10m0s, have the taint example.com/gate:NoSchedule, which the autoscaler expects"},
		"a pool's, on a node of none": {nodes: [][]change{{old, tainted("example.com/gate")}}},
		"Cluster Autoscaler's prefix": {nodes: [][]change{{old, tainted("startup-taint.cluster-autoscaler.kubernetes.io/x")}}, notes: "have the taint startup-taint.cluster-autoscaler.kubernetes.io/x:NoSchedule"},
		"somebody's own":              {nodes: [][]change{{old, tainted("dedicated"), tainted("node.kubernetes.io/unreachable"), inPool}}},
	} {
		client := fake.NewClientset()
		for i, changes := range tc.nodes {
			n := makeNode(changes...)
			n.Name = fmt.Sprintf("n%d", i)
			if err := client.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
		}
		if tc.other != "" {
			other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "b", Labels: map[string]string{
				workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController}}, Data: map[string]string{configKey: tc.other}}
			if err := client.Tracker().Add(other); err != nil {
				t.Fatal(err)
			}
		}
		rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"taint": map[string]any{"key": "readiness.k8s.io/agent", "effect": "NoSchedule"}}}}
		rule.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeReadinessRule"))
		rule.SetName("agent")
		pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"startupTaints": []any{map[string]any{"key": "example.com/gate", "effect": "NoSchedule"}}}}}}}
		pool.SetGroupVersionKind(nodepool.Resource.GroupVersion().WithKind("NodePool"))
		pool.SetName("default")
		v := &invocation{now: now, cluster: &cluster{client: client, namespace: "ns", config: configuration(t, tc.config),
			dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				nodepool.Resource: "NodePoolList", v1alpha1.GroupVersion.WithResource(v1alpha1.Resource): "NodeReadinessRuleList"}, rule, pool)}}
		var d diagnosis
		if err := examineEarlierTaints(t.Context(), v, &d); err != nil {
			t.Fatal(err)
		}
		for want, got := range map[string][]finding{"f" + tc.finds: d.Findings, "n" + tc.notes: d.Notes} {
			if want = want[1:]; (want == "") != (len(got) == 0) || len(got) > 1 ||
				want != "" && (!strings.Contains(got[0].What, want) || !strings.Contains(got[0].Fix, "kubectl taint nodes NODE")) {
				t.Errorf("%s: %+v, want %q", name, got, want)
			}
		}
	}
}
