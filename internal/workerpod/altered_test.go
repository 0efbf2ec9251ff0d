package workerpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// What an API server and harmless policies add to a pod is no alteration. What takes the pod from its node, or makes it
// another's, is one, and it is named.
func TestAltered(t *testing.T) {
	label := corev1.NodeSelectorRequirement{Key: "pool", Operator: corev1.NodeSelectorOpExists}
	for name, test := range map[string]struct {
		open   bool
		via    config.Scheduling
		change func(*corev1.Pod)
		want   string
	}{
		"as it was sent": {change: func(*corev1.Pod) {}},
		"what the API server adds": {change: func(p *corev1.Pod) {
			p.UID, p.Spec.Priority, p.Spec.SchedulerName = "uid", ptr.To[int32](0), "default-scheduler"
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeNotReady, TolerationSeconds: ptr.To[int64](300)})
		}},
		"more labels and a further constraint": {via: config.SchedulingScheduler, change: func(p *corev1.Pod) {
			p.Labels["team"], p.Annotations["policy"] = "infra", "applied"
			terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			terms[0].MatchExpressions = append(terms[0].MatchExpressions, label)
		}},
		"an affinity beside the binding":  {via: config.SchedulingDirect, change: func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} }},
		"a second owner":                  {change: func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{UID: "x"}) }},
		"bound by the scheduler":          {via: config.SchedulingScheduler, change: func(p *corev1.Pod) { p.Spec.NodeName = "node-a" }},
		"a critical priority at the gate": {change: func(p *corev1.Pod) { p.Spec.Priority = ptr.To(criticalPriority) }},
		"no binding":                      {via: config.SchedulingDirect, change: func(p *corev1.Pod) { p.Spec.NodeName = "" }, want: "spec.nodeName"},
		"another binding":                 {via: config.SchedulingDirect, change: func(p *corev1.Pod) { p.Spec.NodeName = "b" }, want: "spec.nodeName"},
		"no pin":                          {via: config.SchedulingScheduler, change: func(p *corev1.Pod) { p.Spec.Affinity = nil }, want: "spec.affinity"},
		"another owner":                   {change: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" }, want: "metadata.ownerReferences"},
		"another node's label":            {change: func(p *corev1.Pod) { p.Labels[LabelNodeUID] = "x" }, want: "metadata.labels[node-ready/node-uid]"},
		"another boot":                    {change: func(p *corev1.Pod) { p.Annotations[AnnotationBootID] = "x" }, want: "metadata.annotations[node-ready/boot-id]"},
		"an annotation of ours":           {change: func(p *corev1.Pod) { p.Annotations[AnnotationSubject] = "x" }, want: "metadata.annotations[node-ready/subject]"},
		"other tolerations":               {change: func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "x" }, want: "spec.tolerations"},
		"a critical priority among workloads": {open: true, change: func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority = "system-node-critical", ptr.To(criticalPriority+1000)
		}, want: "spec.priorityClassName"},
	} {
		b, profile := builder(t)
		target := nodeA
		target.Gated = !test.open
		sent := b.Verify(target, profile, 1, test.via)
		stored := sent.DeepCopy()
		test.change(stored)
		if got := Altered(sent, stored); (got != "") != (test.want != "") || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
