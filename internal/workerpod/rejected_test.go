package workerpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// A kubelet's rejection proves nothing about its node. If a node selector that the pod got is the cause, the message
// names it, and the cure (openshift/origin#19678).
func TestAKubeletsRejection(t *testing.T) {
	selector := func(p *corev1.Pod) {
		p.Spec.NodeSelector["region"], p.Spec.NodeSelector["app"] = "west", "web"
	}
	affinity := func(p *corev1.Pod) {
		p.Spec.Affinity = pinnedTo("node-a")
		term := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		term.MatchExpressions = []corev1.NodeSelectorRequirement{{Key: "tier", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}}
	}
	pinned := func(p *corev1.Pod) { p.Spec.Affinity = pinnedTo("node-a") }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		says string // of the selector; empty: nothing
	}{
		"no CPU":                         {status(t, whole("OutOfcpu")), ""},
		"too many pods":                  {status(t, whole("OutOfpods")), ""},
		"no CPU, and a selector":         {status(t, whole("OutOfcpu"), selector), ""},
		"the controller's own selector":  {status(t, whole("NodeAffinity")), ""},
		"the controller's own affinity":  {status(t, whole("NodeAffinity"), pinned), ""},
		"a namespace's default selector": {status(t, whole("NodeAffinity"), selector), "the pod got the node selector app=web, region=west, "},
		"a webhook's affinity":           {status(t, whole("NodeAffinity"), affinity), "the pod got the node selector tier In [a b], "},
	} {
		r := Observe(tc.pod).Attempt.Result
		if r == nil || r.Outcome != attempt.Inconclusive || r.Reason != attempt.ReasonKubeletRejected || r.Check != "" {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		named := strings.Contains(r.Message, "the pod got")
		if named != (tc.says != "") || !strings.Contains(r.Message, tc.says) || named && !strings.HasSuffix(r.Message, `openshift.io/node-selector: ""`) {
			t.Errorf("%s: %q", name, r.Message)
		}
	}

	// The next attempt goes through kube-scheduler, which finds no node for the same reason.
	b, profile := builder(t)
	pod := b.Verify(nodeA, profile, 2, config.SchedulingScheduler)
	pod.Status.Phase, pod.Spec.NodeSelector["region"] = corev1.PodPending, "west"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}
	if got := Observe(pod).Unschedulable; !strings.Contains(got, "0/3 nodes are available; the pod got the node selector region=west, ") {
		t.Errorf("unschedulable: %q", got)
	}
}
