package daemonsets

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

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
	tolerations := daemonTolerations(spec)
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		keepsOff := t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		return keepsOff && !tolerated(scheduling.TolerationsTolerateTaint, tolerations, &t)
	})
}

// tolerated calls TolerationsTolerateTaint with the zero value of its logger, which discards: decisions import this
// package, and no logger. The operators Lt and Gt are read: where their feature (KEP-5471) is off, the API server
// takes no toleration with one.
func tolerated[Logger any](tolerate func(Logger, []corev1.Toleration, *corev1.Taint, bool) bool,
	tolerations []corev1.Toleration, t *corev1.Taint) bool {
	var discard Logger
	return tolerate(discard, tolerations, t, true)
}

// daemonTolerations adds those that the DaemonSet controller gives every pod (AddOrUpdateDaemonPodTolerations in
// k8s.io/kubernetes pkg/controller/daemon/util). There is none of not-ready:NoSchedule, which a node has until it is
// Ready.
func daemonTolerations(spec *corev1.PodSpec) []corev1.Toleration {
	all := slices.Clip(spec.Tolerations)
	add := func(effect corev1.TaintEffect, keys ...string) {
		for _, key := range keys {
			all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
		}
	}
	add(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	add(corev1.TaintEffectNoSchedule, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable)
	}
	return all
}
