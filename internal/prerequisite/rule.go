package prerequisite

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// rule is one prerequisite.
type rule interface {
	// describe returns the Kind and Name of its decide.Wait.
	describe() (kind, name string)
	// topics are those whose changes may change what unmet returns. What a node itself says needs none: its reconciler
	// watches it.
	topics(nodeName string) []topic
	// unmet says what is missing for the node; empty when nothing is.
	unmet(n *corev1.Node) string
}

// ruleSet is the rules of one prerequisites section.
type ruleSet struct {
	of    config.Prerequisites
	rules []rule
}

// compile makes the rules of one section, in the order of the configuration, and the watches that they need.
func (w *Watches) compile(p config.Prerequisites) ([]rule, error) {
	var rules []rule
	if p.NodeReady {
		rules = append(rules, nodeReady{})
	}
	for _, c := range p.Conditions {
		rules = append(rules, conditionRule(c))
	}
	for _, pod := range p.Pods {
		r, err := w.podRule(pod)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	rules = append(rules, w.daemonSetRules(p.DaemonSets)...)
	for _, c := range p.CSINodes {
		rules = append(rules, w.csiNodeRule(c))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Allocatable)) {
		rules = append(rules, allocatableRule{name, p.Allocatable[name]})
	}
	for _, s := range p.ResourceSlices {
		rules = append(rules, w.sliceRule(s))
	}
	for _, r := range p.Resources {
		rules = append(rules, w.resourceRule(r))
	}
	return rules, nil
}

// rulesOf finds the rules of a section.
func (w *Watches) rulesOf(p config.Prerequisites) []rule {
	for _, s := range w.sets {
		if reflect.DeepEqual(s.of, p) { // of the same slices and maps, as nearly always: compared by their addresses
			return s.rules
		}
	}
	return []rule{unknown{}}
}

// unknown is the rule of a section that was not in the configuration: it never holds.
type unknown struct{}

func (unknown) describe() (kind, name string) { return "prerequisites", "unknown" }
func (unknown) topics(string) []topic         { return nil }
func (unknown) unmet(*corev1.Node) string {
	return "prerequisites that were not in the configuration at start"
}

func topicsOf(rules []rule, n *corev1.Node) []topic {
	var topics []topic
	for _, r := range rules {
		topics = append(topics, r.topics(n.Name)...)
	}
	return topics
}

// evaluate returns what the node waits for, and the rules that say so.
func evaluate(rules []rule, n *corev1.Node) (waits []decide.Wait, pending []rule) {
	for _, r := range rules {
		if why := r.unmet(n); why != "" {
			kind, name := r.describe()
			waits = append(waits, decide.Wait{Kind: kind, Name: name, Why: why})
			pending = append(pending, r)
		}
	}
	return waits, pending
}
