// Package marks reads and writes our marks on a Node: taints, the verified label, the record annotation, the opt-outs
// and the condition.
package marks

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Names on a Node. The taints and the label are configurable, see Vocabulary.
const (
	// AnnotationRecord holds the Record as JSON.
	AnnotationRecord = "node-ready/record"
	// AnnotationSkip set to "true" opts a node out of verification and remediation.
	AnnotationSkip = "node-ready/skip"
	// AnnotationDoNotDelete set to "true" opts a node out of deletion.
	AnnotationDoNotDelete = "node-ready/do-not-delete"
	// AnnotationVerifyRequested asks for a verification: anybody sets it to an ID of their own. Once an attempt that began
	// under that ID has ended, AnnotationVerifyCompleted has the same value, and AnnotationVerifyResult is passed, failed
	// or inconclusive.
	AnnotationVerifyRequested = "node-ready/verify-requested"
	AnnotationVerifyCompleted = "node-ready/verify-completed"
	AnnotationVerifyResult    = "node-ready/verify-result"
	// AnnotationCAPISkipRemediation is Cluster API's MachineHealthCheck opt-out, honoured as
	// AnnotationDoNotDelete whatever its value, as Cluster API does.
	AnnotationCAPISkipRemediation = "cluster.x-k8s.io/skip-remediation"

	// LabelControlPlane marks a control-plane node (kubeadm's convention, KEP-2067). ControlPlaneLabels has all of them.
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	// LabelAKSMode is what a node of AKS is for; AKSModeSystem nodes run what the cluster itself needs
	// (https://learn.microsoft.com/azure/aks/use-system-pools).
	LabelAKSMode  = "kubernetes.azure.com/mode"
	AKSModeSystem = "system"
)

// ControlPlaneLabels are the labels of which any, whatever its value, marks a control-plane node. Each distribution has
// its own: kubeadm (before 1.24 master), k3s, RKE (https://rke.docs.rancher.com/config-options/nodes), RKE2, MicroK8s.
// A node of the role etcd alone is one, too. The chart's admission policy and webhook have the same list.
func ControlPlaneLabels() []string {
	return []string{LabelControlPlane, "node-role.kubernetes.io/master", "node-role.kubernetes.io/controlplane",
		"node-role.kubernetes.io/etcd", "node.kubernetes.io/microk8s-controlplane"}
}

// controlPlaneLabels is the list that every observation goes through.
var controlPlaneLabels = ControlPlaneLabels()

// VirtualLabels are the labels of which any marks a virtual node. It stands for a service that runs pods, or for
// nothing, and runs no DaemonSets. The labels are those of Virtual Kubelet
// (https://github.com/virtual-kubelet/virtual-kubelet), KWOK (https://kwok.sigs.k8s.io), Liqo (https://docs.liqo.io)
// and EKS Fargate. The chart's admission policy and webhook have the same list.
func VirtualLabels() []Label {
	return []Label{{Key: "type", Value: "virtual-kubelet"}, {Key: "type", Value: "kwok"},
		{Key: "liqo.io/type", Value: "virtual-node"}, {Key: "eks.amazonaws.com/compute-type", Value: "fargate"}}
}

// virtualLabels is the list that every observation goes through.
var virtualLabels = VirtualLabels()

// Taint is matched on key and effect; the value is only used when the taint is put on a node.
type Taint struct {
	// Key of the taint.
	Key string `json:"key" required:"" format:"qualified-name"`
	// Value of the taint.
	Value string `json:"value,omitempty" format:"label-value"`
	// Effect of the taint.
	Effect corev1.TaintEffect `json:"effect" required:"" enum:"NoSchedule PreferNoSchedule NoExecute"`
}

// Label is a node label.
type Label struct {
	// Key of the label. Default node-ready/verified.
	Key string `json:"key,omitempty" required:"" format:"qualified-name"`
	// Value of the label. Default true.
	Value string `json:"value,omitempty" format:"label-value"`
}

// Vocabulary is the part of the marks that is configured.
type Vocabulary struct {
	// Gating are the gating taints. Any of them gates a node, whatever its labels, and a pass removes all of them.
	Gating []Taint
	// Verified marks a node that passed.
	Verified Label
	// Completed is the annotation with the time of the release; empty if none is configured.
	Completed string
	// Leaving are the keys of taints that say that a node is leaving, in addition to those that leaving.go lists.
	Leaving []string
}

// Facts is what decisions need to know of a Node.
type Facts struct {
	Name, UID, BootID string
	Created           time.Time
	// Zone is the node's failure domain (label topology.kubernetes.io/zone); empty where it has none.
	Zone string
	// Arch is the label kubernetes.io/arch; empty where there is none.
	Arch string
	// Owner is what the Node shows of the object that owns it.
	Owner owner.Signs
	Gated bool // carries at least one gating taint, so it must be verified
	// GatedBy are the gating taints that it carries.
	GatedBy []Taint
	// OtherEffect are the taints that it carries with a gating key and an effect that gates nothing. Nobody here removes
	// them.
	OtherEffect       []Taint
	Labelled          bool // carries the verified label with its value
	Completed         bool // carries the annotation that says when it was released, whatever its value
	Skip, DoNotDelete bool
	ControlPlane      bool
	// OtherOS is the operating system that the label kubernetes.io/os names; empty where it names none or linux.
	OtherOS string
	// Virtual: the node has no machine; see VirtualLabels.
	Virtual  bool
	Deleting bool
	// Leaving is why the node is terminating or draining, as far as the Node shows it; empty otherwise.
	Leaving string
	// Uninitialized is the key of the taint of a cloud provider or of Cluster API, if the node has one: labels that select
	// its profile may be missing.
	Uninitialized string
	Ready         bool // condition Ready is True
	Lost          bool // condition Ready is Unknown: the kubelet stopped reporting
	HasRecord     bool // carries a record annotation, readable or not
	Record        Record
	// RecordProblem says why the record annotation cannot be read. Record then only says that the node may have passed.
	RecordProblem string
	// Requested is the value of AnnotationVerifyRequested.
	Requested string
	// Conditions are all of the node's. They must not be modified.
	Conditions []corev1.NodeCondition
	// RemediationConditions are those of the reason ReasonVerificationFailed, whatever their type.
	RemediationConditions []corev1.NodeCondition
	// Condition is ours, if it is there.
	Condition *corev1.NodeCondition
	// ManagedFields are those of a node that was read from the API server: the controller's cache drops them. They must
	// not be modified.
	ManagedFields []metav1.ManagedFieldsEntry
	// Allocatable is status.allocatable, of which the controller's cache keeps the resources that prerequisites or worker
	// pods ask for. It must not be modified.
	Allocatable corev1.ResourceList
}

// Offers reports whether the node lists each of the resources in status.allocatable, if only 0 of it: a device plugin
// has registered it with the kubelet.
func (f Facts) Offers(names []corev1.ResourceName) bool {
	return !slices.ContainsFunc(names, func(name corev1.ResourceName) bool { return !hasKey(f.Allocatable, name) })
}

// Observe reads a Node.
func Observe(n *corev1.Node, v Vocabulary) Facts {
	f := observe(n, v)
	f.Record, f.RecordProblem = readRecord(n)
	return f
}

// observe is Observe without the record.
func observe(n *corev1.Node, v Vocabulary) Facts {
	f := Facts{
		Name: n.Name, UID: string(n.UID), BootID: BootID(n), Created: n.CreationTimestamp.Time,
		Zone:      n.Labels[corev1.LabelTopologyZone],
		Arch:      n.Labels[corev1.LabelArchStable],
		Owner:     owner.Of(n),
		Labelled:  n.Labels[v.Verified.Key] == v.Verified.Value && hasKey(n.Labels, v.Verified.Key),
		Completed: v.Completed != "" && hasKey(n.Annotations, v.Completed),
		Skip:      n.Annotations[AnnotationSkip] == "true",
		DoNotDelete: n.Annotations[AnnotationDoNotDelete] == "true" ||
			n.Annotations[owner.AnnotationDoNotRepair] == "true" ||
			n.Annotations[owner.AnnotationDoNotDisrupt] == "true" ||
			hasKey(n.Annotations, AnnotationCAPISkipRemediation),
		ControlPlane: slices.ContainsFunc(controlPlaneLabels, func(key string) bool { return hasKey(n.Labels, key) }),
		Virtual:      slices.ContainsFunc(virtualLabels, func(l Label) bool { return n.Labels[l.Key] == l.Value }),
		Deleting:     n.DeletionTimestamp != nil,
		HasRecord:    hasKey(n.Annotations, AnnotationRecord),
		Requested:    n.Annotations[AnnotationVerifyRequested],
		Conditions:   n.Status.Conditions,
		Allocatable:  n.Status.Allocatable,
	}
	if os := n.Labels[corev1.LabelOSStable]; os != string(corev1.Linux) {
		f.OtherOS = os
	}
	for _, t := range n.Spec.Taints {
		switch on := (Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}); {
		case v.Gates(t):
			f.Gated, f.GatedBy = true, append(f.GatedBy, on)
		case slices.ContainsFunc(v.Gating, func(g Taint) bool { return g.Key == t.Key }):
			f.OtherEffect = append(f.OtherEffect, on)
		}
	}
	for i, c := range n.Status.Conditions {
		if c.Reason == ReasonVerificationFailed && c.Type != ConditionType {
			f.RemediationConditions = append(f.RemediationConditions, c)
		}
		switch c.Type {
		case ConditionType:
			f.Condition = &n.Status.Conditions[i]
		case corev1.NodeReady:
			f.Ready = c.Status == corev1.ConditionTrue
			f.Lost = c.Status == corev1.ConditionUnknown
		}
	}
	f.Leaving, f.Uninitialized, f.ManagedFields = leaving(n, v), uninitialized(n), n.ManagedFields
	return f
}

// BootID is the node's boot ID. The kubelet reports it; a UUID has 36 bytes. A longer text is cut, since the record
// must hold it.
func BootID(n *corev1.Node) string {
	id := n.Status.NodeInfo.BootID
	return strings.ToValidUTF8(id[:min(len(id), maxText)], "")
}

// PreferOnly reports whether there are taints, and all of them have effect PreferNoSchedule, which keeps no pod off.
func PreferOnly(taints []Taint) bool {
	strict := func(t Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	return len(taints) > 0 && !slices.ContainsFunc(taints, strict)
}

func hasKey[K comparable, V any](m map[K]V, key K) bool {
	_, ok := m[key]
	return ok
}

// Gates reports whether t is one of the gating taints. The value does not count: an autoscaler or a person may have set
// another one.
func (v Vocabulary) Gates(t corev1.Taint) bool {
	return slices.ContainsFunc(v.Gating, func(g Taint) bool { return g.ID() == TaintIDOf(t) })
}

// without returns the taints except the gating ones, in their order.
func (v Vocabulary) without(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(append([]corev1.Taint{}, taints...), v.Gates) // never null: a merge patch takes [] as none
}

// with returns the taints and those of ours that are missing. The API server refuses two taints with one key and
// effect.
func with(taints []corev1.Taint, ours []Taint) []corev1.Taint {
	out := append([]corev1.Taint{}, taints...)
	for _, o := range ours {
		t := corev1.Taint{Key: o.Key, Value: o.Value, Effect: o.Effect}
		if !slices.ContainsFunc(out, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			out = append(out, t)
		}
	}
	return out
}

// Fallback is the taint in place of a NoExecute taint that would evict pods: the same one with effect NoSchedule.
func (t Taint) Fallback() Taint {
	t.Effect = corev1.TaintEffectNoSchedule
	return t
}

// WithFallbacks returns the taints, each NoExecute taint followed by its fallback.
func WithFallbacks(taints []Taint) []Taint {
	var out []Taint
	for _, t := range taints {
		out = append(out, t)
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t.Fallback())
		}
	}
	return out
}
