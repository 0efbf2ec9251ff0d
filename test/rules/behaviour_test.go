package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func isReady(n *corev1.Node) {
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "agent/Ready", Status: corev1.ConditionTrue})
}

func createdWith(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "kubelet", Effect: corev1.TaintEffectNoSchedule})
	}
}

// owns reports whether the node's account says that the rule owns a taint.
func owns(n *corev1.Node, r *v1alpha1.NodeReadinessRule) bool {
	_, ok := marks.OwnedOn(n)[string(r.UID)]
	return ok
}

// events lists what was emitted on an object, as "reason: note".
func (w *world) events(name string) []string {
	w.Helper()
	list, err := k8s.EventsV1().Events("default").List(w.ctx, metav1.ListOptions{})
	w.must(err)
	var out []string
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			out = append(out, e.Type+" "+e.Reason+"/"+e.Action+" "+e.Note)
		}
	}
	return out
}

// said waits for an event on an object.
func (w *world) said(name, event string) {
	w.Helper()
	w.eventually("event on "+name, func() string {
		all := strings.Join(w.events(name), "\n")
		if strings.Contains(all, event) {
			return ""
		}
		return fmt.Sprintf("want %q in\n%s", event, all)
	})
}

// gone waits until a rule is gone.
func (w *world) gone(rule string) {
	w.Helper()
	w.eventually("rule "+rule+" is gone", func() string {
		r := &v1alpha1.NodeReadinessRule{}
		err := api.Get(w.ctx, client.ObjectKey{Name: rule}, r)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint(err, r.Finalizers)
	})
}

// A continuous rule adds and removes its taint for as long as it exists, and who owns it is written beside it.
func TestContinuous(t *testing.T) {
	w := beside(t)
	w.node("cont-0", isReady)
	r := w.rule("cont")
	w.node("cont-1", createdWith("example.com/foreign"))
	n := w.tainted("cont-1", "cont", true)
	if !owns(n, r) || !carries(n, "example.com/foreign") || n.Annotations[marks.AnnotationRules] != fmt.Sprintf(`{"%s":"readiness.k8s.io/cont:NoSchedule"}`, r.UID) {
		t.Errorf("%v %v", n.Annotations, n.Spec.Taints)
	}
	if last := n.Spec.Taints[len(n.Spec.Taints)-1]; last.Value != "wait" {
		t.Errorf("value %q", last.Value)
	}
	w.said("cont-1", "Normal TaintAdded/AddTaint Taint 'readiness.k8s.io/cont:NoSchedule' added by rule 'cont'")
	for range 2 {
		w.condition("cont-1", "True")
		if n := w.tainted("cont-1", "cont", false); owns(n, r) || !carries(n, "example.com/foreign") {
			t.Errorf("%v %v", n.Annotations, n.Spec.Taints)
		}
		w.condition("cont-1", "False")
		w.tainted("cont-1", "cont", true)
	}
	w.said("cont-1", "Normal TaintRemoved/RemoveTaint Taint 'readiness.k8s.io/cont:NoSchedule' removed by rule 'cont'")
	if n := w.get("cont-0"); carries(n, "readiness.k8s.io/cont") || len(n.Annotations) > 0 {
		t.Errorf("a node that is good: %v", n.Annotations)
	}
	w.must(api.Delete(w.ctx, r))
	w.gone("cont")
	if n := w.get("cont-1"); carries(n, "readiness.k8s.io/cont") || !carries(n, "example.com/foreign") || n.Annotations[marks.AnnotationRules] != "" {
		t.Errorf("%v %v", n.Annotations, n.Spec.Taints)
	}
}

// history is every state of the test's nodes that a watch has shown.
type history struct {
	w     *world
	since string
}

func (w *world) watch() history {
	w.Helper()
	var nodes corev1.NodeList
	w.must(api.List(w.ctx, &nodes))
	return history{w: w, since: nodes.ResourceVersion}
}

// each calls see with every state until now.
func (h history) each(see func(*corev1.Node)) {
	h.w.Helper()
	last := map[string]string{}
	var nodes corev1.NodeList
	h.w.must(api.List(h.w.ctx, &nodes, client.MatchingLabels{testLabel: h.w.name}))
	for _, n := range nodes.Items {
		if c, err := resourceversion.CompareResourceVersion(n.ResourceVersion, h.since); err != nil || c > 0 {
			last[n.Name] = n.ResourceVersion
		}
	}
	stream, err := k8s.CoreV1().Nodes().Watch(h.w.ctx, metav1.ListOptions{ResourceVersion: h.since, LabelSelector: testLabel + "=" + h.w.name})
	h.w.must(err)
	defer stream.Stop()
	for end := time.After(patience); len(last) > 0; {
		select {
		case e := <-stream.ResultChan():
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				h.w.Fatalf("%v", e.Object)
			}
			see(n)
			if last[n.Name] == n.ResourceVersion {
				delete(last, n.Name)
			}
		case <-end:
			h.w.Fatalf("not shown: %v", last)
		}
	}
}

// A rule that is deleted while the controller is down releases its nodes once the controller is back. The same holds
// for a rule that had been turned into a dry run, and for one whose finalizer somebody removed. A taint that a node's
// own annotation claims for a rule stays.
func TestDeletedWhileDown(t *testing.T) {
	w := in(t)
	w.config["leaderElection"] = map[string]any{"enabled": false} // whose Lease a killed process does not release
	p := w.controller()
	r, dry, stripped := w.rule("down"), w.rule("downdry"), w.rule("downstripped")
	w.node("down-1")
	w.tainted("down-1", "down", true)
	w.tainted("down-1", "downdry", true)
	w.tainted("down-1", "downstripped", true)
	w.patch(dry, `{"spec":{"dryRun":true}}`)
	w.eventually("the dry run is seen", func() string {
		if w.read("downdry").Status.DryRunResults == nil {
			return "no results"
		}
		return ""
	})
	p.Kill()
	w.must(api.Delete(w.ctx, r))
	w.must(api.Delete(w.ctx, dry))
	w.patch(stripped, `{"metadata":{"finalizers":null}}`)
	w.must(api.Delete(w.ctx, stripped))
	w.node("down-forged", createdWith("tenant.example.com/secret"), func(n *corev1.Node) {
		n.Annotations = map[string]string{"node-ready/rules": fmt.Sprintf(`{%q:"tenant.example.com/secret:NoSchedule"}`, r.UID)}
	})
	w.node("down-2", createdWith("readiness.k8s.io/down")) // joins meanwhile, selected
	w.controller()
	w.gone("down")
	w.gone("downdry")
	for _, name := range []string{"down-1", "down-2"} {
		if carries(w.get(name), "readiness.k8s.io/down") {
			t.Errorf("%s is still tainted", name)
		}
	}
	w.tainted("down-1", "downdry", false)
	w.tainted("down-1", "downstripped", false)
	if !carries(w.get("down-forged"), "tenant.example.com/secret") {
		t.Error("a foreign taint is removed on the word of the node's annotation")
	}
}

// Turning dryRun on leaves taints as they are, and says what would change; turning it off goes on.
func TestDryRunToggled(t *testing.T) {
	w := beside(t)
	r := w.rule("dry")
	for i := range 3 {
		w.node(fmt.Sprint("dry-", i))
		w.tainted(fmt.Sprint("dry-", i), "dry", true)
	}
	w.patch(r, `{"spec":{"dryRun":true}}`)
	w.condition("dry-0", "True")
	w.node("dry-3")
	w.eventually("results", func() string {
		s := w.read("dry").Status
		b, _ := json.Marshal(s)
		if d := s.DryRunResults; d != nil && *d.AffectedNodes == 4 && d.Summary == "would add 1 taints, would remove 1 taints, 3 nodes have missing conditions" && len(s.AppliedNodes)+len(s.NodeEvaluations) == 0 {
			return ""
		}
		return string(b)
	})
	for i := range 3 {
		if !carries(w.get(fmt.Sprint("dry-", i)), "readiness.k8s.io/dry") {
			t.Errorf("dry-%d lost its taint", i)
		}
	}
	if carries(w.get("dry-3"), "readiness.k8s.io/dry") {
		t.Error("dry-3 was tainted")
	}
	w.patch(r, `{"spec":{"dryRun":false}}`)
	w.tainted("dry-0", "dry", false)
	w.tainted("dry-3", "dry", true)
	w.eventually("results are cleared", func() string {
		if s := w.read("dry").Status; s.DryRunResults != nil || len(s.AppliedNodes) != 3 {
			return fmt.Sprint(s)
		}
		return ""
	})
}

// If the API server refuses a change, the rule's status, an event and a metric report it. They do so until the API
// server accepts the change or the rule no longer asks for it. The refusal of an admission policy is a 422.
func TestAChangeThatIsRefused(t *testing.T) {
	w := beside(t)
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-taint"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}}}}}},
		Validations: []admissionv1.Validation{{Expression: "!has(object.spec.taints) || object.spec.taints.all(t, t.key != 'readiness.k8s.io/denied')", Message: "no such taint here"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-taint"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-taint", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	for _, o := range []client.Object{policy, binding} {
		w.must(api.Create(w.ctx, o))
		w.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
	const taint = `{"spec":{"taints":[{"key":"readiness.k8s.io/denied","effect":"NoSchedule"}]}}`
	w.node("denied-1")
	w.node("denied-2")
	w.eventually("the policy is in force", func() string {
		err := client.NewDryRunClient(api).Patch(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "denied-1"}}, client.RawPatch("application/merge-patch+json", []byte(taint)))
		if !apierrors.IsInvalid(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	w.rule("denied")
	failed := func(want ...string) {
		w.Helper()
		w.eventually(fmt.Sprintf("%v have failed", want), func() string {
			have, s := []string{}, w.read("denied").Status
			for _, f := range s.FailedNodes {
				have = append(have, f.NodeName)
				if f.Reason != "EvaluationError" || !strings.Contains(f.Message, "no such taint here") {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(have, want) {
				return fmt.Sprint(s)
			}
			return ""
		})
	}
	failed("denied-1", "denied-2")
	w.said("denied-1", "Warning RuleFailed/ChangeTaint Rule 'denied' cannot be applied, taint 'readiness.k8s.io/denied:NoSchedule' (add)")
	if fault := w.scraped(`node_readiness_failures_total{reason="AddTaintError",rule="denied"} 0`); !strings.Contains(fault, "AddTaintError") {
		t.Error(fault)
	}
	leave := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "denied-2"}}
	w.patch(leave, `{"metadata":{"labels":{"rules-test":"elsewhere"}}}`)
	failed("denied-1")
	w.must(api.Delete(w.ctx, leave))
	w.must(api.Delete(w.ctx, binding))
	w.tainted("denied-1", "denied", true)
	failed([]string{}...)
}
