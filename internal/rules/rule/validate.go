package rule

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// validate lists the reasons to refuse a rule. Our definition of the resource rejects most of them already. A
// definition from elsewhere may not.
func validate(s *v1alpha1.NodeReadinessRuleSpec, gating []marks.Taint) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(invalidTaint(s.Taint, gating, spec.Child("taint")),
		invalidSelector(&s.NodeSelector, spec.Child("nodeSelector"))...)
	bootstrap := s.EnforcementMode == v1alpha1.ModeBootstrapOnly
	if !bootstrap && s.EnforcementMode != v1alpha1.ModeContinuous {
		errs = append(errs, field.NotSupported(spec.Child("enforcementMode"), s.EnforcementMode,
			[]v1alpha1.EnforcementMode{v1alpha1.ModeBootstrapOnly, v1alpha1.ModeContinuous}))
	}
	if len(s.Conditions) == 0 {
		errs = append(errs, field.Required(spec.Child("conditions"),
			"without conditions, a rule would hold no node or every node"))
	}
	for i, c := range s.Conditions {
		if at := spec.Child("conditions").Index(i); bootstrap && c.DefaultStatus != "" {
			errs = append(errs, field.Forbidden(at.Child("defaultStatus"), "must not be set with enforcementMode "+
				"'bootstrap-only': a node would pass for good before its agent has reported"))
		}
	}
	switch at := spec.Child("conditionPolicy"); {
	case s.ConditionPolicy != "" && s.ConditionPolicy != v1alpha1.PolicyAllOf && s.ConditionPolicy != v1alpha1.PolicyAnyOf:
		errs = append(errs, field.NotSupported(at, s.ConditionPolicy,
			[]v1alpha1.ConditionPolicy{v1alpha1.PolicyAllOf, v1alpha1.PolicyAnyOf}))
	case bootstrap && s.ConditionPolicy == v1alpha1.PolicyAnyOf:
		errs = append(errs, field.Forbidden(at, "must be allOf with enforcementMode 'bootstrap-only'"))
	}
	return errs
}

func invalidTaint(t corev1.Taint, gating []marks.Taint, at *field.Path) (errs field.ErrorList) {
	prefix, name, ok := marks.CutRulePrefix(t.Key)
	switch key := at.Child("key"); {
	case !ok:
		errs = append(errs, field.Invalid(key, t.Key,
			"must start with '"+marks.RuleTaintPrefix+"' or '"+marks.RuleAutoscalerPrefix+"'"))
	case strings.Contains(name, "/"):
		legal := prefix + strings.ReplaceAll(name, "/", "-")
		errs = append(errs, field.Invalid(key, t.Key, fmt.Sprintf("must have exactly one '/'; a legal key is '%s'", legal)))
	default:
		for _, message := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(key, t.Key, message))
		}
	}
	for _, message := range validation.IsValidLabelValue(t.Value) {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, message))
	}
	effects := []corev1.TaintEffect{
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, effects))
	}
	for _, g := range gating {
		if g.ID() == marks.TaintIDOf(t) {
			errs = append(errs, field.Invalid(at, g.ID().String(), "is a gating taint, which belongs to verification; choose "+
				"another key for the rule, or remove it from nodeManagement.taints and the profiles"))
		}
	}
	return errs
}

func invalidSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(at, "must not be empty: it would select every node")}
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return field.ErrorList{field.Invalid(at, metav1.FormatLabelSelector(s), err.Error())}
	}
	return nil
}
