package kubectlplugin

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
)

const (
	karpenterKey = "readiness.k8s.io/node-ready"
	scalerKey    = "startup-taint.cluster-autoscaler.kubernetes.io/node-ready"
	// twoKeys gives Karpenter's nodes one key and all others the other.
	twoKeys = `{admission: {mode: policy}, nodeManagement: {taints: [{key: ` + scalerKey + `, effect: NoSchedule}]},
		profiles: [{name: karpenter, nodeSelector: {matchExpressions: [{key: karpenter.sh/nodepool, operator: Exists}]},
			taints: [{key: ` + karpenterKey + `, effect: NoSchedule}]}]}`
	oneKey = `{admission: {mode: policy}, nodeManagement: {taints: [{key: ` + karpenterKey + `, effect: NoSchedule}]}}`
)

// autoscalerDiagnosis is what doctor finds in a cluster with these objects and a NodePool "a" with these startupTaints.
func autoscalerDiagnosis(t *testing.T, settings string, startup []any, objects ...runtime.Object) diagnosis {
	t.Helper()
	pool := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"startupTaints": startup}}}}}
	pool.SetGroupVersionKind(nodepool.Kind)
	client := fake.NewClientset(objects...)
	v := &invocation{now: now, cluster: &cluster{client: client, config: configuration(t, settings),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodepool.Resource: "NodePoolList"}, pool)}}
	d := diagnosis{check: "autoscaler"}
	if err := examineAutoscaler(t.Context(), v, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func karpenterDeployment(image, label string) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/version": label}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter", Labels: labels}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller", Image: image}}
	return d
}

// Which key Karpenter knows depends on its version, which the tag or the label of its Deployment has.
func TestDoctorKnowsKarpentersVersion(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	listed := []any{map[string]any{"key": karpenterKey, "effect": "NoSchedule"}}
	for name, c := range map[string]struct {
		image, label  string
		startup       []any
		finding, note string
	}{
		"old":                      {image: "public.ecr.aws/karpenter/controller:1.12.1" + digest, finding: "Karpenter 1.12.1 (Deployment kube-system/karpenter) does not know"},
		"old, and listed":          {image: "public.ecr.aws/karpenter/controller:1.12.1", startup: listed},
		"new":                      {image: "public.ecr.aws/karpenter/controller:v1.13.0"},
		"from a mirror":            {image: "mirror.example.com/ecr/karpenter/controller:1.9.0", finding: "Karpenter 1.9.0"},
		"by digest, with a label":  {image: "public.ecr.aws/karpenter/controller" + digest, label: "1.14.1"},
		"by digest, without label": {image: "public.ecr.aws/karpenter/controller" + digest, note: "the version of Karpenter is unknown"},
		"another provider's":       {image: "example.com/karpenter-provider/other:0.3.1", note: "the version of Karpenter is unknown"},
	} {
		d := autoscalerDiagnosis(t, oneKey, c.startup, karpenterDeployment(c.image, c.label))
		checkFindings(t, name+": findings", d.Findings, c.finding)
		checkFindings(t, name+": notes", d.Notes, c.note)
	}
	d := autoscalerDiagnosis(t, oneKey, nil)
	checkFindings(t, "run by a cloud: notes", d.Notes, "the version of Karpenter is unknown")
}

// Two autoscalers in one cluster know one key each, and a node has one of them.
func TestDoctorKnowsEachAutoscalersKey(t *testing.T) {
	newKarpenter := karpenterDeployment("public.ecr.aws/karpenter/controller:1.14.1", "")
	scaler := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "s", Labels: map[string]string{"app": "cluster-autoscaler"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"./cluster-autoscaler", "--v=4"}}}}}
	pooled := label("karpenter.sh/nodepool", "a")
	for name, c := range map[string]struct {
		settings string
		node     *corev1.Node
		want     string
	}{
		"each its own":                {twoKeys, makeNode(tainted(scalerKey)), ""},
		"Karpenter's node":            {twoKeys, makeNode(pooled, tainted(karpenterKey)), ""},
		"the other's key":             {twoKeys, makeNode(tainted(karpenterKey)), "Cluster Autoscaler does not know the gating taint " + karpenterKey},
		"the other's key on creation": {oneKey, makeNode(), "Cluster Autoscaler does not know the gating taint " + karpenterKey},
		"Karpenter's node with the other's key": {twoKeys, makeNode(pooled, tainted(scalerKey)),
			"NodePool a does not list the gating taint " + scalerKey},
	} {
		d := autoscalerDiagnosis(t, c.settings, nil, newKarpenter, scaler, c.node)
		checkFindings(t, name, d.Findings, c.want)
		checkFindings(t, name+": notes", d.Notes, "")
	}
	both := autoscalerDiagnosis(t, twoKeys, nil, newKarpenter, makeNode(tainted(scalerKey), tainted(karpenterKey)))
	checkFindings(t, "both keys", both.Findings, "node n has gating taints with the keys of both Karpenter and Cluster Autoscaler")
}

// checkFindings expects one finding that begins with want, or none.
func checkFindings(t *testing.T, name string, got []finding, want string) {
	t.Helper()
	if want == "" && len(got) == 0 {
		return
	}
	if want == "" || len(got) != 1 || !strings.HasPrefix(got[0].What, want) || got[0].Check != "autoscaler" || got[0].Fix == "" {
		t.Errorf("%s: %+v, want %q", name, got, want)
	}
}
