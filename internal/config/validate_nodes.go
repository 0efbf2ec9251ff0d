package config

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func (n *NodeManagement) validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(n.Taints) == 0 {
		faults = append(faults, field.Required(p.Child("taints"), "name at least one taint, or remove the key for the default one"))
	}
	faults = append(faults, validateTaints(p.Child("taints"), n.Taints)...)
	label := p.Child("verifiedLabel")
	faults = append(faults, named(label.Child("key"), n.VerifiedLabel.Key, validation.IsQualifiedName)...)
	faults = append(faults, each(label.Child("value"), n.VerifiedLabel.Value, validation.IsValidLabelValue(n.VerifiedLabel.Value))...)
	faults = append(faults, n.validateCompleted(p.Child("completedAnnotation"))...)
	faults = append(faults, inRange(p.Child("minimumHoldSeconds"), n.MinimumHoldSeconds, 0, maxSeconds)...)
	faults = append(faults, metavalidation.ValidateLabelSelector(n.NodeSelector,
		metavalidation.LabelSelectorValidationOptions{}, p.Child("nodeSelector"))...)
	faults = append(faults, n.Prerequisites.validate(p.Child("prerequisites"))...)
	faults = append(faults, validatePresets(p.Child("presets"), n.Presets)...)
	if n.Reverify.Interval.Duration < 0 {
		faults = append(faults, field.Invalid(p.Child("reverify", "interval"), n.Reverify.Interval.Duration.String(),
			"must be at least 0s, where 0s is never"))
	}
	return append(faults, n.Remediation.validate(p.Child("remediation"))...)
}

// validateCompleted faults what is no key of an annotation (as the API server has it, in any case), and the keys that something
// else is read from.
func (n *NodeManagement) validateCompleted(p *field.Path) field.ErrorList {
	key := n.CompletedAnnotation
	if key == "" {
		return nil
	}
	faults := each(p, key, validation.IsQualifiedName(strings.ToLower(key)))
	for _, prefix := range append([]string{ownPrefix, marks.RuleTaintPrefix, "cluster.x-k8s.io/"}, foreign...) {
		if strings.HasPrefix(key, prefix) {
			faults = append(faults, field.Invalid(p, key, "annotations of "+strings.TrimSuffix(prefix, "/")+" mean something else; choose a key of your own, as startup.k8s.io/completedAt"))
		}
	}
	return faults
}

// validateHold faults a deadline that is past before a node may be released.
func (c *Config) validateHold() field.ErrorList {
	hold := c.NodeManagement.MinimumHoldSeconds
	late := func(p *field.Path, deadline int32) field.ErrorList {
		if deadline <= 0 || hold < deadline {
			return nil
		}
		return field.ErrorList{field.Invalid(p, deadline, fmt.Sprintf("must be more than nodeManagement.minimumHoldSeconds, which is %d: every node would be past it", hold))}
	}
	faults := late(field.NewPath("reconciliation", "verificationDeadlineSeconds"), c.Reconciliation.VerificationDeadlineSeconds)
	for i := range c.Profiles {
		if d := c.Profiles[i].VerificationDeadlineSeconds; d != nil {
			faults = append(faults, late(field.NewPath("profiles").Index(i).Child("verificationDeadlineSeconds"), *d)...)
		}
	}
	return faults
}

// selector faults a label selector that is empty, with the reason given, or not valid.
func selector(p *field.Path, s *metav1.LabelSelector, empty string) field.ErrorList {
	if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(p, empty)}
	}
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
			faults = append(faults, field.Invalid(p.Child("operator"), t.Operator, "must be Exists where there is no key"))
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			if t.Value != "" {
				faults = append(faults, field.Invalid(p.Child("value"), t.Value, "must be empty where the operator is Exists"))
			}
		case "", corev1.TolerationOpEqual:
			faults = append(faults, each(p.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		default:
			faults = append(faults, field.NotSupported(p.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			faults = append(faults, oneOf(p.Child("effect"), t.Effect,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			faults = append(faults, field.Invalid(p.Child("tolerationSeconds"), *t.TolerationSeconds,
				fmt.Sprintf("needs effect %s", corev1.TaintEffectNoExecute)))
		}
	}
	return faults
}
