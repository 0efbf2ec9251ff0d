package kubectlplugin

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// changing is a client of an API server on which a node becomes another one once somebody watches it. As on a real one, a
// watch with a selector reports a node that it selects no more as deleted.
func changing(t *testing.T, before, after *corev1.Node) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset(before)
	client.PrependWatchReactor("nodes", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, selector := watch.NewFake(), a.(clienttesting.WatchAction).GetWatchRestrictions().Labels
		go func() {
			if selector != nil && !selector.Matches(labels.Set(after.Labels)) {
				w.Delete(after)
				return
			}
			w.Modify(after)
		}()
		return true, w, nil
	})
	return client
}

// A node is waited for by its name once a selector has selected it: what it is waited for for may change its labels.
func TestWaitForNodesThatTheSelectorSelectsNoMore(t *testing.T) {
	gated := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	out := &strings.Builder{}
	v := &invocation{now: now, time: &serverTime{}, selector: "!node-ready/verified", timeout: 20 * time.Second, stream: out, warnings: &strings.Builder{},
		cluster: &cluster{client: changing(t, makeNode(gated), makeNode(labelled, having(passed))), component: componentController,
			namespace: "own", config: configuration(t, "{}")}}
	if err := wait(t.Context(), v); err != nil || out.String() != "node/n is verified\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// A node that the controller is about to taint is one that it will verify.
func TestWaitForANodeThatIsToBeTainted(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		node   *corev1.Node
		due    bool
	}{
		"never tainted":               {"{}", makeNode(young), false},
		"admission missed it":         {"admission: {backfill: true}", makeNode(young), true},
		"missed, and too old":         {"admission: {backfill: true}", makeNode(), false},
		"promised, and taken":         {"admission: {mode: policy}", makeNode(young, condition(marks.ReasonVerifying, "")), true},
		"taken by a person":           {"admission: {mode: policy}", makeNode(young, condition(marks.ReasonGateRemoved, "")), false},
		"taken, and nothing promised": {"{}", makeNode(young, condition(marks.ReasonVerifying, "")), false},
	} {
		s := observe(configuration(t, c.config), c.node, nil)
		if got := s.gateIsDue(now); got != c.due {
			t.Errorf("%s: due %t", name, got)
		}
	}
}

// A node that is younger than the installation and was born with the verified label is verified all the same.
func TestANodeThatWasBornWithTheLabel(t *testing.T) {
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now}}}
	lease.Name, lease.Namespace, lease.CreationTimestamp.Time = "kube-node-ready", "own", now.Add(-time.Hour)
	v := &invocation{now: now, cluster: &cluster{client: fake.NewClientset(lease), component: componentController, controllerNamespace: "own",
		config: configuration(t, "{}")}}
	v.cluster.config.LeaderElection.ID = lease.Name
	v.cluster.installed = v.leader(t.Context()).installed
	for name, c := range map[string]struct {
		node  *corev1.Node
		state decide.State
	}{
		"born with the label": {makeNode(labelled, young), decide.StateWaiting},
		"it has passed since": {makeNode(labelled, young, having(passed)), decide.StateVerified},
		"there before":        {makeNode(labelled), decide.StateVerified},
	} {
		if got := v.cluster.observe(c.node, nil).summary(now).State; got != string(c.state) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func young(n *corev1.Node) { n.CreationTimestamp.Time = now.Add(-time.Minute) }
