package prerequisite

import (
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// late says why the node has no Ready pod of the DaemonSet among its own; empty when it has, or is to have none.
func late(ds *appsv1.DaemonSet, n *corev1.Node, own []any) string {
	why := "none on the node"
	for _, o := range own {
		pod := o.(*corev1.Pod)
		switch c := metav1.GetControllerOfNoCopy(pod); {
		case c == nil || c.UID != ds.UID:
		case pod.DeletionTimestamp != nil:
			if why == "none on the node" { // the index has no order: its successor says more
				why = "terminating"
			}
		case podReady(pod):
			return ""
		default:
			why = "not Ready"
		}
	}
	if !runsOn(ds, n) {
		return ""
	}
	return why
}

// runsOn reports whether the DaemonSet controller puts a pod of the DaemonSet on the node: NodeShouldRunDaemonPod in
// k8s.io/kubernetes pkg/controller/daemon, of which it calls the same parts. That package itself would bring the whole
// control plane's modules along.
func runsOn(ds *appsv1.DaemonSet, n *corev1.Node) bool {
	spec := &ds.Spec.Template.Spec
	if spec.NodeName != "" && spec.NodeName != n.Name {
		return false
	}
	// As there, a selector that cannot be parsed matches nothing.
	if fits, _ := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(n); !fits {
		return false
	}
	keepsOff := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	// The operators Lt and Gt are read: where their feature (KEP-5471) is off, the API server takes no toleration with one.
	_, kept := schedulinghelpers.FindMatchingUntoleratedTaint(logr.Discard(), n.Spec.Taints, daemonTolerations(spec), keepsOff, true)
	return !kept
}

// daemonTolerations adds those that the DaemonSet controller gives every pod (AddOrUpdateDaemonPodTolerations in
// k8s.io/kubernetes pkg/controller/daemon/util). There is none of not-ready:NoSchedule, which a node has until it is Ready.
func daemonTolerations(spec *corev1.PodSpec) []corev1.Toleration {
	all := slices.Clip(spec.Tolerations)
	add := func(effect corev1.TaintEffect, keys ...string) {
		for _, key := range keys {
			all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
		}
	}
	add(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	add(corev1.TaintEffectNoSchedule, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable)
	}
	return all
}
