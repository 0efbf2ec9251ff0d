package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// holds makes NRC's Lease, which its leader holds for an hour.
func (w *world) holds(namespace string) *coordinationv1.Lease {
	w.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rule.NRCLease}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("nrr-controller-manager-0"), LeaseDurationSeconds: ptr.To[int32](3600)}
	w.must(api.Create(w.ctx, lease))
	return lease
}

// While somebody holds NRC's Lease, in any namespace, rules are left to NRC. The controller writes nothing on nodes or
// rules, and reports that in an event and a metric. With rules.takeOver, it serves rules in spite of the Lease.
func TestStandingBack(t *testing.T) {
	w := in(t)
	w.must(client.IgnoreAlreadyExists(api.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gke-managed-nrr"}})))
	w.holds("gke-managed-nrr")
	w.rule("stand")
	w.node("stand-1")
	w.controller()
	w.said("stand", "Warning StandingBack/StandBack The rule is not served here: Lease gke-managed-nrr/"+rule.NRCLease+" is held by nrr-controller-manager-0")
	w.eventually("the metric says so", func() string { return w.scraped(`kube_node_ready_rules_state{state="standing-back"} 1`) })
	w.eventually("the role's Lease says so", func() string { return w.annotated(rule.StateAnnotation, "standing-back: ") })
	if r := w.read("stand"); len(r.Finalizers) > 0 || r.Status.ObservedGeneration != 0 || carries(w.get("stand-1"), "readiness.k8s.io/stand") {
		t.Errorf("%v %v", r.Finalizers, r.Status)
	}
	w.stop()
	w.config["rules"] = map[string]any{"takeOver": true}
	w.controller()
	w.tainted("stand-1", "stand", true)
}

// annotated says what the role's Lease lacks in an annotation.
func (w *world) annotated(annotation, want string) string {
	l := &coordinationv1.Lease{}
	if err := api.Get(w.ctx, client.ObjectKey{Namespace: rule.LeaseNamespace, Name: rule.LeaseName}, l); err != nil || !strings.Contains(l.Annotations[annotation], want) {
		return fmt.Sprint(err, l.Annotations)
	}
	return ""
}

// Of two installations one serves rules, and the other one says who.
func TestTwoInstallations(t *testing.T) {
	w := in(t)
	l := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: "default", Name: "node-ready-rules"}
	_ = api.Delete(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	l.Namespace, l.Name = key.Namespace, key.Name
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other/kube-node-ready-controller"), LeaseDurationSeconds: ptr.To[int32](2)}
	w.must(api.Create(w.ctx, l))
	w.rule("inst")
	w.node("inst-1")
	w.controller()
	w.said("inst", "installation other/kube-node-ready-controller serves rules")
	w.tainted("inst-1", "inst", true) // two seconds after nobody renewed it
	w.must(api.Get(w.ctx, key, l))
	if *l.Spec.HolderIdentity != install.Namespace+"/"+install.ControllerAccount {
		t.Errorf("the role is %s's", *l.Spec.HolderIdentity)
	}
}

// A rollout of two replicas never frees the role: the Lease names the installation all the time, and the replica that
// takes over serves rules at once.
func TestRolloutKeepsTheRole(t *testing.T) {
	w := in(t)
	w.rule("rollout")
	w.node("rollout-1")
	first := w.controller()
	w.tainted("rollout-1", "rollout", true)
	role := func() (l coordinationv1.Lease) {
		w.Helper()
		w.must(api.Get(w.ctx, client.ObjectKey{Namespace: rule.LeaseNamespace, Name: rule.LeaseName}, &l))
		return l
	}
	before := role().Spec
	w.controller()
	first.Terminate(10 * time.Second)
	between := role().Spec
	ended := time.Now()
	w.condition("rollout-1", "True")
	w.tainted("rollout-1", "rollout", false)
	if took := time.Since(ended); took > 15*time.Second {
		t.Errorf("rules were not served for %s", took)
	}
	w.eventually("the replica that is left renews it", func() string {
		if l := role(); !l.Spec.RenewTime.After(ended) {
			return l.Spec.RenewTime.String()
		}
		return ""
	})
	after := role().Spec
	for _, l := range []coordinationv1.LeaseSpec{before, between, after} {
		same := *l.LeaseTransitions == *before.LeaseTransitions && l.AcquireTime.Equal(before.AcquireTime)
		if *l.HolderIdentity != install.Namespace+"/"+install.ControllerAccount || !same {
			t.Errorf("the Lease is %+v, and was %+v", l, before)
		}
	}
}

// NRC without a Lease is seen by what it writes, and warned of.
func TestNRCWithoutALease(t *testing.T) {
	w := beside(t)
	r := w.rule("writer")
	w.eventually("the status is written", func() string {
		if w.read("writer").Status.ObservedGeneration != 1 {
			return "no status"
		}
		return ""
	})
	time.Sleep(1100 * time.Millisecond) // managedFields hold seconds
	n := w.read("writer").DeepCopy()
	n.Status.AppliedNodes = []string{"somewhere"}
	w.must(api.Status().Update(w.ctx, n, client.FieldOwner("manager")))
	w.said(r.Name, "Warning OtherController/Serve manager also writes the status of this rule")
}

// Verification does not need the resource. The controller also serves rules if the resource is defined later, by NRC's
// definition too. NRC's definition admits rules that our own rejects. The controller then refuses those, and the event
// names the field.
func TestDefinedLaterByNRC(t *testing.T) {
	w := in(t)
	remove := func() {
		w.Helper()
		if out, err := kubectl("delete", "crd", "nodereadinessrules.readiness.node.x-k8s.io", "--ignore-not-found", "--timeout=60s"); err != nil {
			w.Fatalf("%v: %s", err, out)
		}
	}
	remove()
	w.controller()
	w.eventually("the controller knows", func() string { return w.scraped(`kube_node_ready_rules_state{state="absent"} 1`) })
	w.node("later-1")
	w.must(define(w.ctx, nrcs))
	defer func() {
		w.stop()
		w.forget(w.ctx)
		remove()
		w.must(define(w.ctx, ours))
	}()
	w.eventually("it is served", func() string {
		if err := api.List(w.ctx, &v1alpha1.NodeReadinessRuleList{}); err != nil {
			return err.Error()
		}
		return ""
	})
	err := api.Create(w.ctx, w.draft("autoscaled", withKey(marks.RuleAutoscalerPrefix+"x")))
	if err == nil || !strings.Contains(err.Error(), "taint key must start with 'readiness.k8s.io/'") {
		t.Errorf("docs/guides/rules.md says that it refuses a key for Cluster Autoscaler: %v", err)
	}
	create := func(r *v1alpha1.NodeReadinessRule) {
		w.eventually("rule "+r.Name+" is created", func() string {
			if err := api.Create(w.ctx, r); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	create(w.draft("later", bootstrapOnly))
	create(w.draft("empty", func(r *v1alpha1.NodeReadinessRule) { r.Spec.NodeSelector = metav1.LabelSelector{} }))
	create(w.draft("default", bootstrapOnly, func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].DefaultStatus = "True" }))
	w.tainted("later-1", "later", true)
	w.said("empty", "Warning RuleRefused/Refuse The rule is refused: spec.nodeSelector: Required value")
	w.said("default", "spec.conditions[0].defaultStatus: Forbidden")
	w.eventually("its status is written", func() string {
		if s := w.read("later").Status; len(s.AppliedNodes) != 1 || len(s.NodeEvaluations) != 1 || s.ObservedGeneration != 1 {
			return fmt.Sprint(s)
		}
		return ""
	})
	w.condition("later-1", "True")
	w.tainted("later-1", "later", false)
	if n := w.get("later-1"); carries(n, "readiness.k8s.io/empty") || carries(n, "readiness.k8s.io/default") {
		t.Error("a refused rule was obeyed")
	}
	// This definition has no conditions and counts: the API server prunes them, and they are not written for ever.
	if s := w.read("later").Status; s.Conditions != nil || s.Summary != nil {
		t.Errorf("%+v", s)
	}
	time.Sleep(6 * time.Second) // the last status is written
	before := w.patches()
	time.Sleep(11 * time.Second) // twice the least time between two writes
	if now := w.patches(); now != before {
		t.Errorf("%v requests that change what nobody sees", now-before)
	}
}

// patches is how many patches the controller has sent.
func (w *world) patches() (sent float64) {
	for _, m := range w.scrape()["rest_client_requests_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "method" && l.GetValue() == "PATCH" {
				sent += m.GetCounter().GetValue()
			}
		}
	}
	return sent
}
