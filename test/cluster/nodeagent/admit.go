package nodeagent

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// refusal is why a kubelet does not run a pod; its zero value is none.
type refusal struct{ reason, message string }

// admit decides like the kubelet's own admission (k8s.io/kubernetes pkg/kubelet/lifecycle,
// predicate.go): resources first, then node affinity. Pods are those that the node runs
// already. Before that it refuses what this agent cannot give a pod.
func admit(pod *corev1.Pod, node *corev1.Node, pods []*corev1.Pod) refusal {
	if what := unsupported(pod); what != "" {
		return refusal{"Unsupported", "The node agent has no container runtime and cannot give this pod: " + what}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory} {
		capacity, limited := node.Status.Allocatable[name]
		if !limited {
			continue
		}
		used, wanted := &resource.Quantity{}, requested(pod, name)
		for _, other := range pods {
			used.Add(requested(other, name))
		}
		sum := used.DeepCopy()
		sum.Add(wanted)
		if sum.Cmp(capacity) > 0 {
			value := func(q resource.Quantity) int64 {
				if name == corev1.ResourceCPU {
					return q.MilliValue()
				}
				return q.Value()
			}
			return refusal{"OutOf" + string(name), fmt.Sprintf("Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, value(wanted), value(*used), value(capacity))}
		}
	}
	if !matches(pod, node) {
		return refusal{"NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	return refusal{}
}

// requested is what a pod asks for: its containers together, or one init container if that is more.
func requested(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	if name == corev1.ResourcePods {
		return resource.MustParse("1")
	}
	var sum resource.Quantity
	for _, c := range pod.Spec.Containers {
		sum.Add(c.Resources.Requests[name])
	}
	for _, c := range pod.Spec.InitContainers {
		if q := c.Resources.Requests[name]; q.Cmp(sum) > 0 {
			sum = q
		}
	}
	return sum
}

// unsupported names the first thing a pod asks for that the agent cannot give, or nothing.
func unsupported(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if !serviceAccountVolume(v) {
			return fmt.Sprintf("volume %q", v.Name)
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil {
			return fmt.Sprintf("a restart policy of init container %q", c.Name)
		}
	}
	for _, c := range pod.Spec.Containers {
		if c.ReadinessProbe != nil || c.LivenessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil {
			return fmt.Sprintf("probes or lifecycle hooks of container %q", c.Name)
		}
	}
	return ""
}

// serviceAccountVolume recognises the volume that the ServiceAccount admission plugin adds.
func serviceAccountVolume(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

// matches evaluates spec.nodeSelector and the required node affinity: terms are alternatives,
// the requirements of one term all hold.
func matches(pod *corev1.Pod, node *corev1.Node) bool {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	fields := labels.Set{"metadata.name": node.Name}
	return slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && holds(t.MatchExpressions, labels.Set(node.Labels)) && holds(t.MatchFields, fields)
	})
}

func holds(requirements []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for _, r := range requirements {
		operator := map[corev1.NodeSelectorOperator]selection.Operator{
			corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
			corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
			corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
		}[r.Operator]
		// A node name can be longer than a label value, which NewRequirement would refuse.
		if strings.HasPrefix(r.Key, "metadata.") {
			if in := slices.Contains(r.Values, set[r.Key]); in != (r.Operator == corev1.NodeSelectorOpIn) {
				return false
			}
			continue
		}
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil || !requirement.Matches(set) {
			return false
		}
	}
	return true
}
