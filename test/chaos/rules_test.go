package chaos

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const (
	// ruleName is the NodeReadinessRule that comes and goes; it asks for agentReady on the nodes with labelAgent.
	ruleName   = "agent"
	labelAgent = "chaos.example/agent"
	agentReady = corev1.NodeConditionType("chaos.example/AgentReady")
)

// ruleSeen is a rule that was seen, by its UID.
type ruleSeen struct{ going, gone bool }

func ruleTaints(n *corev1.Node) (ids []string) {
	for _, t := range n.Spec.Taints {
		if strings.HasPrefix(t.Key, rulePrefix) {
			ids = append(ids, marks.TaintIDOf(t).String())
		}
	}
	return ids
}

func (c *checker) seeRule(ch change) {
	before, _ := ch.before.(*v1alpha1.NodeReadinessRule)
	after, _ := ch.after.(*v1alpha1.NodeReadinessRule)
	switch {
	case after != nil:
		c.rules[string(after.UID)] = &ruleSeen{going: after.DeletionTimestamp != nil}
	case before != nil:
		c.rules[string(before.UID)] = &ruleSeen{going: true, gone: true}
	}
}

// ruled checks that a rule's taint goes on with its owner written beside it, and off only where the rule no longer asks for it.
func (c *checker) ruled(n *nodeSeen, before, after *corev1.Node, ch change) {
	if replacedTaints(before, after) {
		return
	}
	had, has := ruleTaints(before), ruleTaints(after)
	owners := marks.OwnedOn(after)
	for _, id := range has {
		if slices.Contains(had, id) {
			continue
		}
		c.counts["rule taints"]++
		owned := false
		for uid, of := range owners {
			owned = owned || of.String() == id && c.rules[uid] != nil
		}
		if !owned {
			c.fault(n, ch, "taint %s is put on, and %v owns it", id, owners)
		}
	}
	for _, id := range had {
		if slices.Contains(has, id) || conditionOf(before, agentReady) == corev1.ConditionTrue || before.Labels[labelAgent] != "true" {
			continue
		}
		for uid, of := range marks.OwnedOn(before) {
			if r := c.rules[uid]; of.String() == id && r != nil && !r.going {
				c.fault(n, ch, "taint %s of rule %s is taken off, and %s is %s", id, uid, agentReady, conditionOf(before, agentReady))
			}
		}
	}
}

// unruled says what is left of rules on a node that none holds.
func (c *checker) unruled(n *nodeSeen, say func(string, ...any)) {
	if left := ruleTaints(n.node); len(left) > 0 || n.node.Annotations[marks.AnnotationRules] != "" {
		say("%s carries %v, owned by %s", n.node.Name, left, n.node.Annotations[marks.AnnotationRules])
	}
}

func conditionOf(n *corev1.Node, of corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == of {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}
