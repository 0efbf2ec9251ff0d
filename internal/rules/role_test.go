package rules

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// rollout runs the role of one installation in a process until it serves rules, and ends that process.
func rollout(t *testing.T, c *fake.Clientset, identity string) {
	t.Helper()
	f := serve(t)
	f.Config.TakeOver, f.serving.role = true, role{}
	r := &Role{LeaseInterface: c.CoordinationV1().Leases(rule.LeaseNamespace), Rules: f.Rules, Identity: identity}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if state, why := f.State(); state == rule.Serving {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%s: %s", state, why)
		}
	}
	end()
	<-ended
}

// A rollout of two replicas never frees the role: the Lease names the installation after the first process has ended,
// and the second one serves rules at once.
func TestRolloutDoesNotFreeTheRole(t *testing.T) {
	c := fake.NewClientset()
	lease := func() coordinationv1.LeaseSpec {
		t.Helper()
		l, err := c.CoordinationV1().Leases(rule.LeaseNamespace).Get(t.Context(), rule.LeaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Spec
	}
	rollout(t, c, "ns/installation")
	before := lease()
	rollout(t, c, "ns/installation")
	after := lease()
	for _, l := range []coordinationv1.LeaseSpec{before, after} {
		if ptr.Deref(l.HolderIdentity, "") != "ns/installation" || ptr.Deref(l.LeaseTransitions, -1) != 0 {
			t.Errorf("the Lease is held by %q after %d transitions", *l.HolderIdentity, *l.LeaseTransitions)
		}
	}
	if !after.RenewTime.After(before.RenewTime.Time) {
		t.Error("the second process has not renewed the Lease")
	}
}

// Only the process that holds the controller's Lease takes part in the election of an installation.
func TestOnlyTheLeaderWatches(t *testing.T) {
	if r, ok := any(&Watch{}).(manager.LeaderElectionRunnable); ok && !r.NeedLeaderElection() {
		t.Error("every replica watches the rules")
	}
	if (&Lister{}).NeedLeaderElection() {
		t.Error("only the leader knows the rules that its webhook needs")
	}
}
