package prerequisite

import (
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/verdict"
)

// daemonPod is what is kept of a DaemonSet's pod: there are some for every node, and a corev1.Pod takes three times the
// memory even when it holds no more.
type daemonPod struct {
	metav1.ObjectMeta // name, UID, resource version and time of deletion
	owner             types.UID
	node              string
	ready             bool
}

var daemonPodsByNode = cache.Indexers{byNode: func(o any) ([]string, error) {
	if p, ok := o.(*daemonPod); ok && p.node != "" {
		return []string{p.node}, nil
	}
	return nil, nil
}}

func slimDaemonPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	slim := &daemonPod{node: p.Spec.NodeName, ready: verdict.PodReady(p), ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp}}
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		slim.owner = c.UID
	}
	return slim, nil
}

// sameDaemonPod spares a waiting node what does not concern late.
func sameDaemonPod(old, now any) bool {
	a, okA := old.(*daemonPod)
	b, okB := now.(*daemonPod)
	return okA && okB && a.UID == b.UID && a.owner == b.owner && a.node == b.node && a.ready == b.ready && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// late says why the node has no Ready pod of the DaemonSet among its own; empty when it has, or is to have none.
func late(ds *appsv1.DaemonSet, n *corev1.Node, own []any) string {
	why := "none on the node"
	for _, o := range own {
		switch pod := o.(*daemonPod); {
		case pod.owner != ds.UID:
		case pod.DeletionTimestamp != nil:
			if why == "none on the node" { // the index has no order: its successor says more
				why = "terminating"
			}
		case pod.ready:
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
