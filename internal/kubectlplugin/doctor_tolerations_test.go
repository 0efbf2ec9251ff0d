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
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// A rule whose taint the controller does not tolerate is named, unless the controller's next pod is given the toleration.
func TestRulesThatKeepTheControllerOff(t *testing.T) {
	ruleCreated := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	adding := func(p corev1.Pod) corev1.Pod {
		p.Annotations = map[string]string{"node-ready/rule-tolerations": "added"}
		return p
	}
	pod := func(age time.Duration, keys ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller-a", CreationTimestamp: metav1.NewTime(ruleCreated.Add(-age))}}
		for _, key := range keys {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
		return p
	}
	const key, older, younger = "readiness.k8s.io/agent", time.Hour, -time.Hour
	for name, tc := range map[string]struct {
		effect, config, component string
		pods                      []corev1.Pod
		finds                     bool
	}{
		"tolerated":                          {pods: []corev1.Pod{pod(older, key)}},
		"not tolerated":                      {pods: []corev1.Pod{pod(older)}, finds: true},
		"another key is":                     {pods: []corev1.Pod{pod(younger, "readiness.k8s.io/a")}, finds: true},
		"one replica does not":               {pods: []corev1.Pod{pod(older, key), pod(older)}, finds: true},
		"all taints are":                     {pods: []corev1.Pod{pod(older, "")}},
		"an effect that keeps nothing off":   {effect: "PreferNoSchedule", pods: []corev1.Pod{pod(older)}},
		"one that evicts":                    {effect: "NoExecute", pods: []corev1.Pod{pod(older)}, finds: true},
		"the next pod tolerates it":          {pods: []corev1.Pod{adding(pod(older))}},
		"and should have":                    {pods: []corev1.Pod{adding(pod(younger))}, finds: true},
		"rules are not served":               {config: "rules: {enabled: false}", pods: []corev1.Pod{pod(older)}},
		"there is no controller to keep off": {component: componentDaemonSet, pods: []corev1.Pod{pod(older)}},
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
			v := &invocation{cluster: &cluster{client: fake.NewClientset(), config: configuration(t, tc.config), component: tc.component,
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
