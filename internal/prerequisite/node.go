package prerequisite

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/verdict"
)

// nodeReady is prerequisites.nodeReady.
type nodeReady struct{}

func (nodeReady) describe() (kind, name string) {
	return verdict.KindNodeReady, string(corev1.NodeReady)
}
func (nodeReady) topics(string) []topic { return nil }
func (nodeReady) unmet(n *corev1.Node) lack {
	return lack{why: verdict.Condition(n, verdict.NodeReady)}
}

// conditionRule is one entry of prerequisites.conditions.
type conditionRule config.ConditionPrerequisite

func (r conditionRule) describe() (kind, name string) {
	return verdict.KindConditions, verdict.ConditionName(config.ConditionPrerequisite(r))
}

func (conditionRule) topics(string) []topic { return nil }

func (r conditionRule) unmet(n *corev1.Node) lack {
	return lack{why: verdict.Condition(n, config.ConditionPrerequisite(r))}
}

// allocatableRule is one entry of prerequisites.allocatable.
type allocatableRule struct {
	name  corev1.ResourceName
	least resource.Quantity
}

func (r allocatableRule) describe() (kind, name string) {
	return verdict.KindAllocatable, string(r.name)
}
func (allocatableRule) topics(string) []topic { return nil }
func (r allocatableRule) unmet(n *corev1.Node) lack {
	return lack{why: verdict.Allocatable(n, r.name, r.least)}
}
