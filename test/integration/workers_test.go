package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// An image that is not there says nothing about the node; once it is, the node verifies by itself.
func TestMissingImageIsInconclusive(t *testing.T) {
	s := begin(t, set("nodeManagement", map[string]any{"deleteFailedNodes": true}))
	s.controller()
	// So often that it lasts well over the ten seconds after which a condition whose reasons take turns is written.
	n := s.played("a", append(slices.Repeat([]act{pullBackOff}, 12), passes))
	f := s.becomes(n.Name, "inconclusive more often than retries are", func(f marks.Facts) bool { return f.Record.Inconclusive > 2 })
	if f.Record.Attempts != 0 || f.Record.LastReason != attempt.ReasonImagePull {
		t.Errorf("%+v", f.Record)
	}
	s.becomes(n.Name, "shown as inconclusive", says(marks.ReasonWorkerInconclusive))
	s.becomes(n.Name, "verified", isVerified)
}

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

// A worker that somebody deletes, gently or by force, is inconclusive.
func TestDeletedWorker(t *testing.T) {
	for name, grace := range map[string]*int64{"gently": nil, "by-force": ptr.To(int64(0))} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, execCheck("sleep", "4"))
			s.controller()
			n := s.node("a")
			s.whenRunning(n.Name, func(p corev1.Pod) error {
				return k8s.CoreV1().Pods(s.name).Delete(s.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
			})
			f := s.becomes(n.Name, "inconclusive", func(f marks.Facts) bool { return f.Record.Inconclusive == 1 })
			if f.Record.Attempts != 0 || f.Record.LastReason != attempt.ReasonPodDeleted {
				t.Errorf("%+v", f.Record)
			}
			if f := s.becomes(n.Name, "verified", isVerified); f.Record.Sequence != 2 {
				t.Errorf("%+v", f.Record)
			}
		})
	}
}

// whenRunning waits until a worker runs on the node and does something to it.
func (s *suite) whenRunning(name string, do func(corev1.Pod) error) {
	s.Helper()
	s.eventually("a worker runs on "+name, func() string {
		for _, p := range s.workers(name) {
			if p.Status.Phase == corev1.PodRunning {
				return fmt.Sprint(orEmpty(do(p)))
			}
		}
		return "not yet"
	})
}

func orEmpty(err error) any {
	if err == nil {
		return ""
	}
	return err
}

func TestKilledWorkers(t *testing.T) {
	for name, kill := range map[string]struct {
		act    act
		reason string
	}{
		"oom":     {oomKilled, attempt.ReasonOOMKilled},
		"evicted": {evicted, attempt.ReasonEvicted},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			s.controller()
			n := s.played("a", []act{kill.act, passes})
			f := s.becomes(n.Name, "inconclusive", func(f marks.Facts) bool { return f.Record.Inconclusive == 1 })
			if f.Record.Attempts != 0 || f.Record.LastReason != kill.reason {
				t.Errorf("%+v", f.Record)
			}
			s.becomes(n.Name, "verified", isVerified)
		})
	}
}

// The worker ends itself at its deadline and says which check hung.
func TestSlowWorkerFails(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"timeoutSeconds": 2}), execCheck("sleep", "600"), set("reconciliation", map[string]any{"maxRetries": 1}))
	s.controller()
	n := s.node("a")
	f := s.becomes(n.Name, "exhausted", says(marks.ReasonRetriesExhausted))
	if f.Record.LastCheck != "slow" || f.Record.Attempts != 1 {
		t.Errorf("%+v", f.Record)
	}
}

// A kubelet that stops reporting while the worker runs: the attempt says nothing about the node.
func TestLostNode(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"timeoutSeconds": 1, "checkTimeoutSeconds": 1}))
	s.controller()
	n := s.played("a", []act{hangs})
	s.whenRunning(n.Name, func(corev1.Pod) error { return s.fallsSilent(n.Name) })
	f := s.becomes(n.Name, "inconclusive", func(f marks.Facts) bool { return f.Record.Inconclusive > 0 })
	if f.Record.Attempts != 0 || f.Record.LastReason != attempt.ReasonNodeLost {
		t.Errorf("%+v", f.Record)
	}
	s.eventually("its worker, which nobody else evicts, is ended", func() string {
		for _, p := range s.workers(n.Name) {
			if p.DeletionTimestamp == nil {
				return p.Name
			}
		}
		return ""
	})
}

// Pods that lack what ours have prove nothing and cannot keep the real worker from running: one that is only labelled like a
// worker, and one that has an attempt's name without the Node as its owner. Who forges both is beyond the trust boundary in
// docs/design/security.md.
func TestPodThatOnlyLooksLikeAWorker(t *testing.T) {
	s := begin(t)
	n := s.node("a", dns(nodeagent.DNSRefuses))
	have, _ := s.get(n.Name)
	target := workerpod.Target{Name: n.Name, UID: string(have.UID)}
	forge := func(name string, attempt string) {
		s.must(k8s.CoreV1().Pods(s.name).Create(s.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name,
				Labels:      map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component, workerpod.LabelNodeUID: string(have.UID), workerpod.LabelPurpose: workerpod.PurposeVerify},
				Annotations: map[string]string{workerpod.AnnotationNode: n.Name, workerpod.AnnotationAttempt: attempt}},
			Spec: corev1.PodSpec{NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: workerpod.Container, Image: tools, Command: []string{"/bin/true"}}}},
		}, metav1.CreateOptions{}))
	}
	forge("forged", "1")
	forge(workerpod.VerifyName(target, 1), "1") // takes the first attempt's name, but is not owned by the node
	s.eventually("both succeeded", func() string {
		done := 0
		for _, p := range s.workers(n.Name) {
			if p.Status.Phase == corev1.PodSucceeded {
				done++
			}
		}
		if done != 2 {
			return fmt.Sprint(done)
		}
		return ""
	})
	s.controller()
	f := s.becomes(n.Name, "exhausted by the real checks", says(marks.ReasonRetriesExhausted))
	if !f.Gated || f.Record.Attempts != 2 || f.Record.Inconclusive != 1 {
		t.Errorf("%+v", f.Record)
	}
	s.hasEvents(n.Name, map[string]int{"VerificationInconclusive": 1}) // the taken name
}

// The last failed pod stays for its logs, and then goes.
func TestFailedPodIsKeptAndReaped(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"keepFailedSeconds": 4}), set("reconciliation", map[string]any{"maxRetries": 1, "exhaustedRetrySeconds": -1}))
	s.controller()
	n := s.node("a", dns(nodeagent.DNSRefuses))
	s.becomes(n.Name, "exhausted", says(marks.ReasonRetriesExhausted))
	if len(s.workers(n.Name)) != 1 {
		t.Error("the failed pod is gone at once")
	}
	s.eventually("it is reaped", func() string {
		if left := s.workers(n.Name); len(left) > 0 {
			return left[0].Name
		}
		return ""
	})
}

// Without its record an exhausted node starts afresh, though a failed pod of the old run still has a name that the new one needs.
func TestRemovingTheRecordStartsAfresh(t *testing.T) {
	s := begin(t, set("reconciliation", map[string]any{"maxRetries": 1}))
	s.controller()
	n := s.node("a", dns(nodeagent.DNSRefuses))
	s.becomes(n.Name, "exhausted", says(marks.ReasonRetriesExhausted))
	s.eventually("the failed pod is marked", func() string {
		if p := s.workers(n.Name); len(p) == 1 && p[0].Annotations[workerpod.AnnotationRecorded] == "true" {
			return ""
		}
		return "not yet"
	})
	if err := n.SetDNS(nodeagent.DNSWorks); err != nil {
		t.Fatal(err)
	}
	s.patchNode(n.Name, `{"metadata":{"annotations":{"node-ready/record":null}}}`)
	s.becomes(n.Name, "verified", isVerified)
}

// The API server refuses the pod: an operator can see why, and no retry is spent.
func TestRefusedPodIsShown(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"serviceAccountName": "not-there"}))
	s.controller()
	n := s.node("a")
	f := s.becomes(n.Name, "inconclusive", func(f marks.Facts) bool { return f.Record.Inconclusive > 0 && says(marks.ReasonWorkerInconclusive)(f) })
	if f.Record.Attempts != 0 || f.Record.LastReason != attempt.ReasonPodRefused || !strings.Contains(f.Condition.Message, "not-there") {
		t.Errorf("%+v %s", f.Record, f.Condition.Message)
	}
	s.must(k8s.CoreV1().ServiceAccounts(s.name).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "not-there"}}, metav1.CreateOptions{}))
	s.eventually("the node is tried with its own service account", func() string {
		if _, f := s.get(n.Name); f.Record.LastReason == attempt.ReasonPodRefused {
			return f.Record.LastMessage
		}
		return ""
	})
}

// The pod's fields are the real Kubernetes types and reach the pod; groups of nodes have their own checks.
func TestPodFieldsAndProfiles(t *testing.T) {
	s := begin(t, set("worker", map[string]any{
		"initContainers": []any{map[string]any{"name": "warm", "image": tools, "command": []any{"/bin/true"}}},
		"env":            []any{map[string]any{"name": "EXTRA", "value": "1"}},
		"podLabels":      map[string]any{"team": "infra"},
		"podAnnotations": map[string]any{"note": "x"},
		"tolerations":    []any{map[string]any{"key": "dedicated", "operator": "Exists"}},
		"resources":      map[string]any{"limits": map[string]any{"memory": "64Mi"}},
	}), func(c map[string]any) {
		c["profiles"] = []any{map[string]any{"name": "gpu", "nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "gpu"}},
			"taints": []any{map[string]any{"key": "gpu/unverified", "effect": "NoSchedule"}},
			"checks": []any{map[string]any{"name": "never", "type": "exec", "exec": map[string]any{"command": []any{"false"}}}}}}
	})
	s.controller()
	plain := s.played("plain", []act{passes})
	gpu := s.played("gpu", []act{fails(s.name+"-gpu", "never")}, func(n *nodeagent.NodeSpec) {
		n.Labels["pool"] = "gpu"
		n.Taints = []corev1.Taint{{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule}}
	})
	s.eventually("the GPU node fails its own check", func() string {
		have, err := k8s.CoreV1().Nodes().Get(s.ctx, gpu.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		f := marks.Observe(have, marks.Vocabulary{Gating: []marks.Taint{{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule}}, Verified: vocabulary.Verified})
		if f.Record.LastCheck != "never" || !f.Gated {
			return fmt.Sprintf("%+v", f.Record)
		}
		return ""
	})
	kept := s.workers(gpu.Name)
	if len(kept) == 0 {
		t.Fatal("the failed worker is not kept")
	}
	for _, p := range kept {
		c := p.Spec.Containers[0]
		if len(p.Spec.InitContainers) != 1 || p.Labels["team"] != "infra" || p.Annotations["note"] != "x" || c.Resources.Limits.Memory().String() != "64Mi" {
			t.Errorf("%+v", p)
		}
	}
	s.becomes(plain.Name, "verified", isVerified)
}

// Somebody takes the taint away while a worker runs: the node is theirs again, and the worker goes.
func TestTaintTakenAway(t *testing.T) {
	s := begin(t, execCheck("sleep", "600"))
	s.controller()
	n := s.node("a")
	s.whenRunning(n.Name, func(corev1.Pod) error { return nil })
	s.patchNode(n.Name, `{"spec":{"taints":null}}`)
	s.eventually("the worker is gone", func() string {
		if left := s.workers(n.Name); len(left) > 0 {
			return left[0].Name
		}
		return ""
	})
	s.stays(500*time.Millisecond, n.Name, "left alone", func(f marks.Facts) bool { return !f.HasRecord && !f.Gated && !f.Labelled })
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
