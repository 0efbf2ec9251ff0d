package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// A pod that the kubelet refuses is inconclusive, and the next one goes through kube-scheduler.
func TestRejectedPodGoesThroughTheScheduler(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "300m"}}}))
	s.controller()
	filler := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "filler"}, Spec: corev1.PodSpec{
		NodeName: s.name + "-a", ServiceAccountName: "kube-node-ready-worker", PriorityClassName: "system-node-critical", // or it would be preempted
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "c", Image: tools, Command: []string{"/bin/sleep", "3600"}, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("800m")}}}},
	}}
	s.must(k8s.CoreV1().Pods(s.name).Create(s.ctx, filler, metav1.CreateOptions{}))
	n := s.played("a", []act{outOfCPU, passes}, func(n *nodeagent.NodeSpec) {
		n.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10")}
	})
	s.becomes(n.Name, "refused by the kubelet", func(f marks.Facts) bool {
		return f.Record.LastReason == attempt.ReasonKubeletRejected && f.Record.Attempts == 0
	})
	s.becomes(n.Name, "unschedulable", func(f marks.Facts) bool {
		return f.Record.LastReason == attempt.ReasonUnschedulable && f.Record.Attempts == 0
	})
	s.must(nil, k8s.CoreV1().Pods(s.name).Delete(s.ctx, "filler", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	s.becomes(n.Name, "verified", isVerified)
}

func orEmpty(err error) any {
	if err == nil {
		return ""
	}
	return err
}

// The worker ends itself at its deadline and says which check hung.
func TestRaceSlowWorkerFails(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"timeoutSeconds": 2}), execCheck("sleep", "600"), set("reconciliation", map[string]any{"maxRetries": 1}))
	s.controller()
	n := s.node("a")
	f := s.becomes(n.Name, "exhausted", says(marks.ReasonRetriesExhausted))
	if f.Record.LastCheck != "slow" || f.Record.Attempts != 1 {
		t.Errorf("%+v", f.Record)
	}
}

// The start-up taints of others keep no worker off; it does not matter how it gets onto the node.
func TestWorkersTolerateStartupTaints(t *testing.T) {
	for _, scheduling := range []string{"direct", "scheduler"} {
		t.Run(scheduling, func(t *testing.T) {
			s := begin(t, set("worker", map[string]any{"scheduling": scheduling}))
			s.controller()
			n := s.node("a", func(n *nodeagent.NodeSpec) {
				n.Taints = append(n.Taints, corev1.Taint{Key: "node.cilium.io/agent-not-ready", Value: "true", Effect: corev1.TaintEffectNoExecute},
					corev1.Taint{Key: "ebs.csi.aws.com/agent-not-ready", Effect: corev1.TaintEffectNoSchedule})
			})
			s.becomes(n.Name, "verified", isVerified)
			if have, _ := s.get(n.Name); len(have.Spec.Taints) != 2 {
				t.Errorf("of others' taints are left %v", have.Spec.Taints)
			}
		})
	}
}
