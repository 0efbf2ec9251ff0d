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

// Validate reports marks that belong to others, and selectors and presets that there are not.
func (n *NodeManagement) Validate(p *field.Path) field.ErrorList {
	faults := validateTaints(p.Child("taints"), n.Taints)
	faults = append(faults, n.validateCompleted(p.Child("completedAnnotation"))...)
	faults = append(faults, selector(p.Child("nodeSelector"), n.NodeSelector)...)
	return append(faults, validatePresets(p.Child("presets"), n.Presets)...)
}

// validateCompleted faults the keys of annotations that something else is read from.
func (n *NodeManagement) validateCompleted(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	key := n.CompletedAnnotation
	for _, prefix := range append([]string{ownPrefix, marks.RuleTaintPrefix, "cluster.x-k8s.io/"}, foreign...) {
		if strings.HasPrefix(key, prefix) {
			faults = append(faults, field.Invalid(p, key, "annotations of "+strings.TrimSuffix(prefix, "/")+
				" mean something else; choose a key of your own, as startup.k8s.io/completedAt"))
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
		const why = "must be more than nodeManagement.minimumHoldSeconds, which is %d: every node would be past it"
		return field.ErrorList{field.Invalid(p, deadline, fmt.Sprintf(why, hold))}
	}
	const key = "verificationDeadlineSeconds"
	faults := late(field.NewPath("reconciliation", key), c.Reconciliation.VerificationDeadlineSeconds)
	for i := range c.Profiles {
		if d := c.Profiles[i].VerificationDeadlineSeconds; d != nil {
			faults = append(faults, late(field.NewPath("profiles").Index(i).Child(key), *d)...)
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
