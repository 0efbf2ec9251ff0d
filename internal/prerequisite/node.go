package prerequisite

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// nodeReady is prerequisites.nodeReady.
type nodeReady struct{}

func (nodeReady) describe() (kind, name string) { return "nodeReady", string(corev1.NodeReady) }
func (nodeReady) topics(string) []topic         { return nil }
func (nodeReady) unmet(n *corev1.Node) string {
	return conditionRule{Type: corev1.NodeReady, Status: corev1.ConditionTrue}.unmet(n)
}

// conditionRule is one entry of prerequisites.conditions.
type conditionRule config.ConditionPrerequisite

func (r conditionRule) describe() (kind, name string) {
	return "conditions", fmt.Sprintf("%s=%s", r.Type, r.Status)
}

func (conditionRule) topics(string) []topic { return nil }

func (r conditionRule) unmet(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == r.Type && c.Status == r.Status {
			return ""
		}
	}
	return fmt.Sprintf("the node's condition %s to be %s", r.Type, r.Status)
}

// allocatableRule is one entry of prerequisites.allocatable.
type allocatableRule struct {
	name  corev1.ResourceName
	least resource.Quantity
}

func (r allocatableRule) describe() (kind, name string) { return "allocatable", string(r.name) }
func (allocatableRule) topics(string) []topic           { return nil }

func (r allocatableRule) unmet(n *corev1.Node) string {
	have, ok := n.Status.Allocatable[r.name]
	switch {
	case !ok:
		return fmt.Sprintf("%s %s allocatable (the node offers none)", r.least.String(), r.name)
	case have.Cmp(r.least) < 0:
		return fmt.Sprintf("%s %s allocatable (the node offers %s)", r.least.String(), r.name, have.String())
	}
	return ""
}
