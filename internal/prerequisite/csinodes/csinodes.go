// Package csinodes is prerequisites.csiNodes.
package csinodes

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Settings are CSI drivers that must be registered with the kubelet. A driver removes its startup taint before that.
type Settings []Entry

// Entry is met when the node's own CSINode, and not that of a predecessor of its name, lists the driver.
type Entry struct {
	// Driver is the CSI driver's name, for example ebs.csi.aws.com.
	Driver string `json:"driver" required:"" format:"csi-driver"`
	// Allocatable also waits for the driver's volume limit. Without it, the scheduler assumes no limit. Do not set it for
	// drivers that have no limit. Default false.
	Allocatable bool `json:"allocatable,omitempty"`
}

// Validate reports drivers that are given twice.
func (s Settings) Validate(p *field.Path) field.ErrorList {
	name := func(c Entry) string { return strings.ToLower(c.Driver) }
	return kind.Duplicates(s, name, func(i int) *field.Path { return p.Index(i).Child("driver") })
}

// With adds drivers; a volume limit is asked for if either asks.
func (s Settings) With(more Settings) Settings {
	all := slices.Clone(s)
	for _, m := range more {
		i := slices.IndexFunc(all, func(have Entry) bool { return have.Driver == m.Driver })
		if i < 0 {
			all = append(all, m)
		} else {
			all[i].Allocatable = all[i].Allocatable || m.Allocatable
		}
	}
	return all
}

// csiNodes are all CSINodes: each node has one of its own name.
var csiNodes = &kind.Source{
	Kind: storagev1.SchemeGroupVersion.WithKind("CSINode"), Object: &storagev1.CSINode{}, NodeField: "metadata.name",
	Indexes: kind.Index(kind.ByNode, func(c *storagev1.CSINode) string { return c.Name }),
	Slim: kind.Slim(func(c *storagev1.CSINode) any {
		c.ManagedFields, c.Labels, c.Annotations = nil, nil, nil
		for i, d := range c.Spec.Drivers {
			c.Spec.Drivers[i] = storagev1.CSINodeDriver{Name: d.Name, Allocatable: d.Allocatable}
		}
		return c
	}),
	Same: kind.Same(func(a, b *storagev1.CSINode) bool {
		return a.UID == b.UID && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
			equality.Semantic.DeepEqual(a.Spec, b.Spec)
	}),
	Why: "which CSI drivers the kubelet has registered",
}

// Prerequisites are the drivers.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, c := range s {
		all = append(all, kind.OfNode(c.Driver, "CSI driver "+c.Driver, csiNodes, c.missing))
	}
	return all
}

// missing says what is missing of the driver, given the CSINode of the node's name, if there is one.
func (c Entry) missing(n *corev1.Node, found []any, in kind.Cluster) string {
	if len(found) == 0 {
		return "the node has no CSINode"
	}
	node := found[0].(*storagev1.CSINode)
	// The kubelet makes it with the node as owner (CreateCSINode in k8s.io/kubernetes pkg/volume/csi/nodeinfomanager).
	own := func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == n.UID }
	if !slices.ContainsFunc(node.OwnerReferences, own) {
		return "the CSINode belongs to an earlier node of this name"
	}
	why, sign := "", ""
	i := slices.IndexFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.Driver })
	switch {
	case i < 0:
		why = "the kubelet has not registered it"
	case c.Allocatable && (node.Spec.Drivers[i].Allocatable == nil || node.Spec.Drivers[i].Allocatable.Count == nil):
		why = "it is registered without a volume limit"
	}
	if i >= 0 { // another driver's registration changes the CSINode, too
		sign = node.Spec.Drivers[i].String()
	}
	stale := in.Stale(n, kind.Object{ID: "CSINode " + c.Driver, Created: node.CreationTimestamp, Sign: sign})
	if stale != "" {
		stale = "its registration " + stale
	}
	return cmp.Or(why, stale)
}
