package remediation_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// tainted adds a taint to a node that is made.
func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

// Another program drains a node that has failed for good, as aws-node-termination-handler does for two minutes before a
// spot interruption. The Node stays until that program is done. If the notice is withdrawn, the node is handled as any
// other.
func TestANodeThatIsLeavingIsNotDeleted(t *testing.T) {
	for _, key := range []string{"aws-node-termination-handler/spot-itn", "aws-node-termination-handler/asg-lifecycle-termination",
		"cloud.google.com/impending-node-termination", "node.kubernetes.io/out-of-service"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"reconciliation": {"exhaustedRetrySeconds": 60}, "nodeManagement": {`+world.Deletes+`}}`)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n := w.Exhausted("n", tainted(key))
			l := w.Lead()
			l.RunFor(5 * time.Minute)
			if len(w.Deleted()) > 0 || len(w.Ledger()) > 0 || len(w.Pods(n.Name)) > 0 {
				t.Errorf("deleted %v, ledger %v, %d workers", w.Deleted(), w.Ledger(), len(w.Pods(n.Name)))
			}
			w.ExpectCondition(n.Name, "Unknown WaitingForPrerequisites: No worker starts on this node: it has the taint "+key)

			w.Verified("control")
			w.Exit = world.VerifyExits(1)
			w.Patch(n, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"}]}}`, world.Gating.Key))
			if _, gone := l.Until(10*time.Minute, func() bool { have, _ := w.Get(n.Name); return have == nil }); !gone {
				t.Errorf("it stays: %s, record %+v", w.ConditionText(n.Name), w.Record(n.Name))
			}
		})
	}
}

// A node that failed and is drained by others counts in no limit: it does not hold the remediation of another one.
func TestANodeThatIsLeavingHoldsNoOther(t *testing.T) {
	for _, key := range []string{"aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination", "ToBeDeletedByClusterAutoscaler"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"maxUnhealthy": 1}}}`)
			leaves, n := w.Exhausted("leaves", tainted(key)), w.Exhausted("n")
			w.Lead().RunFor(time.Minute)
			if have, _ := w.Get(n.Name); have != nil {
				t.Errorf("it stays: %s", w.ConditionText(n.Name))
			}
			if have, _ := w.Get(leaves.Name); have == nil {
				t.Error("the node that is leaving was deleted")
			}
		})
	}
}

// A verified node that is drained by others hosts no control probe: its failure would excuse the node that failed.
func TestANodeThatIsLeavingHostsNoProbe(t *testing.T) {
	for _, key := range []string{"aws-node-termination-handler/scheduled-maintenance", "cloud.google.com/impending-node-termination", "node.kubernetes.io/out-of-service"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
			w.Exit = func(*corev1.Pod) int { return 1 }
			leaves := w.Verified("leaves")
			w.Patch(leaves, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, key))
			n := w.Node("n")
			w.Lead().RunFor(time.Minute)
			if probes := w.Created(workerpod.PurposeProbe); probes > 0 {
				t.Errorf("%d probes were made", probes)
			}
			if r := w.Record(n.Name); r.LastOutcome != attempt.Inconclusive || r.Attempts > 0 {
				t.Errorf("without a node to compare with: %+v", r)
			}
		})
	}
}
