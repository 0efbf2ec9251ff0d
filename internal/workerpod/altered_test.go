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

// A probe that was changed names its host as long as one of its marks does, and no other pod is taken for one.
func TestAlteredProbe(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"as it was made":        {func(*corev1.Pod) {}, ""},
		"bound to another node": {func(p *corev1.Pod) { p.Spec.NodeName = "b" }, nodeA.Name},
		"no pin":                {func(p *corev1.Pod) { p.Spec.Affinity = nil }, nodeA.Name},
		"no owner":              {func(p *corev1.Pod) { p.OwnerReferences = nil }, nodeA.Name},
		"no labels":             {func(p *corev1.Pod) { p.Labels = nil }, nodeA.Name},
		"no annotations":        {func(p *corev1.Pod) { p.Annotations = nil }, nodeA.Name},
		"another node's mark":   {func(p *corev1.Pod) { p.Annotations[AnnotationNode] = "b" }, nodeA.Name},
		"neither owner nor annotation": {func(p *corev1.Pod) {
			p.OwnerReferences, p.Annotations = nil, nil
		}, ""},
		"another namespace":  {func(p *corev1.Pod) { p.OwnerReferences, p.Namespace = nil, "other" }, ""},
		"a worker":           {func(p *corev1.Pod) { p.OwnerReferences, p.Name = nil, VerifyName(nodeA, 1) }, ""},
		"another node's":     {func(p *corev1.Pod) { p.Name = ProbeName(Target{Name: "node-b", UID: "u"}, "x/1") }, ""},
		"a longer name":      {func(p *corev1.Pod) { p.OwnerReferences = nil; p.Name += "0" }, ""},
		"another name's end": {func(p *corev1.Pod) { p.OwnerReferences = nil; p.Name = strings.TrimSuffix(p.Name, "0") + "1" }, ""},
		"another owner's kind": {func(p *corev1.Pod) {
			p.Annotations, p.OwnerReferences[0].Kind = nil, "Job"
		}, ""},
	} {
		b, profile := builder(t)
		pod := b.Probe(nodeA, profile, "x/1", "group")
		test.change(pod)
		if host, altered := AlteredProbe(pod, b.Namespace); host != test.want || altered != (test.want != "") {
			t.Errorf("%s: %q, %t; want %q", name, host, altered, test.want)
		}
	}
}
