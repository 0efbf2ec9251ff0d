package rules

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// renews plays NRC, which renews its Lease until the test ends.
func (w *world) renews(namespace string) {
	w.Helper()
	lease := w.holds(namespace)
	ctx, stop := context.WithCancel(w.ctx)
	var all sync.WaitGroup
	all.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
			_ = api.Update(ctx, lease) // until the test ends
		}, time.Second)
	})
	w.Cleanup(func() { stop(); all.Wait() })
}

// holds makes NRC's Lease, which its leader holds for an hour.
func (w *world) holds(namespace string) *coordinationv1.Lease {
	w.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rule.NRCLease}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("nrr-controller-manager-0"), LeaseDurationSeconds: ptr.To[int32](3600)}
	w.must(api.Create(w.ctx, lease))
	return lease
}

// Leases that somebody else may write switch no rules off, whatever their duration says: one with the name of NRC's
// Lease in a tenant's namespace, or in default; one of an installation that does not exist; one in a namespace of NRC
// that nobody renews.
func TestTenantsLeases(t *testing.T) {
	w := in(t)
	const years68 = math.MaxInt32 // seconds
	w.must(client.IgnoreAlreadyExists(api.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})))
	for _, key := range []client.ObjectKey{{Namespace: "tenant", Name: rule.NRCLease}, {Namespace: "default", Name: rule.NRCLease},
		{Namespace: "default", Name: "node-ready-rules"}, {Namespace: "kube-system", Name: rule.NRCLease}} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		_ = api.Delete(w.ctx, l.DeepCopy())
		l.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("tenant"), LeaseDurationSeconds: ptr.To[int32](years68)}
		w.must(api.Create(w.ctx, l))
		w.Cleanup(func() { _ = api.Delete(context.Background(), l) })
	}
	w.rule("tenants")
	w.node("tenants-1")
	w.controller()
	w.tainted("tenants-1", "tenants", true)
}

// While NRC renews its Lease in one of rules.otherControllerNamespaces, rules are left to NRC. The controller writes
// nothing on nodes or rules, and reports that in an event and a metric. With rules.takeOver, it serves rules all the
// same.
func TestStandingBack(t *testing.T) {
	w := in(t)
	w.must(client.IgnoreAlreadyExists(api.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gke-managed-nrr"}})))
	w.renews("gke-managed-nrr")
	w.config["rules"] = map[string]any{"otherControllerNamespaces": []any{"nrr-system", "gke-managed-nrr"}}
	w.rule("stand")
	w.node("stand-1")
	w.controller()
	w.said("stand", "Warning StandingBack/StandBack The rule is not served here: Lease gke-managed-nrr/"+rule.NRCLease+" is renewed")
	w.eventually("the metric says so", func() string { return w.scraped(`kube_node_ready_rules_state{state="standing-back"} 1`) })
	if r := w.read("stand"); len(r.Finalizers) > 0 || r.Status.ObservedGeneration != 0 || carries(w.get("stand-1"), "readiness.k8s.io/stand") {
		t.Errorf("%v %v", r.Finalizers, r.Status)
	}
	w.stop()
	w.config["rules"] = map[string]any{"takeOver": true, "otherControllerNamespaces": []any{"gke-managed-nrr"}}
	w.controller()
	w.tainted("stand-1", "stand", true)
}

// Two installations that serve the same rules do not fight. They decide alike: nodes end as the rule requires, the rule
// has one finalizer, and both stop writing. Once the rule is deleted, its taint and the rule are gone.
func TestTwoInstallations(t *testing.T) {
	w := in(t)
	w.config["leaderElection"] = map[string]any{"enabled": false} // both lead
	w.rule("twice")
	w.node("twice-1")
	process := w.controller()
	w.Cleanup(func() { process.Terminate(10 * time.Second) })
	first := w.now
	w.controller()
	both := []*install.Controller{first, w.now}
	for _, c := range both {
		w.now = c
		w.eventually("both serve rules", func() string { return w.scraped(`kube_node_ready_rules_state{state="serving"} 1`) })
	}
	for _, ready := range []corev1.ConditionStatus{"False", "True", "False"} {
		w.condition("twice-1", ready)
		w.tainted("twice-1", "twice", ready == "False")
	}
	sent := func() (all float64) {
		for _, c := range both {
			w.now = c
			all += w.patches()
		}
		return all
	}
	time.Sleep(6 * time.Second) // the last status is written
	before := sent()
	time.Sleep(11 * time.Second) // twice the least time between two writes
	if now := sent(); now != before {
		t.Errorf("%v requests that change what the other one has written", now-before)
	}
	if r := w.read("twice"); !slices.Equal(r.Finalizers, []string{v1alpha1.Finalizer}) || len(r.Status.AppliedNodes) != 1 || !carries(w.get("twice-1"), "readiness.k8s.io/twice") {
		t.Errorf("finalizers %v, held %v, taints %v", r.Finalizers, r.Status.AppliedNodes, w.get("twice-1").Spec.Taints)
	}
	w.must(api.Delete(w.ctx, w.read("twice")))
	w.tainted("twice-1", "twice", false)
	w.eventually("the rule is gone", func() string {
		if err := api.Get(w.ctx, client.ObjectKey{Name: "twice"}, &v1alpha1.NodeReadinessRule{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
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
