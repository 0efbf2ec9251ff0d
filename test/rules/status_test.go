package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

func kubectl(args ...string) ([]byte, error) {
	return exec.Command(filepath.Join(control.Bin(), "kubectl"), append([]string{"--kubeconfig", control.Kubeconfig()}, args...)...).CombinedOutput()
}

// The status stays small however many nodes are held, and is not written per node event.
func TestTheStatusIsBounded(t *testing.T) {
	const count = 150
	w := beside(t)
	stream, err := api.Watch(w.ctx, &v1alpha1.NodeReadinessRuleList{})
	w.must(err)
	defer stream.Stop()
	writes := make(chan string, 10000)
	go func() {
		for e := range stream.ResultChan() {
			if r, ok := e.Object.(*v1alpha1.NodeReadinessRule); ok && r.Name == "bounded" {
				writes <- r.ResourceVersion
			}
		}
	}()
	w.rule("bounded", func(r *v1alpha1.NodeReadinessRule) {
		for i := range 9 {
			r.Spec.Conditions = append(r.Spec.Conditions, v1alpha1.ConditionRequirement{Type: fmt.Sprintf("example.com/SomeAgentThatReports-%d", i), RequiredStatus: "True"})
		}
	})
	begun := time.Now()
	join := sync.WaitGroup{}
	for worker := range 8 {
		join.Go(func() {
			for i := worker; i < count; i += 8 {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bounded-ip-10-0-12-%04d.eu-central-1.compute.internal", i), Labels: map[string]string{testLabel: w.name}}}
				if err := api.Create(w.ctx, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	join.Wait()
	w.eventually("every node is held", func() string {
		return w.scraped(fmt.Sprintf(`node_readiness_rule_nodes{rule="bounded",state="held"} %d`, count))
	})
	w.eventually("its status names some", func() string {
		if len(w.read("bounded").Status.AppliedNodes) == 0 {
			return "none"
		}
		return ""
	})
	time.Sleep(6 * time.Second) // another status
	raw, err := kubectl("get", "nrr", "bounded", "-o", "json", "--show-managed-fields")
	w.must(err)
	compact, err := json.Marshal(json.RawMessage(raw))
	w.must(err)
	s := w.read("bounded").Status
	if len(compact) >= 64<<10 || len(s.AppliedNodes) == 0 || len(s.AppliedNodes) > 100 || len(s.NodeEvaluations) != len(s.AppliedNodes) {
		t.Errorf("%d bytes, %d nodes, %d evaluations", len(compact), len(s.AppliedNodes), len(s.NodeEvaluations))
	}
	if most := int(time.Since(begun)/(5*time.Second)) + 4; len(writes) > most { // created, finalizer, first status
		t.Errorf("%d writes of the rule within %s", len(writes), time.Since(begun))
	}
}

// Another writer of the rule's metadata in a tight loop: the status gets through, and nothing of his is lost.
func TestAStatusThatConflicts(t *testing.T) {
	w := beside(t)
	w.node("conflict-1")
	r := w.rule("conflict")
	stop, done := make(chan struct{}), make(chan struct{})
	last := 0
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"count":"%d"}}}`, i)
			if err := api.Patch(w.ctx, r.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
				t.Error(err)
				return
			}
			last = i
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for _, status := range []corev1.ConditionStatus{"True", "False", "True"} {
		w.condition("conflict-1", "agent/Ready", status)
		want := 0
		if status == "False" {
			want = 1
		}
		w.eventually("the status follows", func() string {
			if s := w.read("conflict").Status; s.ObservedGeneration == 0 || len(s.AppliedNodes) != want {
				return fmt.Sprint(s)
			}
			return ""
		})
	}
	close(stop)
	<-done
	if got := w.read("conflict").Annotations["count"]; got != fmt.Sprint(last) {
		t.Errorf("count %s, want %d", got, last)
	}
}

// The verification is a condition like any other: a worker that passes its checks releases the node from the rule too, and a rule of
// the bootstrap-only kind as well.
func TestVerifiedAsACondition(t *testing.T) {
	w := beside(t)
	verified := func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].Type = string(marks.ConditionType) }
	w.rule("verified", verified)
	first := w.rule("verified-first", verified, bootstrapOnly)
	gated := corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	n, err := agent.AddNode(w.ctx, nodeagent.NodeSpec{Name: "verified-1", Labels: map[string]string{testLabel: w.name}, Taints: []corev1.Taint{gated}})
	w.must(err)
	w.Cleanup(func() { _ = n.Remove(context.Background()) })
	w.tainted("verified-1", "verified", true)
	w.tainted("verified-1", "verified-first", true)
	w.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "verified-1"}}, `{"metadata":{"labels":{"verify":"true"}}}`)
	w.tainted("verified-1", "verified", false)
	now := w.tainted("verified-1", "verified-first", false)
	if carries(now, gated.Key) || now.Annotations["readiness.k8s.io/bootstrap-completed-"+string(first.UID)] == "" || !strings.Contains(now.Annotations[marks.AnnotationRecord], `"lastOutcome":"passed"`) {
		t.Errorf("%v %v", now.Spec.Taints, now.Annotations)
	}
	w.said("verified-1", "VerificationPassed")
}

// A rule's selector alone decides: control planes, skip and the verification's selector are no matter.
func TestTheSelectorAloneDecides(t *testing.T) {
	w := beside(t)
	w.node("alone-1", func(n *corev1.Node) {
		n.Labels[marks.LabelControlPlane] = ""
		n.Annotations = map[string]string{marks.AnnotationSkip: "true"}
	})
	r := w.rule("alone")
	if n := w.tainted("alone-1", "alone", true); !owns(n, r) {
		t.Errorf("%v", n.Annotations)
	}
}

// A dry run of the controller writes nothing, on nodes or rules.
func TestDryRun(t *testing.T) {
	w := in(t, nil)
	w.node("rehearsed-1")
	w.rule("rehearsed")
	w.controller("--dry-run")
	w.eventually("the dry run looks", func() string { return w.scraped(`node_readiness_rule_nodes{rule="rehearsed",state="held"} 1`) })
	time.Sleep(1500 * time.Millisecond) // longer than the safety-net resync
	if n, r := w.get("rehearsed-1"), w.read("rehearsed"); carries(n, "readiness.k8s.io/rehearsed") || len(r.Finalizers) > 0 || len(w.events("rehearsed-1")) > 0 {
		t.Errorf("a dry run wrote: %v %v %v", n.Spec.Taints, r.Finalizers, w.events("rehearsed-1"))
	}
}
