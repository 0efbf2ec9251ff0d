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
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// holds keeps NRC's Lease renewed, as its leader does, until the returned function is called; that releases it.
func (w *world) holds(namespace string) (release func()) {
	w.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: decide.NRCLease}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("nrr-controller-manager-0"), LeaseDurationSeconds: ptr.To[int32](15)}
	w.must(api.Create(w.ctx, lease))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Second):
				lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
				if err := api.Update(w.ctx, lease); err != nil && w.ctx.Err() == nil {
					w.Error(err)
					return
				}
			}
		}
	}()
	ended := false
	end := func() {
		if !ended {
			ended = true
			close(stop)
			<-done
		}
	}
	w.Cleanup(end)
	return func() {
		end()
		lease.Spec.HolderIdentity = ptr.To("")
		w.must(api.Update(w.ctx, lease))
	}
}

// While NRC's Lease is held, in whatever namespace, rules are left to it: nothing is written on nodes or rules, which an event and a
// metric say. Once it was unheld for a minute they are served; a controller that starts again then need not wait.
func TestStandingBack(t *testing.T) {
	w := in(t, nil)
	w.must(client.IgnoreAlreadyExists(api.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gke-managed-nrr"}})))
	release := w.holds("gke-managed-nrr")
	w.rule("stand")
	w.node("stand-1")
	w.controller()
	w.said("stand", "Warning StandingBack/StandBack The rule is not served here: Lease gke-managed-nrr/"+decide.NRCLease+" is held by nrr-controller-manager-0")
	w.eventually("the metric says so", func() string { return w.scraped(`kube_node_ready_rules_state{state="standing-back"} 1`) })
	w.eventually("the role's Lease says so", func() string {
		l := &coordinationv1.Lease{}
		if err := api.Get(w.ctx, client.ObjectKey{Namespace: "default", Name: "node-ready-rules"}, l); err != nil || !strings.HasPrefix(l.Annotations["node-ready/rules-state"], "standing-back: ") {
			return fmt.Sprint(err, l.Annotations)
		}
		return ""
	})
	if r := w.read("stand"); len(r.Finalizers) > 0 || r.Status.ObservedGeneration != 0 || carries(w.get("stand-1"), "readiness.k8s.io/stand") {
		t.Errorf("%v %v", r.Finalizers, r.Status)
	}
	release()
	freed := time.Now()
	for end := freed.Add(50 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if carries(w.get("stand-1"), "readiness.k8s.io/stand") {
			t.Fatalf("served %s after the release", time.Since(freed))
		}
	}
	w.tainted("stand-1", "stand", true)
	w.eventually("it is remembered", func() string {
		l := &coordinationv1.Lease{}
		w.must(api.Get(w.ctx, client.ObjectKey{Namespace: "default", Name: "node-ready-rules"}, l))
		if !strings.Contains(l.Annotations["node-ready/unheld"], "gke-managed-nrr") {
			return fmt.Sprint(l.Annotations)
		}
		return ""
	})
	w.stop()
	w.node("stand-2")
	begun := time.Now()
	w.controller()
	w.tainted("stand-2", "stand", true)
	if took := time.Since(begun); took > 45*time.Second {
		t.Errorf("it waited %s", took)
	}
}

// rules.takeOver serves them whatever the Lease says.
func TestTakeOver(t *testing.T) {
	w := in(t, map[string]any{"takeOver": true})
	w.holds("kube-system")
	w.rule("over")
	w.node("over-1")
	w.controller()
	w.tainted("over-1", "over", true)
}

// Of two installations one serves rules, and the other one says who.
func TestTwoInstallations(t *testing.T) {
	w := in(t, nil)
	l := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: "default", Name: "node-ready-rules"}
	_ = api.Delete(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	l.Namespace, l.Name = key.Namespace, key.Name
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other/kube-node-ready-controller"), LeaseDurationSeconds: ptr.To[int32](10)}
	w.must(api.Create(w.ctx, l))
	w.rule("inst")
	w.node("inst-1")
	w.controller()
	w.said("inst", "installation other/kube-node-ready-controller serves rules")
	w.tainted("inst-1", "inst", true) // ten seconds after nobody renewed it
	w.must(api.Get(w.ctx, key, l))
	if *l.Spec.HolderIdentity != install.Namespace+"/"+install.ControllerAccount {
		t.Errorf("the role is %s's", *l.Spec.HolderIdentity)
	}
}

// NRC without a Lease is seen by what it writes, and warned of.
func TestNRCWithoutALease(t *testing.T) {
	w := in(t, nil)
	r := w.rule("writer")
	w.controller()
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
	w.said(r.Name, "Warning OtherController/Serve manager writes the status of this rule as well")
}

// Verification does not need the resource; it is picked up when it is defined later, also as NRC defines it: what our own refuses, and
// that does not, is refused then, with the field in the event.
func TestDefinedLaterByNRC(t *testing.T) {
	w := in(t, nil)
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
		forget(w.ctx)
		remove()
		w.must(define(w.ctx, ours))
	}()
	w.eventually("it is served", func() string {
		if err := api.List(w.ctx, &v1alpha1.NodeReadinessRuleList{}); err != nil {
			return err.Error()
		}
		return ""
	})
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
	w.said("empty", "Warning RuleRefused/Refuse The rule is not obeyed: spec.nodeSelector: Required value")
	w.said("default", "spec.conditions[0].defaultStatus: Forbidden")
	w.eventually("its status is written", func() string {
		if s := w.read("later").Status; len(s.AppliedNodes) != 1 || len(s.NodeEvaluations) != 1 || s.ObservedGeneration != 1 {
			return fmt.Sprint(s)
		}
		return ""
	})
	w.condition("later-1", "agent/Ready", "True")
	w.tainted("later-1", "later", false)
	if n := w.get("later-1"); carries(n, "readiness.k8s.io/empty") || carries(n, "readiness.k8s.io/default") {
		t.Error("a refused rule was obeyed")
	}
}
