package watch

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// daemonSet is one that runs everywhere, unless a change says otherwise.
func daemonSet(name string, changes ...func(*corev1.PodSpec)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(name)}}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, change := range changes {
		change(&ds.Spec.Template.Spec)
	}
	return ds
}

func tolerates(s *corev1.PodSpec) { s.Tolerations = nil }

func selects(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"pool": "gpu"} }

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: "5", Effect: effect}
}

// gating is the taint of a node that is not verified.
var gating = taint("node-ready/unverified", corev1.TaintEffectNoSchedule)
