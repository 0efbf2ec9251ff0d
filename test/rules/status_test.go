package rules

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

func kubectl(args ...string) ([]byte, error) {
	return exec.Command(filepath.Join(control.Bin(), "kubectl"), append([]string{"--kubeconfig", control.Kubeconfig()}, args...)...).CombinedOutput()
}

// The status stays small, however many nodes are held, and is not written for each node event. It is written at most
// once in five seconds, although nodes change all the time and the status would show each change.
func TestTheStatusIsBounded(t *testing.T) {
	const count = 150
	w := beside(t)
	stream, err := api.Watch(w.ctx, &v1alpha1.NodeReadinessRuleList{})
	w.must(err)
	defer stream.Stop()
	begun := time.Now()
	w.rule("bounded", func(r *v1alpha1.NodeReadinessRule) {
		for i := range 9 {
			r.Spec.Conditions = append(r.Spec.Conditions, v1alpha1.ConditionRequirement{Type: fmt.Sprintf("example.com/SomeAgentThatReports-%d", i), RequiredStatus: "True"})
		}
	})
	name := func(i int) string { return fmt.Sprintf("bounded-ip-10-0-12-%04d.eu-central-1.compute.internal", i) }
	join := sync.WaitGroup{}
	for worker := range 8 {
		join.Go(func() {
			for i := worker; i < count; i += 8 {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{testLabel: w.name}}}
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
	// A slow machine takes longer for as many changes.
	events := 0
	for end := time.Now().Add(11 * time.Second); time.Now().Before(end) || events < 100; events++ {
		w.condition(name(events%4), []corev1.ConditionStatus{"False", "Unknown"}[events/4%2]) // the first are in the status
		time.Sleep(50 * time.Millisecond)
	}
	raw, err := kubectl("get", "nrr", "bounded", "-o", "json", "--show-managed-fields")
	w.must(err)
	compact, err := json.Marshal(json.RawMessage(raw))
	w.must(err)
	final := w.read("bounded")
	s := final.Status
	if len(compact) >= 64<<10 || len(s.AppliedNodes) == 0 || len(s.AppliedNodes) > 100 || len(s.NodeEvaluations) != len(s.AppliedNodes) {
		t.Errorf("%d bytes, %d nodes, %d evaluations", len(compact), len(s.AppliedNodes), len(s.NodeEvaluations))
	}
	most := int(time.Since(begun)/(5*time.Second)) + 1 // the interval at which the status is written
	var writes []string
	last := &v1alpha1.NodeReadinessRule{}
	for last.ResourceVersion != final.ResourceVersion {
		select {
		case e := <-stream.ResultChan():
			if r, ok := e.Object.(*v1alpha1.NodeReadinessRule); ok && r.Name == "bounded" {
				if !equality.Semantic.DeepEqual(r.Status, last.Status) {
					writes = append(writes, r.ResourceVersion)
				}
				last = r
			}
		case <-time.After(patience):
			t.Fatalf("version %s is not shown", final.ResourceVersion)
		}
	}
	if len(writes) < 2 || len(writes) > most || events < 4*len(writes) {
		t.Errorf("%d writes of the status and %d events on nodes within %s, want 2 to %d writes", len(writes), events, time.Since(begun), most)
	}
}

// The longest possible status about 5000 nodes has the longest names, conditions and messages, in a rule with 32 such
// conditions. The stored object stays below 64 KiB. That includes the field owners that the API server adds. No
// controller is running.
func TestTheLargestRuleIsSmall(t *testing.T) {
	const nodes = 5000
	w := in(t)
	label := strings.Repeat("n", 63)
	for name, c := range map[string]struct {
		node, condition, message string
		conditions               int
	}{
		"longest":                   {strings.Join([]string{label, label, label, label[:56]}, "."), "example.com/" + strings.Repeat("c", 300), strings.Repeat("m", 5000), 32},
		"longest-names":             {strings.Join([]string{label, label, label, label[:56]}, "."), "c", "m", 1},
		"many-short-conditions":     {"n", "c", "m", 32},
		"longest-condition":         {"n", "example.com/" + strings.Repeat("c", 300), "m", 1},
		"as-many-nodes-as-possible": {"n", "c", "m", 1},
	} {
		r := w.rule(name, func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.Conditions = nil
			for i := range c.conditions {
				r.Spec.Conditions = append(r.Spec.Conditions, v1alpha1.ConditionRequirement{Type: fmt.Sprintf("%s-%d", c.condition, i), RequiredStatus: "Unknown", DefaultStatus: "Unknown"})
			}
			r.Finalizers = []string{v1alpha1.Finalizer}
		})
		compiled := rule.Compile(r, nil)
		results := make([]v1alpha1.ConditionResult, 0, c.conditions)
		for _, need := range r.Spec.Conditions {
			results = append(results, v1alpha1.ConditionResult{Type: need.Type, CurrentStatus: "Unknown", RequiredStatus: need.RequiredStatus, DefaultStatus: need.DefaultStatus})
		}
		tally, failed := &rule.Tally{}, map[string]rule.Failure{}
		for i := range nodes {
			node := fmt.Sprintf("%s%04d", c.node, i)
			tally.Count(node, rule.Evaluation{Rule: &compiled, State: rule.Held, Results: results, Tainted: true})
			failed[node] = rule.Failure{Message: c.message, At: time.Now()}
		}
		for _, failures := range []map[string]rule.Failure{nil, failed} {
			r.Status = rule.Status(&compiled, v1alpha1.NodeReadinessRuleStatus{}, tally, failures, time.Now())
			w.must(api.Status().Update(w.ctx, r, client.FieldOwner("kube-node-ready-controller")))
			stored, err := json.Marshal(w.read(name))
			w.must(err)
			t.Logf("%s: %d bytes, %d failed, %d evaluated", name, len(stored), len(r.Status.FailedNodes), len(r.Status.NodeEvaluations))
			if most := max(len(r.Status.FailedNodes), len(r.Status.NodeEvaluations), len(r.Status.AppliedNodes)); len(stored) >= 64<<10 || most > 100 || most == 0 {
				t.Errorf("%s: %d bytes, %d nodes", name, len(stored), most)
			}
		}
	}
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
	w := in(t)
	w.node("trial-1")
	w.rule("trial")
	w.controller("--dry-run")
	w.eventually("the dry run looks", func() string { return w.scraped(`node_readiness_rule_nodes{rule="trial",state="held"} 1`) })
	time.Sleep(1500 * time.Millisecond) // longer than the safety-net resync
	said := series(w.scrape(), "trial")
	for _, done := range []string{"node_readiness_taint_operations_total{add,trial}", "node_readiness_reconciliation_latency_seconds{add_taint,trial}"} {
		if n, there := said[done]; there {
			t.Errorf("%s is %v, and nothing was done", done, n)
		}
	}
	if fault := w.scraped("node_readiness_rules_total 1"); fault != "" {
		t.Error(fault)
	}
	if n, r := w.get("trial-1"), w.read("trial"); carries(n, "readiness.k8s.io/trial") || len(r.Finalizers) > 0 || len(w.events("trial-1")) > 0 {
		t.Errorf("a dry run wrote: %v %v %v", n.Spec.Taints, r.Finalizers, w.events("trial-1"))
	}
}
