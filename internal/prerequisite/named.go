package prerequisite

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// namedSet is a DaemonSet by its name.
type namedSet struct {
	*daemonSetWatch
	name config.DaemonSetName
}

// find returns the DaemonSet, nil if it does not exist, and the node's own pods; or why that is not known.
func (s namedSet) find(n *corev1.Node) (ds *appsv1.DaemonSet, own []any, why string) {
	sets, own, why := s.read(n)
	if why != "" {
		return nil, nil, why
	}
	o, ok, err := sets.GetByKey(s.name.String())
	switch {
	case err != nil:
		return nil, nil, err.Error()
	case !ok, o.(*appsv1.DaemonSet).DeletionTimestamp != nil:
		return nil, nil, ""
	}
	return o.(*appsv1.DaemonSet), own, ""
}

// namedRule is one entry of prerequisites.daemonSets.
type namedRule struct {
	entry config.DaemonSetPrerequisite
	sets  []namedSet
}

func (r namedRule) describe() (kind, name string) { return "daemonSets", r.entry.String() }

func (r namedRule) topics(nodeName string) []topic {
	var topics []topic
	for _, s := range r.sets {
		topics = append(topics, s.topics(nodeName, byName, s.name.String())...)
	}
	return topics
}

func (r namedRule) unmet(n *corev1.Node) lack {
	missing := r.missing(n)
	if missing == "" {
		return lack{}
	}
	lacks := lack{why: fmt.Sprintf("a Ready pod of DaemonSet %s (%s)", r.entry.String(), missing)}
	if missing == noSuchDaemonSet { // one under another name does not come by waiting
		lacks.remedy = r.entry.Remedy()
	}
	return lacks
}

const noSuchDaemonSet = "there is no such DaemonSet"

func (r namedRule) missing(n *corev1.Node) string {
	result := noSuchDaemonSet
	for _, s := range r.sets {
		ds, own, why := s.find(n)
		switch {
		case why != "":
			return why
		case ds == nil:
			continue
		}
		if why = late(ds, n, own); why != "" {
			return why
		}
		result = ""
	}
	return result
}

// providedRule is one thing that a DaemonSet provides, for the nodes that it comes to.
type providedRule struct {
	rule
	by     namedRule
	gating []marks.Taint
}

func (w *Watches) providedRules(by namedRule) []rule {
	var rules []rule
	for _, r := range w.nodeResourceRules(by.entry.Provides.CSINodes, by.entry.Provides.Allocatable) {
		rules = append(rules, providedRule{r, by, w.gating})
	}
	return rules
}

func (r providedRule) topics(nodeName string) []topic {
	return append(r.by.topics(nodeName), r.rule.topics(nodeName)...)
}

func (r providedRule) unmet(n *corev1.Node) lack {
	ds := r.comes(n)
	if ds == nil {
		return lack{} // that it does not exist, or is not read yet, is told by its own rule
	}
	lacks := r.rule.unmet(n)
	if lacks.why != "" {
		lacks.remedy = r.remedy(n, ds)
	}
	return lacks
}

// remedy: before it is released no pod comes that does not tolerate what gates the node.
func (r providedRule) remedy(n *corev1.Node, ds *appsv1.DaemonSet) string {
	for _, t := range n.Spec.Taints {
		alone := *n
		if alone.Spec.Taints = []corev1.Taint{t}; r.gates(t) && !runsOn(ds, &alone) {
			return fmt.Sprintf("DaemonSet %s/%s provides it and does not tolerate %s:%s, so it never comes to the node before it is released; add the toleration", ds.Namespace, ds.Name, t.Key, t.Effect)
		}
	}
	return ""
}

// comes returns the DaemonSet that has, or is to have, a pod on the node; nil for none. A taint that is there only until the
// node is released or Ready keeps none off for good.
func (r providedRule) comes(n *corev1.Node) *appsv1.DaemonSet {
	later := *n
	later.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return r.gates(t) || t.Key == corev1.TaintNodeNotReady
	})
	for _, s := range r.by.sets {
		if ds, _, _ := s.find(n); ds != nil && runsOn(ds, &later) {
			return ds
		}
	}
	return nil
}

func (r providedRule) gates(t corev1.Taint) bool {
	return slices.ContainsFunc(r.gating, func(g marks.Taint) bool { return g.Key == t.Key && g.Effect == t.Effect })
}
