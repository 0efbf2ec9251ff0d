package config

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Validate reports marks that belong to others, invalid selectors and unknown presets.
func (n *NodeManagement) Validate(p *field.Path) field.ErrorList {
	return slices.Concat(validateTaints(p.Child("taints"), n.Taints), n.validateCompleted(p.Child("completedAnnotation")),
		selector(p.Child("nodeSelector"), n.NodeSelector), validatePresets(p.Child("presets"), n.Presets))
}

// Validate reports conditions that cannot make a node suspect.
func (r *Reverify) Validate(p *field.Path) field.ErrorList {
	return validateSuspects(p.Child("onConditions"), r.OnConditions)
}

// Validate reports conditions that cannot make a node suspect.
func (r *ProfileReverify) Validate(p *field.Path) field.ErrorList {
	return validateSuspects(p.Child("onConditions"), r.OnConditions)
}

// maxSuspects bounds the conditions that a record keeps account of.
const maxSuspects = 32

func validateSuspects(path *field.Path, conditions []SuspectCondition) field.ErrorList {
	var faults field.ErrorList
	if len(conditions) > maxSuspects {
		faults = append(faults, field.TooMany(path, len(conditions), maxSuspects))
	}
	types := map[corev1.NodeConditionType]bool{}
	for i, c := range conditions {
		p := path.Index(i).Child("type")
		switch {
		case c.Type == marks.ConditionType:
			faults = append(faults, field.Invalid(p, c.Type,
				"is the controller's own condition; name a condition that a detector of node problems sets"))
		case again(types, c.Type):
			faults = append(faults, field.Duplicate(p, c.Type))
		}
	}
	return faults
}

// validateSuspects reports the condition that action condition sets: it would accuse the node that it is about.
func (c *Config) validateSuspects() field.ErrorList {
	var faults field.ErrorList
	report := func(path *field.Path, conditions []SuspectCondition) {
		for i, s := range conditions {
			if s.Type == c.NodeManagement.Remediation.Condition.Type {
				faults = append(faults, field.Invalid(path.Index(i).Child("type"), s.Type,
					"is remediation.condition.type; name a condition that a detector of node problems sets"))
			}
		}
	}
	report(field.NewPath("nodeManagement", "reverify", "onConditions"), c.NodeManagement.Reverify.OnConditions)
	for i, p := range c.Profiles {
		if p.Reverify != nil {
			report(field.NewPath("profiles").Index(i).Child("reverify", "onConditions"), p.Reverify.OnConditions)
		}
	}
	return faults
}

// ownedByOthers are conditions that the kubelet and the node controller write
// (https://kubernetes.io/docs/reference/node/node-status/#condition).
var ownedByOthers = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
	corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}

// validate reports a type that somebody else writes.
func (c RemediationCondition) validate(p *field.Path) field.ErrorList {
	if c.Type != marks.ConditionType && !slices.Contains(ownedByOthers, c.Type) {
		return nil
	}
	return field.ErrorList{field.Invalid(p, c.Type,
		"belongs to Kubernetes or to kube-node-ready; choose a type that only your repairer uses")}
}

// validateCompleted faults the keys of annotations that something else is read from.
func (n *NodeManagement) validateCompleted(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	key := n.CompletedAnnotation
	for _, prefix := range append([]string{ownPrefix, marks.RuleTaintPrefix, "cluster.x-k8s.io/"}, foreign...) {
		if strings.HasPrefix(key, prefix) {
			faults = append(faults, field.Invalid(p, key, "annotations of "+strings.TrimSuffix(prefix, "/")+
				" have another meaning; choose a key of your own, for example startup.k8s.io/completedAt"))
		}
	}
	return faults
}

// validateHold faults a deadline that is past before a node may be released, and what cannot follow a deadline.
func (c *Config) validateHold() field.ErrorList {
	hold := c.NodeManagement.MinimumHoldSeconds
	late := func(p *field.Path, deadline int32) field.ErrorList {
		if deadline <= 0 || hold < deadline {
			return nil
		}
		const why = "must be more than nodeManagement.minimumHoldSeconds (%d), or every node would be past its deadline"
		return field.ErrorList{field.Invalid(p, deadline, fmt.Sprintf(why, hold))}
	}
	const key = "verificationDeadlineSeconds"
	var faults field.ErrorList
	if c.Reconciliation.OnDeadline == OnDeadlineRemediate && !c.NodeManagement.DeleteFailedNodes {
		faults = append(faults, field.Invalid(field.NewPath("reconciliation", "onDeadline"), c.Reconciliation.OnDeadline,
			"needs nodeManagement.deleteFailedNodes: true; set that, or remove this key"))
	}
	faults = append(faults, late(field.NewPath("reconciliation", key), c.Reconciliation.VerificationDeadlineSeconds)...)
	for i := range c.Profiles {
		if d := c.Profiles[i].VerificationDeadlineSeconds; d != nil {
			faults = append(faults, late(field.NewPath("profiles").Index(i).Child(key), *d)...)
		}
	}
	return faults
}

// validateLeaving faults the keys of gating taints, and keys that are there twice.
func (c *Config) validateLeaving() field.ErrorList {
	var faults field.ErrorList
	gating, seen := c.GatingTaints(), map[string]bool{}
	for i, key := range c.NodeManagement.LeavingTaints {
		p := field.NewPath("nodeManagement", "leavingTaints").Index(i)
		switch {
		case again(seen, key):
			faults = append(faults, field.Duplicate(p, key))
		case slices.ContainsFunc(gating, func(t marks.Taint) bool { return t.Key == key }):
			faults = append(faults, field.Invalid(p, key, "is the key of a gating taint, so no node would ever be verified; "+
				"name the taint that another program adds before it removes a node"))
		}
	}
	return faults
}

// selector faults a label selector that is not valid.
func selector(p *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, p)
}

// validateTolerations follows the API server (ValidateTolerations in k8s.io/kubernetes
// pkg/apis/core/validation), which would otherwise refuse every worker pod.
func validateTolerations(path *field.Path, tolerations []corev1.Toleration) field.ErrorList {
	var faults field.ErrorList
	for i, t := range tolerations {
		p := path.Index(i)
		if t.Key != "" {
			faults = append(faults, named(p.Child("key"), t.Key, validation.IsQualifiedName)...)
		} else if t.Operator != corev1.TolerationOpExists {
			faults = append(faults, field.Invalid(p.Child("operator"), t.Operator, "must be Exists if key is empty"))
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			if t.Value != "" {
				faults = append(faults, field.Invalid(p.Child("value"), t.Value, "must be empty if operator is Exists"))
			}
		case "", corev1.TolerationOpEqual:
			faults = append(faults, each(p.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		default:
			faults = append(faults, field.NotSupported(p.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		effects := []corev1.TaintEffect{
			"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
		}
		if !slices.Contains(effects, t.Effect) {
			faults = append(faults, field.NotSupported(p.Child("effect"), t.Effect, effects[1:]))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			faults = append(faults, field.Invalid(p.Child("tolerationSeconds"), *t.TolerationSeconds,
				fmt.Sprintf("needs effect %s", corev1.TaintEffectNoExecute)))
		}
	}
	return faults
}
