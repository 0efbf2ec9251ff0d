package marks

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func TestLeaving(t *testing.T) {
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint(key, effect)) }
	}
	condition := func(c corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: status})
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"a node like any other":           {func(*corev1.Node) {}, ""},
		"being deleted":                   {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }, "it is being deleted"},
		"Cluster Autoscaler removes it":   {tainted("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule), "it has the taint ToBeDeletedByClusterAutoscaler"},
		"it may remove it some day":       {tainted("DeletionCandidateOfClusterAutoscaler", corev1.TaintEffectPreferNoSchedule), ""},
		"Karpenter disrupts it":           {tainted(karpv1.DisruptedTaintKey, corev1.TaintEffectNoSchedule), "it has the taint karpenter.sh/disrupted"},
		"Karpenter has not registered it": {tainted(karpv1.UnregisteredTaintKey, corev1.TaintEffectNoExecute), ""},
		"a spot interruption (AWS)": {tainted("aws-node-termination-handler/spot-itn", corev1.TaintEffectNoExecute),
			"it has the taint aws-node-termination-handler/spot-itn"},
		"a scheduled event (AWS)": {tainted("aws-node-termination-handler/scheduled-maintenance", corev1.TaintEffectNoSchedule),
			"it has the taint aws-node-termination-handler/scheduled-maintenance"},
		"a rebalance recommendation (AWS)": {tainted("aws-node-termination-handler/rebalance-recommendation", corev1.TaintEffectPreferNoSchedule),
			"it has the taint aws-node-termination-handler/rebalance-recommendation"},
		"the handler's name without a notice": {tainted("aws-node-termination-handler", corev1.TaintEffectNoSchedule), ""},
		"another program's notice":            {tainted("example.com/spot-itn", corev1.TaintEffectNoSchedule), ""},
		"a preemption (Google Cloud)": {tainted("cloud.google.com/impending-node-termination", corev1.TaintEffectNoSchedule),
			"it has the taint cloud.google.com/impending-node-termination"},
		"another taint of Google Cloud": {tainted("cloud.google.com/gke-spot", corev1.TaintEffectNoSchedule), ""},
		"a person says that it is shut down": {tainted("node.kubernetes.io/out-of-service", corev1.TaintEffectNoExecute),
			"it has the taint node.kubernetes.io/out-of-service"},
		"a configured taint":           {tainted("example.com/evacuate", corev1.TaintEffectNoSchedule), "it has the taint example.com/evacuate"},
		"a configured one, by its key": {tainted("example.com/evacuate", corev1.TaintEffectNoExecute), "it has the taint example.com/evacuate"},
		"not a configured one":         {tainted("example.com/evacuate-soon", corev1.TaintEffectNoSchedule), ""},
		"it is cordoned":               {tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), ""},
		"it is drained":                {condition("DrainInProgress", corev1.ConditionTrue), "its condition DrainInProgress is True"},
		"it was drained":               {condition("DrainInProgress", corev1.ConditionFalse), ""},
		"it may be drained":            {condition("DrainInProgress", corev1.ConditionUnknown), ""},
		"it is maintained":             {condition("MaintenanceInProgress", corev1.ConditionTrue), "its condition MaintenanceInProgress is True"},
		"it shuts down":                {condition("GracefulNodeShutdownInProgress", corev1.ConditionTrue), "its condition GracefulNodeShutdownInProgress is True"},
		"its kubelet is gone":          {condition(corev1.NodeReady, corev1.ConditionUnknown), ""},
	} {
		n := node()
		tc.change(n)
		v := vocabulary
		v.Leaving = []string{"example.com/evacuate"}
		if got := Observe(n, v).Leaving; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestUninitialized(t *testing.T) {
	for key, want := range map[string]bool{
		"node.cloudprovider.kubernetes.io/uninitialized": true,
		"node.cluster.x-k8s.io/uninitialized":            true,
		"node.cloudprovider.kubernetes.io/shutdown":      false,
		karpv1.UnregisteredTaintKey:                      false,
		corev1.TaintNodeNotReady:                         false,
	} {
		n := node()
		n.Spec.Taints = append(n.Spec.Taints, taint(key, corev1.TaintEffectNoSchedule))
		if got := Observe(n, vocabulary).Uninitialized; (got == key) != want {
			t.Errorf("%s: %q", key, got)
		}
	}
}
