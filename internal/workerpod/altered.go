package workerpod

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// markPrefix begins the keys of the labels and annotations that only this program sets.
const markPrefix = "node-ready/"

// criticalPriority is the lowest priority of a critical pod, for which a kubelet evicts others (SystemCriticalPriority
// in k8s.io/kubernetes pkg/apis/scheduling).
const criticalPriority int32 = 2_000_000_000

func critical(pod *corev1.Pod) bool { return ptr.Deref(pod.Spec.Priority, 0) >= criticalPriority }

// Altered compares a pod with what the API server stored. It names the first field in which that is not for the node
// any more; empty if there is none. Only a mutating admission policy or webhook makes such a change. It looks at what
// pins the pod to its node, what makes it ours, its tolerations and its priority. More labels, tolerations or
// constraints are no such change.
func Altered(sent, stored *corev1.Pod) string {
	node := sent.Annotations[AnnotationNode]
	switch {
	case sent.Spec.NodeName != "" && stored.Spec.NodeName != sent.Spec.NodeName,
		stored.Spec.NodeName != "" && stored.Spec.NodeName != node:
		return fmt.Sprintf("spec.nodeName is %q", stored.Spec.NodeName)
	case stored.Spec.NodeName == "" && !pinned(stored, node):
		return "spec.affinity does not pin it to its node"
	}
	for _, o := range sent.OwnerReferences {
		if !slices.ContainsFunc(stored.OwnerReferences, func(have metav1.OwnerReference) bool {
			return have.UID == o.UID && have.Kind == o.Kind
		}) {
			return "metadata.ownerReferences lacks its Node"
		}
	}
	if key := changedMark(sent.Labels, stored.Labels); key != "" {
		return fmt.Sprintf("metadata.labels[%s] is %q", key, stored.Labels[key])
	}
	if key := changedMark(sent.Annotations, stored.Annotations); key != "" {
		return fmt.Sprintf("metadata.annotations[%s] is %q", key, stored.Annotations[key])
	}
	for _, t := range sent.Spec.Tolerations {
		same := func(have corev1.Toleration) bool { return have.MatchToleration(&t) }
		if !slices.ContainsFunc(stored.Spec.Tolerations, same) {
			return fmt.Sprintf("spec.tolerations lacks that of %s", cmp.Or(t.Key, "every taint"))
		}
	}
	if sent.Spec.PriorityClassName == "" && critical(stored) {
		return fmt.Sprintf("spec.priorityClassName is %q, and its node runs workloads", stored.Spec.PriorityClassName)
	}
	return ""
}

// AlteredPod is the error of a pod that an admission policy or webhook changes so that it is not for its node any more.
type AlteredPod struct {
	// What says which field was changed; see Altered.
	What string
}

// Error implements error.
func (e AlteredPod) Error() string {
	return "a mutating admission policy or webhook changed the pod: " + e.What +
		"; exclude the workers' namespace from that policy"
}

// changedMark is the first key, in their order, of a mark of ours that was added, removed or changed.
func changedMark(sent, stored map[string]string) string {
	var changed []string
	for _, marks := range []map[string]string{sent, stored} {
		for key := range marks {
			before, had := sent[key]
			now, has := stored[key]
			ours := strings.HasPrefix(key, markPrefix) || key == LabelName || key == LabelComponent
			if ours && (had != has || before != now) {
				changed = append(changed, key)
			}
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return slices.Min(changed)
}

// pinned reports whether kube-scheduler can bind the pod to no other node. The terms of an affinity are alternatives.
func pinned(pod *corev1.Pod, node string) bool {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn &&
				slices.Equal(r.Values, []string{node})
		})
	})
}

// AlteredProbe returns the host of a control probe that was changed so that it is not Ours any more: the name of the
// node that it was made for. The probe still names its host in its annotation or its owner, and its own name derives
// from that. For any other pod altered is false.
func AlteredProbe(pod *corev1.Pod, namespace string) (host string, altered bool) {
	if pod.Namespace != namespace || Ours(pod, namespace, TargetOf(pod)) {
		return "", false
	}
	names := []string{pod.Annotations[AnnotationNode]}
	for _, o := range pod.OwnerReferences {
		if o.Kind == "Node" {
			names = append(names, o.Name)
		}
	}
	for _, node := range names {
		if node != "" && probeNamed(pod.Name, node) {
			return node, true
		}
	}
	return "", false
}

// Made reports whether the controller made the pod of a name that derives from the node's UID, although it may not be
// Ours any more. It still has a mark of the node: its owner, its label or its annotation. A pod of the name without any
// is somebody else's.
func Made(pod *corev1.Pod, namespace string, t Target) bool {
	owned := slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.UID == uid(t.UID)
	})
	return pod.Namespace == namespace &&
		(owned || pod.Labels[LabelNodeUID] == t.UID || pod.Annotations[AnnotationNode] == t.Name)
}
