package rules

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// may lets a user of the test do what the rules say, and nothing else.
func (w *world) may(user string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	w.must(api.Create(w.ctx, role))
	w.must(api.Create(w.ctx, binding))
	w.Cleanup(func() {
		_ = api.Delete(context.Background(), binding)
		_ = api.Delete(context.Background(), role)
	})
}

// as is a client of a user.
func (w *world) as(user string) client.Client {
	w.Helper()
	config := rest.CopyConfig(control.Config())
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	w.must(err)
	return c
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func allowed(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// forbids waits until rules are not served because the API server refuses something, which the state names.
func (w *world) forbids(rules *rules.Rules, what string) {
	w.Helper()
	w.becomes(rules, rule.Forbidden)
	w.eventually("it says what is refused", func() string {
		if _, why := rules.State(); !strings.Contains(why, what) || !strings.Contains(why, "rules.enabled") {
			return why
		}
		return ""
	})
}

// Each of the permissions that serving rules needs is missing in turn. The controller detects that from the API
// server's own message. The nodes that rules concern are held, and no others.
func TestForbidden(t *testing.T) {
	w := in(t)
	list := allowed("readiness.node.x-k8s.io", "nodereadinessrules", "list", "watch")
	leases := allowed("coordination.k8s.io", "leases", "list", "watch")
	selected := w.node("forbidden-1")
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forbidden-2"}}
	carrier := other.DeepCopy()
	carrier.Spec.Taints = []corev1.Taint{{Key: "readiness.k8s.io/some", Effect: corev1.TaintEffectNoSchedule}}
	holds := func(rules *rules.Rules, n *corev1.Node, want bool) {
		t.Helper()
		plan, done := rules.Plan(n)
		defer done()
		if (plan.Unavailable != "") != want {
			t.Errorf("%s %v waits: %q", n.Name, n.Spec.Taints, plan.Unavailable)
		}
	}
	var ahead atomic.Int64

	w.may("no-watch", list)
	watches := w.watchesAs("no-watch", &ahead, &events{})
	w.forbids(watches, `User "no-watch" cannot list resource "leases"`)
	w.eventually("it is known that there are no rules", func() string {
		plan, done := watches.Plan(carrier)
		done()
		return plan.Unavailable
	})
	holds(watches, selected, false)

	w.rule("forbidden")
	w.may("no-list", leases)
	lists := w.watchesAs("no-list", &ahead, &events{})
	w.forbids(lists, `User "no-list" cannot list resource "nodereadinessrules"`)
	holds(lists, selected, false) // whether a rule selects it cannot be known
	holds(lists, carrier, true)

	w.eventually("the rule is listed", func() string {
		plan, done := watches.Plan(selected)
		done()
		if plan.Unavailable == "" {
			return "the node that it selects does not wait"
		}
		return ""
	})
	holds(watches, other, false)
	holds(watches, carrier, false) // of no rule that there is
}

// A rule that gets no finalizer puts no taint on nodes: those that it selects wait, and say why.
func TestForbiddenFinalizer(t *testing.T) {
	w := in(t)
	emitted := &events{}
	served := w.watches(&atomic.Int64{}, emitted)
	n := w.node("finalizer-1")
	o := w.rule("finalizer")
	w.becomes(served, rule.Serving)
	w.may("no-patch")
	reconciler := &rules.Reconciler{Rules: served, Live: api, Writer: w.as("no-patch")}
	w.eventually("the rule is known", func() string {
		if _, err := reconciler.Reconcile(w.ctx, request(o.Name)); err == nil {
			return "its finalizer is not refused"
		}
		return ""
	})
	plan, done := served.Plan(n)
	done()
	if !strings.Contains(plan.Unavailable, `User "no-patch" cannot patch resource "nodereadinessrules"`) {
		t.Errorf("the node does not wait: %q", plan.Unavailable)
	}
	if _, ok := emitted.seen.Load(decide.EventRulesUnavailable); !ok {
		t.Error("no event on the rule")
	}
	reconciler.Writer = api
	w.eventually("it gets one", func() string {
		if _, err := reconciler.Reconcile(w.ctx, request(o.Name)); err != nil {
			return err.Error()
		}
		plan, done := served.Plan(n)
		done()
		return plan.Unavailable
	})
}
