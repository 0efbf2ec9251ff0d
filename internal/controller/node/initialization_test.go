package node_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A cloud's or Cluster API's controller sets the labels of a node after its kubelet has registered it. Until then the
// node's profile is not known: its checks are those that the labels select.
func TestLabelsComeLate(t *testing.T) {
	const settings = `{"profiles": [{"name": "gpu", "nodeSelector": {"matchLabels": {"node.kubernetes.io/instance-type": "p5"}},
		"checks": [{"name": "gpu", "type": "tcp"}]}]}`
	uninitialized := func(key string, change ...func(*corev1.Node)) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule})
			for _, f := range change {
				f(n)
			}
		}
	}
	for name, n := range map[string]func(*corev1.Node){
		"a cloud provider": uninitialized("node.cloudprovider.kubernetes.io/uninitialized"),
		"Cluster API":      uninitialized("node.cluster.x-k8s.io/uninitialized"),
		"with Karpenter":   uninitialized("node.cloudprovider.kubernetes.io/uninitialized", world.Pooled),
	} {
		t.Run(name, func(t *testing.T) {
			w := world.Begin(t, settings)
			n := w.Node("n", n)
			key := n.Spec.Taints[1].Key
			l := w.Lead()
			l.RunFor(time.Minute)
			if created := w.Created(workerpod.PurposeVerify); created > 0 {
				t.Errorf("%d workers were made", created)
			}
			w.ExpectCondition(n.Name, "Unknown WaitingForRegistration: No worker starts on this node yet: it has the taint "+key+
				", so labels that select its profile may be missing")

			w.Patch(n, fmt.Sprintf(`{"metadata":{"labels":{"node.kubernetes.io/instance-type":"p5"}},"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"}]}}`, world.Gating.Key))
			l.Drive()
			_, f := w.Get(n.Name)
			if want := w.Builder().Checks("gpu"); f.Gated || f.Record.Sequence != 1 || f.Record.Checks != want {
				t.Errorf("gated %t, record %+v, want checks %s at the first attempt", f.Gated, f.Record, want)
			}
		})
	}
}

// A worker runs when the taint comes: the node is released once its labels are there, by the profile that they select.
func TestLabelsComeLateDuringAnAttempt(t *testing.T) {
	w := world.Begin(t, "")
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n := w.Node("n")
	l := w.Lead()
	l.Steps(2)
	w.Patch(n, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"},{"key":"node.cloudprovider.kubernetes.io/uninitialized","effect":"NoSchedule"}]}}`, world.Gating.Key))
	w.Exit = func(*corev1.Pod) int { return 0 }
	l.RunFor(time.Minute)
	if _, f := w.Get(n.Name); !f.Gated {
		t.Errorf("it was released: %+v", f.Record)
	}
	w.ExpectCondition(n.Name, "Unknown WaitingForRegistration: All required checks passed; the taint stays: it has the taint "+
		"node.cloudprovider.kubernetes.io/uninitialized, so labels that select its profile may be missing")
	w.Patch(n, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"}]}}`, world.Gating.Key))
	l.Drive()
	if _, f := w.Get(n.Name); f.Gated || f.Record.Sequence != 1 {
		t.Errorf("it is not released: %+v", f.Record)
	}
}
