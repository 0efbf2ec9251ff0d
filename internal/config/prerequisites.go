package config

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Prerequisites hold the first worker back until the agents that it depends on are there.
type Prerequisites struct {
	// NodeReady waits for the node's Ready condition. Default false: a worker tolerates not-ready.
	NodeReady bool `json:"nodeReady,omitempty"`
	// Conditions of the node that must have the given status.
	Conditions []ConditionPrerequisite `json:"conditions,omitempty"`
	// Pods of which one must run, ready, on the node.
	Pods []PodPrerequisite `json:"pods,omitempty"`
	// DaemonSets are those of which a pod must be Ready on the node: none, auto (all that the DaemonSet controller puts there
	// with the taints that the node has now, the gating ones included), a list of {namespace, name}, of which those count that
	// it puts there, or a mapping of the keys below. Default none.
	DaemonSets DaemonSets `json:"daemonSets,omitzero"`
	// CSINodes are CSI drivers that the kubelet must have registered. A driver takes its start-up taint away before that.
	CSINodes []CSINodePrerequisite `json:"csiNodes,omitempty"`
	// Allocatable is how much of a resource the node must offer at least, as nvidia.com/gpu: 1, in status.allocatable.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// ResourceSlices are DRA drivers that must have published every pool of the node. They need Kubernetes 1.34.
	ResourceSlices []ResourceSlicePrerequisite `json:"resourceSlices,omitempty"`
	// Resources of any kind whose condition must hold.
	Resources []ResourcePrerequisite `json:"resources,omitempty"`
}

// ConditionPrerequisite is a node condition and its status.
type ConditionPrerequisite struct {
	// Type of the node's condition.
	Type corev1.NodeConditionType `json:"type" required:"" format:"qualified-name"`
	// Status it must have. Default True.
	Status corev1.ConditionStatus `json:"status,omitempty" enum:"True False Unknown"`
}

// PodPrerequisite is met by a pod on the node that matches, is not terminating and is ready.
type PodPrerequisite struct {
	// Namespace of the pod.
	Namespace string `json:"namespace" required:"name it: whoever may annotate its pods decides" format:"dns-label"`
	// Selector matches the pod's labels; it must not be empty.
	Selector metav1.LabelSelector `json:"selector" required:"select the pods; an empty selector would be met by any pod"`
	// CurrentRevision also asks that the pod is of its DaemonSet's current revision. Default false.
	CurrentRevision bool `json:"currentRevision,omitempty"`
	// ReadyAnnotation is an annotation by which the pod says that it is ready, as key=value, or key alone for the value
	// "true". Default: none; the pod is ready once its condition Ready is True.
	ReadyAnnotation string `json:"readyAnnotation,omitempty"`
	// ReadyBy is what counts where there is a readyAnnotation: any (the annotation, or condition Ready), annotation (that
	// alone) or both. Default any.
	ReadyBy ReadyBy `json:"readyBy,omitempty" enum:"any annotation both"`
}

// ReadyBy is which sign makes a pod ready.
type ReadyBy string

// The ReadyBy settings.
const (
	ReadyByAny        ReadyBy = "any"
	ReadyByAnnotation ReadyBy = "annotation"
	ReadyByBoth       ReadyBy = "both"
)

// Annotation splits ReadyAnnotation. The key is empty where there is none.
func (p *PodPrerequisite) Annotation() (key, value string) {
	key, value, found := strings.Cut(p.ReadyAnnotation, "=")
	if !found {
		value = "true"
	}
	return key, value
}

// DaemonSets is met when every DaemonSet that counts has a pod on the node that is not terminating and is Ready.
type DaemonSets struct {
	// Mode is the same as that word in place of the mapping. Default none.
	Mode DaemonSetMode `json:"mode,omitempty" enum:"none auto"`
	// Exclude lists DaemonSets that auto does not wait for.
	Exclude []DaemonSetName `json:"exclude,omitempty"`
	// Named lists DaemonSets, each of which must exist; the same as that list in place of the mapping.
	Named []DaemonSetPrerequisite `json:"named,omitempty"`
}

// Shorthand has a word stand for the mode, and a list for the names.
func (*DaemonSets) Shorthand(list bool) (key string) {
	if list {
		return "named"
	}
	return "mode"
}

// DaemonSetPrerequisite is met when the DaemonSet exists and its pod, on nodes that it comes to, is Ready.
type DaemonSetPrerequisite struct {
	// Namespace of the DaemonSet.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Name of the DaemonSet.
	Name string `json:"name,omitempty" format:"dns-subdomain"`
	// AnyOf lists the names that it may have, in place of namespace and name, where that depends on how it was installed. One of
	// them must exist, and all that exist count.
	AnyOf []DaemonSetName `json:"anyOf,omitempty"`
	// Provides is what its pod sets up on a node. It is waited for too where the DaemonSet's node selector and affinity have
	// a place for the pod, gating taints apart.
	Provides *Provided `json:"provides,omitempty"`
	// preset is the one that the entry comes from; empty for the file's own.
	preset Preset
}

// Provided is what a DaemonSet's pod sets up on its node.
type Provided struct {
	// CSINodes are CSI drivers that the kubelet must have registered.
	CSINodes []CSINodePrerequisite `json:"csiNodes,omitempty"`
	// Allocatable is how much of a resource the node must offer at least, in status.allocatable.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// Names are those that the DaemonSet may have.
func (d *DaemonSetPrerequisite) Names() []DaemonSetName {
	if len(d.AnyOf) > 0 {
		return d.AnyOf
	}
	return []DaemonSetName{{Namespace: d.Namespace, Name: d.Name}}
}

// String is the names.
func (d *DaemonSetPrerequisite) String() string {
	var names []string
	for _, n := range d.Names() {
		names = append(names, n.String())
	}
	return strings.Join(names, " or ")
}

// DaemonSetMode is which DaemonSets count where none is named.
type DaemonSetMode string

// The DaemonSetMode settings.
const (
	DaemonSetsNone DaemonSetMode = "none"
	DaemonSetsAuto DaemonSetMode = "auto"
)

// DaemonSetName names a DaemonSet.
type DaemonSetName struct {
	// Namespace of the DaemonSet.
	Namespace string `json:"namespace" required:"" format:"dns-label"`
	// Name of the DaemonSet.
	Name string `json:"name" required:"" format:"dns-subdomain"`
}

// String is namespace/name.
func (n DaemonSetName) String() string { return n.Namespace + "/" + n.Name }

// CSINodePrerequisite is met when the node's own CSINode, and not that of a predecessor of its name, lists the driver.
type CSINodePrerequisite struct {
	// Driver is the CSI driver's name, as ebs.csi.aws.com.
	Driver string `json:"driver" required:"" format:"csi-driver"`
	// Allocatable also asks for the driver's volume limit, without which the scheduler takes the node for unlimited.
	// Not for drivers that have none. Default false.
	Allocatable bool `json:"allocatable,omitempty"`
}

// ResourceSlicePrerequisite is met when the driver has published at least one pool for the node, and of every pool all
// ResourceSlices of its newest generation.
type ResourceSlicePrerequisite struct {
	// Driver is the DRA driver's name, as gpu.nvidia.com.
	Driver string `json:"driver" required:"" format:"dra-driver"`
}

// ResourcePrerequisite is met when at least one object matches and every match has the condition.
type ResourcePrerequisite struct {
	// APIVersion of the objects, as cilium.io/v2.
	APIVersion string `json:"apiVersion" required:"as in cilium.io/v2"`
	// Kind of the objects, as CiliumNode.
	Kind string `json:"kind" required:"as in CiliumNode" format:"kind"`
	// Namespace of the objects; empty for cluster-scoped kinds or all namespaces.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Selector is a label selector in its string form; {{node}} is replaced by the node's name.
	Selector string `json:"selector,omitempty"`
	// Condition is the type looked up in status.conditions.
	Condition string `json:"condition" required:"" format:"qualified-name"`
	// Status it must have. Default True.
	Status metav1.ConditionStatus `json:"status,omitempty" enum:"True False Unknown"`
}

func (p *Prerequisites) setDefaults() {
	for i := range p.Conditions {
		or(&p.Conditions[i].Status, corev1.ConditionTrue)
	}
	for i := range p.Pods {
		if p.Pods[i].ReadyAnnotation != "" {
			or(&p.Pods[i].ReadyBy, ReadyByAny)
		}
	}
	for i := range p.Resources {
		or(&p.Resources[i].Status, metav1.ConditionTrue)
	}
}
