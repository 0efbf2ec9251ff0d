// Package nodecache is the controller's cache of Nodes. It holds of each Node what decisions read, in a form a quarter
// as large as those fields of a Node, since a cluster has tens of thousands of them. Readers and event handlers get
// Nodes: no other package knows the form.
package nodecache

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// packed is a Node in the cache. What many nodes have in common is held once for all of them: package unique drops it
// with the last node that has it. Times have whole seconds, as in the API. It must not be modified.
type packed struct {
	name, uid, resourceVersion string
	providerID, bootID         string
	created, deleted           int64
	unschedulable              bool
	labels                     []unique.Handle[label] // sorted by key
	annotations                []annotation           // sorted by key
	completions                []metav1.ManagedFieldsEntry
	owners                     []owner
	finalizers                 []string
	taints                     []corev1.Taint
	conditions                 []condition
	allocatable                corev1.ResourceList
}

// label is a label of a Node.
type label struct {
	key, value string
	// named: the value is the name of the node, and value is empty. Else each node's hostname would be one of its own.
	named bool
}

type annotation struct {
	key   unique.Handle[string]
	value string
}

// owner is an owner reference.
type owner struct {
	kind                 unique.Handle[ownerKind]
	name                 string
	uid                  types.UID
	controller, blocking int8
}

type ownerKind struct{ apiVersion, kind string }

// condition is a condition of a Node. Of others' conditions the reason and the message are not kept. Of a condition
// that asks for remediation the message is not kept.
type condition struct {
	text                  unique.Handle[conditionText]
	transition, heartbeat int64
}

type conditionText struct {
	conditionType   corev1.NodeConditionType
	status          corev1.ConditionStatus
	reason, message string
}

// none is the time that is not set.
const none = math.MinInt64

func seconds(t metav1.Time) int64 {
	if t.IsZero() {
		return none
	}
	return t.Unix()
}

func timeOf(s int64) metav1.Time {
	if s == none {
		return metav1.Time{}
	}
	return metav1.NewTime(time.Unix(s, 0))
}

func optional(b *bool) int8 {
	switch {
	case b == nil:
		return -1
	case *b:
		return 1
	}
	return 0
}

func pointer(b int8) *bool {
	if b < 0 {
		return nil
	}
	return ptr.To(b == 1)
}

// pack packs a Node, whose strings it keeps.
func pack(n *corev1.Node, k Keep) *packed {
	p := &packed{name: n.Name, uid: string(n.UID),
		resourceVersion: n.ResourceVersion, providerID: n.Spec.ProviderID,
		bootID: n.Status.NodeInfo.BootID, unschedulable: n.Spec.Unschedulable,
		created: seconds(n.CreationTimestamp), deleted: seconds(ptr.Deref(n.DeletionTimestamp, metav1.Time{})),
		taints: slices.Clone(n.Spec.Taints), finalizers: slices.Clone(n.Finalizers)}
	if len(n.Labels) > 0 {
		p.labels = make([]unique.Handle[label], 0, len(n.Labels))
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		l := label{key: key, value: n.Labels[key]}
		if l.value == n.Name {
			l.value, l.named = "", true
		}
		p.labels = append(p.labels, unique.Make(l))
	}
	if len(n.Annotations) > 0 {
		p.annotations = make([]annotation, 0, len(n.Annotations))
	}
	for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
		p.annotations = append(p.annotations, annotation{unique.Make(key), n.Annotations[key]})
	}
	p.completions = marks.CompletionTimes(n)
	for _, o := range n.OwnerReferences {
		p.owners = append(p.owners, owner{kind: unique.Make(ownerKind{o.APIVersion, o.Kind}), name: o.Name,
			uid: types.UID(string(o.UID)), controller: optional(o.Controller),
			blocking: optional(o.BlockOwnerDeletion)})
	}
	if len(n.Status.Conditions) > 0 {
		p.conditions = make([]condition, 0, len(n.Status.Conditions))
	}
	for _, c := range n.Status.Conditions {
		text := conditionText{conditionType: c.Type, status: c.Status}
		switch { // of others' the status decides
		case c.Type == marks.ConditionType:
			text.reason, text.message = c.Reason, c.Message
		case c.Reason == marks.ReasonVerificationFailed:
			text.reason = c.Reason
		}
		kept := condition{text: unique.Make(text), transition: seconds(c.LastTransitionTime), heartbeat: none}
		if k.Heartbeats {
			kept.heartbeat = seconds(c.LastHeartbeatTime)
		}
		p.conditions = append(p.conditions, kept)
	}
	for name, quantity := range n.Status.Allocatable {
		if k.Allocatable[name] {
			if p.allocatable == nil {
				p.allocatable = corev1.ResourceList{}
			}
			p.allocatable[corev1.ResourceName(string(name))] = quantity.DeepCopy()
		}
	}
	return p
}

// into makes n the Node that was packed. n owns all that it holds.
func (p *packed) into(n *corev1.Node) {
	*n = corev1.Node{}
	p.fill(n)
}

// fill is into, but n keeps the maps and slices that it has, and so must share them with no other.
func (p *packed) fill(n *corev1.Node) {
	labels, annotations, taints, conditions := n.Labels, n.Annotations, n.Spec.Taints[:0], n.Status.Conditions[:0]
	clear(labels)
	clear(annotations)
	*n = corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, UID: types.UID(p.uid), ResourceVersion: p.resourceVersion,
			CreationTimestamp: timeOf(p.created), Finalizers: slices.Clone(p.finalizers)},
		Spec: corev1.NodeSpec{ProviderID: p.providerID, Unschedulable: p.unschedulable},
		Status: corev1.NodeStatus{Allocatable: p.allocatable.DeepCopy(),
			NodeInfo: corev1.NodeSystemInfo{BootID: p.bootID}},
	}
	if p.deleted != none {
		n.DeletionTimestamp = ptr.To(timeOf(p.deleted))
	}
	if p.labels != nil {
		n.Labels = reuse(labels, len(p.labels))
	}
	for _, h := range p.labels {
		l := h.Value()
		if l.named {
			l.value = p.name
		}
		n.Labels[l.key] = l.value
	}
	if p.annotations != nil {
		n.Annotations = reuse(annotations, len(p.annotations))
	}
	for _, a := range p.annotations {
		n.Annotations[a.key.Value()] = a.value
	}
	for _, e := range p.completions {
		n.ManagedFields = append(n.ManagedFields, *e.DeepCopy())
	}
	for _, o := range p.owners {
		kind := o.kind.Value()
		n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{APIVersion: kind.apiVersion, Kind: kind.kind,
			Name: o.name, UID: o.uid, Controller: pointer(o.controller), BlockOwnerDeletion: pointer(o.blocking)})
	}
	if len(p.taints) > 0 {
		n.Spec.Taints = taints
	}
	for _, t := range p.taints {
		n.Spec.Taints = append(n.Spec.Taints, *t.DeepCopy())
	}
	if p.conditions != nil {
		n.Status.Conditions = slices.Grow(conditions, len(p.conditions))
	}
	for _, c := range p.conditions {
		text := c.text.Value()
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: text.conditionType, Status: text.status,
			Reason: text.reason, Message: text.message,
			LastTransitionTime: timeOf(c.transition), LastHeartbeatTime: timeOf(c.heartbeat)})
	}
}

// reuse returns the empty map m. If m is nil, it returns a new map with capacity for the keys.
func reuse(m map[string]string, keys int) map[string]string {
	if m == nil {
		m = make(map[string]string, keys)
	}
	return m
}

// node is the Node that was packed. The caller owns it.
func (p *packed) node() *corev1.Node {
	n := &corev1.Node{}
	p.into(n)
	return n
}

// same reports whether two packed Nodes differ in nothing but their resourceVersion, as before and after a heartbeat.
func (p *packed) same(o *packed) bool {
	return p.name == o.name && p.uid == o.uid && p.providerID == o.providerID && p.bootID == o.bootID &&
		p.created == o.created && p.deleted == o.deleted && p.unschedulable == o.unschedulable &&
		slices.Equal(p.labels, o.labels) && slices.Equal(p.annotations, o.annotations) &&
		equality.Semantic.DeepEqual(p.completions, o.completions) && slices.Equal(p.owners, o.owners) &&
		slices.Equal(p.finalizers, o.finalizers) &&
		slices.Equal(p.conditions, o.conditions) &&
		equality.Semantic.DeepEqual(p.taints, o.taints) && equality.Semantic.DeepEqual(p.allocatable, o.allocatable)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor: what an informer asks of its objects.
func (p *packed) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: p.name, UID: types.UID(p.uid), ResourceVersion: p.resourceVersion}
}

func byName(a, b *packed) int { return cmp.Compare(a.name, b.name) }
