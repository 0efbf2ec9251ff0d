package kubectlplugin

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// A rule whose taint the controller does not tolerate is named, unless the controller's next pod is given the toleration.
func TestRulesThatKeepTheControllerOff(t *testing.T) {
	ruleCreated := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := func(age time.Duration, keys ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller-a", CreationTimestamp: metav1.NewTime(ruleCreated.Add(-age))}}
		for _, key := range keys {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
		return p
	}
	const key, older, younger = "readiness.k8s.io/agent", time.Hour, -time.Hour
	for name, tc := range map[string]struct {
		server, effect, config, component string
		pods                              []corev1.Pod
		finds                             bool
	}{
		"tolerated":                          {server: "v1.35.2", pods: []corev1.Pod{pod(older, key)}},
		"not tolerated":                      {server: "v1.35.2", pods: []corev1.Pod{pod(older)}, finds: true},
		"another key is":                     {server: "v1.30.0", pods: []corev1.Pod{pod(younger, "readiness.k8s.io/a")}, finds: true},
		"one replica does not":               {server: "v1.33.1-eks-1", pods: []corev1.Pod{pod(older, key), pod(older)}, finds: true},
		"all taints are":                     {server: "v1.35.2", pods: []corev1.Pod{pod(older, "")}},
		"an effect that keeps nothing off":   {server: "v1.35.2", effect: "PreferNoSchedule", pods: []corev1.Pod{pod(older)}},
		"one that evicts":                    {server: "v1.35.2", effect: "NoExecute", pods: []corev1.Pod{pod(older)}, finds: true},
		"the next pod tolerates it":          {server: "v1.36.0", pods: []corev1.Pod{pod(older)}},
		"and should have":                    {server: "v1.36.3-gke.1", pods: []corev1.Pod{pod(younger)}, finds: true},
		"the next one of a later release":    {server: "v1.40.0", pods: []corev1.Pod{pod(older)}},
		"rules are not served":               {server: "v1.35.2", config: "rules: {enabled: false}", pods: []corev1.Pod{pod(older)}},
		"there is no controller to keep off": {server: "v1.35.2", component: componentDaemonSet, pods: []corev1.Pod{pod(older)}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.effect == "" {
				tc.effect = "NoSchedule"
			}
			if tc.component == "" {
				tc.component = componentController
			}
			rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"taint": map[string]any{"key": key, "effect": tc.effect}}}}
			rule.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeReadinessRule"))
			rule.SetName("agent")
			rule.SetCreationTimestamp(metav1.NewTime(ruleCreated))
			client := fake.NewClientset()
			client.Discovery().(*discoveryfake.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: tc.server}
			v := &invocation{cluster: &cluster{client: client, config: configuration(t, tc.config), component: tc.component,
				dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
					v1alpha1.GroupVersion.WithResource(v1alpha1.Resource): "NodeReadinessRuleList"}, rule)}}
			d := diagnosis{check: "tolerations", overview: overview{pods: tc.pods}}
			if err := examineTolerations(t.Context(), v, &d); err != nil {
				t.Fatal(err)
			}
			if found := len(d.Findings) == 1; found != tc.finds || len(d.Findings) > 1 {
				t.Fatalf("found %+v, want a finding: %t", d.Findings, tc.finds)
			}
			if tc.finds && !strings.Contains(d.Findings[0].What, "the taint "+key+":"+tc.effect+" of NodeReadinessRule agent") {
				t.Errorf("%+v", d.Findings)
			}
		})
	}
}
