package daemonsets

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// byName is the index of DaemonSets by namespace and name.
const byName = "name"

// maxNames is how many DaemonSets a message names.
const maxNames = 5

// objects are the DaemonSets of one namespace, or of all, and the pods of DaemonSets.
type objects struct{ sets, pods *kind.Source }

// in returns the objects of a namespace, of the DaemonSets those with the labels; anywhere grants the right to read
// them in the whole cluster.
func in(namespace, labels string, anywhere bool) objects {
	const why = "which DaemonSets come to a node, and whether their pods are Ready"
	return objects{
		sets: &kind.Source{
			Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Namespace: namespace, Labels: labels,
			Object:  &appsv1.DaemonSet{},
			Indexes: kind.Index(byName, func(d *appsv1.DaemonSet) string { return nameOf(d).String() }),
			Slim:    kind.Slim(slimDaemonSet), Same: kind.Same(sameDaemonSet), Why: why, Anywhere: anywhere,
		},
		pods: &kind.Source{
			// The label that the DaemonSet controller gives each of its pods; besides them only a StatefulSet's have it.
			Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: namespace, Labels: appsv1.DefaultDaemonSetUniqueLabelKey,
			Object:  &corev1.Pod{},
			Indexes: kind.Index(kind.ByNode, func(p *pod) string { return p.node }),
			Slim:    kind.Slim(slimPod), Same: kind.Same(samePod), Why: why, Anywhere: anywhere,
		},
	}
}

func (o objects) sources() []*kind.Source { return []*kind.Source{o.sets, o.pods} }

// find returns the DaemonSets under an index, and the node's own pods; or why they are not known.
func (o objects) find(n *corev1.Node, c kind.Cluster, index, value string) (sets, own []any, why string) {
	if sets, why = c.Find(o.sets, index, value); why != "" {
		return nil, nil, why
	}
	own, why = c.Find(o.pods, kind.ByNode, n.Name)
	return sets, own, why
}

func nameOf(d *appsv1.DaemonSet) Name { return Name{Namespace: d.Namespace, Name: d.Name} }

// slimDaemonSet keeps what runsOn reads.
func slimDaemonSet(d *appsv1.DaemonSet) any {
	d.ManagedFields, d.Labels, d.Annotations = nil, nil, nil
	full := d.Spec.Template.Spec
	d.Spec, d.Status = appsv1.DaemonSetSpec{}, appsv1.DaemonSetStatus{}
	d.Spec.Template.Spec = corev1.PodSpec{NodeName: full.NodeName, NodeSelector: full.NodeSelector,
		Tolerations: full.Tolerations, HostNetwork: full.HostNetwork}
	if full.Affinity != nil && full.Affinity.NodeAffinity != nil {
		required := full.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	return d
}

// sameDaemonSet ignores the status, which changes with every pod of every node.
func sameDaemonSet(a, b *appsv1.DaemonSet) bool {
	return a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// pod is what is kept of a DaemonSet's pod: there are some for every node, and a corev1.Pod takes three times the
// memory even when it holds no more.
type pod struct {
	metav1.ObjectMeta // name, UID, resource version and time of deletion
	owner             types.UID
	node              string
	ready             bool
	since             metav1.Time // see kind.ReadySince
}

func slimPod(p *corev1.Pod) any {
	slim := &pod{node: p.Spec.NodeName, ready: kind.PodReady(p), since: kind.ReadySince(p),
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp}}
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		slim.owner = c.UID
	}
	return slim
}

func samePod(a, b *pod) bool {
	return a.UID == b.UID && a.owner == b.owner && a.node == b.node && a.ready == b.ready && a.since.Equal(&b.since) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// waiting says why the node has no Ready pod of the DaemonSet among its own; empty when it has, or is to have none.
func waiting(ds *appsv1.DaemonSet, n *corev1.Node, c kind.Cluster, own []any) string {
	why := "none on the node"
	for _, o := range own {
		p := o.(*pod)
		if p.owner != ds.UID {
			continue
		}
		stale := c.Stale(n, kind.Object{ID: string(p.UID), Created: p.CreationTimestamp, Sign: p.since.String()})
		switch {
		case p.DeletionTimestamp != nil:
			if why == "none on the node" { // the index has no order: its successor says more
				why = "terminating"
			}
		case p.ready && stale != "":
			why = "its pod " + stale
		case p.ready:
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

// selected is all DaemonSets that a selector matches, or with mode auto all but those that are excluded or named.
type selected struct {
	objects
	exclude  []Name
	selector string // for messages; empty with mode auto
}

func (u selected) unmet(n *corev1.Node, c kind.Cluster) kind.Unmet {
	sets, own, why := u.find(n, c, kind.All, "")
	if why != "" {
		return kind.Missing("Ready pods of "+cmp.Or(u.selector, "all DaemonSets"), why)
	}
	reasons := map[string]string{}
	for _, o := range sets {
		ds := o.(*appsv1.DaemonSet)
		name := nameOf(ds)
		if ds.DeletionTimestamp != nil || slices.Contains(u.exclude, name) {
			continue
		}
		if why := waiting(ds, n, c, own); why != "" {
			reasons[name.String()] = why
		}
	}
	return unready(reasons)
}

// unready is what is unmet, given why each DaemonSet is not ready.
func unready(reasons map[string]string) kind.Unmet {
	if len(reasons) == 0 {
		return kind.Unmet{}
	}
	names := slices.Sorted(maps.Keys(reasons))
	var texts []string
	for _, name := range names[:min(len(names), maxNames)] {
		texts = append(texts, fmt.Sprintf("%s (%s)", name, reasons[name]))
	}
	why := "Ready pods of DaemonSets " + strings.Join(texts, ", ")
	if more := len(names) - maxNames; more > 0 {
		why += fmt.Sprintf(" and %d more", more)
	}
	return kind.Unmet{Why: why, Of: names}
}

const noSuchDaemonSet = "there is no such DaemonSet"

// named is one entry.
type named struct {
	Entry
	in []objects // of the namespace of each name
}

func newNamed(e Entry) named {
	n := named{Entry: e}
	for _, name := range e.Names() {
		n.in = append(n.in, in(name.Namespace, "", len(e.AnyOf) > 0))
	}
	return n
}

func (e named) sources() (all []*kind.Source) {
	for _, o := range e.in {
		all = append(all, o.sources()...)
	}
	return all
}

// each calls f with each of the DaemonSets that exists, and the node's own pods, until f returns false; why is the
// reason for which they are not known.
func (e named) each(n *corev1.Node, c kind.Cluster, f func(ds *appsv1.DaemonSet, own []any) bool) (why string) {
	for i, name := range e.Names() {
		sets, own, why := e.in[i].find(n, c, byName, name.String())
		if why != "" {
			return why
		}
		for _, o := range sets {
			if ds := o.(*appsv1.DaemonSet); ds.DeletionTimestamp == nil && !f(ds, own) {
				return ""
			}
		}
	}
	return ""
}

func (e named) unmet(n *corev1.Node, c kind.Cluster) kind.Unmet {
	reason := noSuchDaemonSet
	unknown := e.each(n, c, func(ds *appsv1.DaemonSet, own []any) bool {
		reason = waiting(ds, n, c, own)
		return reason == ""
	})
	reason = cmp.Or(unknown, reason)
	unmet := kind.Missing("a Ready pod of DaemonSet "+e.String(), reason)
	if reason == noSuchDaemonSet { // one under another name does not come by waiting
		unmet.Remedy = e.Remedy()
	}
	return unmet
}

// provided is one thing that the DaemonSet provides, for the nodes that it comes to.
func (e named) provided(p kind.Prerequisite) kind.Prerequisite {
	unmet := p.Unmet
	p.Sources = append(e.sources(), p.Sources...)
	p.Unmet = func(n *corev1.Node, c kind.Cluster) kind.Unmet {
		ds := e.comes(n, c)
		if ds == nil {
			return kind.Unmet{} // its own prerequisite says that it does not exist, or is not read yet
		}
		u := unmet(n, c)
		if u.Why != "" {
			u.Remedy = remedy(ds, n, c)
		}
		return u
	}
	return p
}

// comes returns the DaemonSet that has, or is to have, a pod on the node; nil for none. A taint that is there only
// until the node is released or Ready keeps none off for good.
func (e named) comes(n *corev1.Node, c kind.Cluster) (comes *appsv1.DaemonSet) {
	later := *n
	later.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return gates(c, t) || t.Key == corev1.TaintNodeNotReady
	})
	_ = e.each(n, c, func(ds *appsv1.DaemonSet, _ []any) bool {
		if runsOn(ds, &later) {
			comes = ds
		}
		return comes == nil
	})
	return comes
}

// remedy is for a DaemonSet that does not tolerate what gates the node: its pod does not come before the node is
// released.
func remedy(ds *appsv1.DaemonSet, n *corev1.Node, c kind.Cluster) string {
	for _, t := range n.Spec.Taints {
		alone := *n
		if alone.Spec.Taints = []corev1.Taint{t}; gates(c, t) && !runsOn(ds, &alone) {
			return fmt.Sprintf("DaemonSet %s provides it but does not tolerate %s:%s, so its pod cannot run before the node "+
				"is released; add the toleration", nameOf(ds), t.Key, t.Effect)
		}
	}
	return ""
}

func gates(c kind.Cluster, t corev1.Taint) bool {
	return slices.ContainsFunc(c.Gating(), func(g marks.Taint) bool { return g.Key == t.Key && g.Effect == t.Effect })
}
