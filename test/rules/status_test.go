package rules

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func kubectl(args ...string) ([]byte, error) {
	return exec.Command(filepath.Join(control.Bin(), "kubectl"), append([]string{"--kubeconfig", control.Kubeconfig()}, args...)...).CombinedOutput()
}

// The status stays small however many nodes are held, and is not written per node event.
func TestTheStatusIsBounded(t *testing.T) {
	const count = 1500
	w := in(t, nil)
	w.controller()
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
	time.Sleep(6 * time.Second)
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
	w := in(t, nil)
	w.controller()
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

// A condition whose heartbeat stops counts as missing; one that was never renewed does not.
func TestStaleAfter(t *testing.T) {
	w := in(t, map[string]any{"staleAfter": "4s"})
	w.controller()
	w.node("stale-1", isReady)
	w.node("stale-2", isReady)
	w.rule("stale")
	for range 4 {
		w.condition("stale-1", "agent/Ready", "True")
		time.Sleep(1100 * time.Millisecond)
	}
	if carries(w.get("stale-1"), "readiness.k8s.io/stale") {
		t.Error("tainted while it is renewed")
	}
	w.tainted("stale-1", "stale", true)
	if carries(w.get("stale-2"), "readiness.k8s.io/stale") {
		t.Error("a condition that is never renewed is stale")
	}
	w.condition("stale-1", "agent/Ready", "True")
	w.tainted("stale-1", "stale", false)
}

// The verification is a condition like any other, and its verdict and the rule's release need no more than that.
func TestVerifiedAsACondition(t *testing.T) {
	w := in(t, nil)
	// Played here: this installation leaves the node's verification, and with it the condition, to another one.
	w.config["nodeManagement"] = map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"none": "x"}}}
	w.controller()
	w.node("verified-1")
	w.rule("verified", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].Type = string(marks.ConditionType) })
	w.tainted("verified-1", "verified", true)
	w.condition("verified-1", string(marks.ConditionType), "True")
	w.tainted("verified-1", "verified", false)
}

// A rule's selector alone decides: control planes, skip and the verification's selector are no matter; --dry-run is.
func TestTheSelectorAloneDecides(t *testing.T) {
	w := in(t, nil)
	w.config["nodeManagement"] = map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"none": "x"}}}
	w.node("alone-1", func(n *corev1.Node) {
		n.Labels[marks.LabelControlPlane] = ""
		n.Annotations = map[string]string{marks.AnnotationSkip: "true"}
	})
	r := w.rule("alone")
	w.controller("--dry-run")
	w.eventually("the dry run looks", func() string { return w.scraped(`node_readiness_rule_nodes{rule="alone",state="held"} 1`) })
	time.Sleep(3 * time.Second)
	if n, r := w.get("alone-1"), w.read("alone"); carries(n, "readiness.k8s.io/alone") || len(r.Finalizers) > 0 || len(w.events("alone-1")) > 0 {
		t.Errorf("a dry run wrote: %v %v %v", n.Spec.Taints, r.Finalizers, w.events("alone-1"))
	}
	w.stop()
	w.controller()
	if n := w.tainted("alone-1", "alone", true); !owns(n, r) {
		t.Errorf("%v", n.Annotations)
	}
}
