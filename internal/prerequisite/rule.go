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
	// unmet is what the node lacks; its why is empty when it lacks nothing.
	unmet(n *corev1.Node) lack
}

// lack is what a node lacks, as decide.Wait has it.
type lack struct {
	why string
	// remedy is what a person has to change; empty where time may do.
	remedy string
	// of are the objects that are missing; only of a rule about all objects of a kind.
	of []string
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
	rules = append(rules, w.nodeResourceRules(p.CSINodes, p.Allocatable)...)
	for _, s := range p.ResourceSlices {
		rules = append(rules, w.sliceRule(s))
	}
	for _, r := range p.Resources {
		rules = append(rules, w.resourceRule(r))
	}
	return rules, nil
}

// nodeResourceRules makes the rules of what the kubelet offers once a driver or device plugin has registered.
func (w *Watches) nodeResourceRules(drivers []config.CSINodePrerequisite, allocatable corev1.ResourceList) []rule {
	var rules []rule
	for _, c := range drivers {
		rules = append(rules, w.csiNodeRule(c))
	}
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		rules = append(rules, allocatableRule{name, allocatable[name]})
	}
	return rules
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
func (unknown) unmet(*corev1.Node) lack {
	return lack{why: "prerequisites that were not in the configuration at start"}
}

func topicsOf(rules []rule, n *corev1.Node) []topic {
	var topics []topic
	for _, r := range rules {
		topics = append(topics, r.topics(n.Name)...)
	}
	return topics
}

// evaluate returns what the node waits for, and the rules that say so. What two rules ask for is told once.
func evaluate(rules []rule, n *corev1.Node) (waits []decide.Unmet, pending []rule) {
	for _, r := range rules {
		lacks := r.unmet(n)
		if lacks.why == "" {
			continue
		}
		pending = append(pending, r)
		kind, name := r.describe()
		wait := decide.Unmet{Kind: kind, Name: name, Objects: lacks.of, Message: lacks.why, Remedy: lacks.remedy}
		same := slices.IndexFunc(waits, func(w decide.Unmet) bool { return w.Kind == kind && w.Name == name && w.Message == wait.Message })
		if same < 0 {
			waits = append(waits, wait)
		} else if waits[same].Remedy == "" {
			waits[same].Remedy = wait.Remedy
		}
	}
	return waits, pending
}
