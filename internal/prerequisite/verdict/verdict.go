// Package verdict says whether a prerequisite holds, given the objects that it is about. It reads nothing itself: a controller
// has the objects in its caches, and a DaemonSet's process on the node reads its own node's.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// The kinds of prerequisites that are about one node's own objects: their keys in the configuration.
const (
	KindNodeReady   = "nodeReady"
	KindConditions  = "conditions"
	KindPods        = "pods"
	KindCSINodes    = "csiNodes"
	KindAllocatable = "allocatable"
)

// NodeReady is prerequisites.nodeReady as an entry of prerequisites.conditions.
var NodeReady = config.ConditionPrerequisite{Type: corev1.NodeReady, Status: corev1.ConditionTrue}

// ConditionName says which condition.
func ConditionName(c config.ConditionPrerequisite) string {
	return fmt.Sprintf("%s=%s", c.Type, c.Status)
}

// Condition says what is missing of the node's condition; empty where it holds, here and below.
func Condition(n *corev1.Node, want config.ConditionPrerequisite) string {
	for _, c := range n.Status.Conditions {
		if c.Type == want.Type && c.Status == want.Status {
			return ""
		}
	}
	return fmt.Sprintf("the node's condition %s to be %s", want.Type, want.Status)
}

// Allocatable says what is missing of a resource that the node must offer.
func Allocatable(n *corev1.Node, name corev1.ResourceName, least resource.Quantity) string {
	have, ok := n.Status.Allocatable[name]
	switch {
	case !ok:
		return fmt.Sprintf("%s %s allocatable (the node offers none)", least.String(), name)
	case have.Cmp(least) < 0:
		return fmt.Sprintf("%s %s allocatable (the node offers %s)", least.String(), name, have.String())
	}
	return ""
}

// PodsName says which pods.
func PodsName(p config.PodPrerequisite) string {
	return p.Namespace + "/" + metav1.FormatLabelSelector(&p.Selector)
}

// NoPods is the Pods of which it is not known what there is.
func NoPods(p config.PodPrerequisite, why string) string {
	return fmt.Sprintf("a pod %s in namespace %s (%s)", metav1.FormatLabelSelector(&p.Selector), p.Namespace, why)
}

// Pods says what is missing of the pods that match on the node. revisions are the ControllerRevisions of a DaemonSet, by its UID;
// they are asked for where currentRevision is.
func Pods(p config.PodPrerequisite, pods []*corev1.Pod, revisions func(daemonSetUID string) []*appsv1.ControllerRevision) string {
	// By name, so that the message does not vary with the order.
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	first := "there is none on the node"
	for i, pod := range pods {
		why := podFault(p, pod, revisions)
		if why == "" {
			return ""
		}
		if i == 0 {
			first = why
		}
	}
	return NoPods(p, first)
}

// podFault says why a pod does not count yet.
func podFault(p config.PodPrerequisite, pod *corev1.Pod, revisions func(string) []*appsv1.ControllerRevision) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return pod.Name + " is terminating"
	case len(unready(p, pod)) > 0:
		return pod.Name + " " + strings.Join(unready(p, pod), " and ")
	case p.CurrentRevision && !current(pod, revisions):
		return pod.Name + " is not of its DaemonSet's current revision"
	}
	return ""
}

// unready lists the signs of readiness that the pod lacks and needs.
func unready(p config.PodPrerequisite, pod *corev1.Pod) []string {
	key, value := p.Annotation()
	annotated := key != ""
	var lacks []string
	if (!annotated || p.ReadyBy != config.ReadyByAnnotation) && !PodReady(pod) {
		lacks = append(lacks, "is not Ready")
	}
	if have, ok := pod.Annotations[key]; annotated && (!ok || have != value) {
		lacks = append(lacks, fmt.Sprintf("does not carry annotation %s=%s", key, value))
	}
	if annotated && p.ReadyBy == config.ReadyByAny && len(lacks) < 2 {
		return nil // it has one of the two
	}
	return lacks
}

// current reports whether the pod is of its DaemonSet's newest ControllerRevision, the one that the DaemonSet
// controller itself compares with (k8s.io/kubernetes pkg/controller/daemon/update.go).
func current(pod *corev1.Pod, revisions func(string) []*appsv1.ControllerRevision) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	var newest *appsv1.ControllerRevision
	for _, r := range revisions(string(owner.UID)) {
		if newest == nil || r.Revision > newest.Revision {
			newest = r
		}
	}
	return newest != nil && newest.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
}

// PodReady reports whether the pod's condition Ready is True.
func PodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// UnreadCSINode is the CSINode of which it is not known what it says.
func UnreadCSINode(p config.CSINodePrerequisite, why string) string {
	return fmt.Sprintf("CSI driver %s (%s)", p.Driver, why)
}

// CSINode says what is missing of the CSI driver, given the CSINode of the node's name; nil where there is none.
func CSINode(p config.CSINodePrerequisite, n *corev1.Node, c *storagev1.CSINode) string {
	if why := csiNodeFault(p, n, c); why != "" {
		return UnreadCSINode(p, why)
	}
	return ""
}

func csiNodeFault(p config.CSINodePrerequisite, n *corev1.Node, c *storagev1.CSINode) string {
	if c == nil {
		return "the node has no CSINode"
	}
	// The kubelet makes it with the node as owner (CreateCSINode in k8s.io/kubernetes pkg/volume/csi/nodeinfomanager).
	if !slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == n.UID }) {
		return "the CSINode is that of an earlier node of this name"
	}
	i := slices.IndexFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == p.Driver })
	switch {
	case i < 0:
		return "the kubelet has not registered it"
	case p.Allocatable && (c.Spec.Drivers[i].Allocatable == nil || c.Spec.Drivers[i].Allocatable.Count == nil):
		return "it is registered without a volume limit"
	}
	return ""
}
