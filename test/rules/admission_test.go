package rules

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func bootstrapOnly(r *v1alpha1.NodeReadinessRule) {
	r.Spec.EnforcementMode = v1alpha1.ModeBootstrapOnly
}
func dryRun(r *v1alpha1.NodeReadinessRule) { r.Spec.DryRun = true }
func withKey(key string) func(*v1alpha1.NodeReadinessRule) {
	return func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = key }
}

// What a rule may say is checked by the definition itself: no webhook is needed.
func TestTheDefinitionRefuses(t *testing.T) {
	w := beside(t)
	for want, change := range map[string]func(*v1alpha1.NodeReadinessRule){
		"must start with 'readiness.k8s.io/' or 'startup-taint.cluster-autoscaler.": withKey("example.com/x"),
		"taint key length must be at most 253 characters":                           withKey("readiness.k8s.io/" + strings.Repeat("x", 240)),
		"taint key must have exactly one '/' separator (prefix/name format)":        withKey("readiness.k8s.io/a/b"),
		"a legal key is 'readiness.k8s.io/falco.org-security-agent-ready'":          withKey("readiness.k8s.io/falco.org/security-agent-ready"),
		"a legal key is 'startup-taint.cluster-autoscaler.kubernetes.io/a-b'":       withKey(marks.RuleAutoscalerPrefix + "a/b"),
		"taint key name part must be 1-63 characters":                               withKey("readiness.k8s.io/" + strings.Repeat("x", 64)),
		"taint key name part must consist of alphanumeric characters":               withKey("readiness.k8s.io/-x"),
		"taint value length must be at most 63 characters":                          func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Value = strings.Repeat("x", 64) },
		"taint value must consist of alphanumeric characters":                       func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Value = "a b" },
		"taint effect must be one of 'NoSchedule', 'PreferNoSchedule', 'NoExecute'": func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Effect = "Never" },
		"nodeSelector must not be empty":                                            func(r *v1alpha1.NodeReadinessRule) { r.Spec.NodeSelector = metav1.LabelSelector{} },
		"spec.conditions in body should have at least 1 items":                      func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions = []v1alpha1.ConditionRequirement{} },
		"Duplicate value": func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.Conditions = append(r.Spec.Conditions, r.Spec.Conditions[0])
		},
		"Too long: may not be more than 316":                                  func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].Type = strings.Repeat("x", 317) },
		`spec.enforcementMode: Unsupported value: "never"`:                    func(r *v1alpha1.NodeReadinessRule) { r.Spec.EnforcementMode = "never" },
		`spec.conditionPolicy: Unsupported value: "noneOf"`:                   func(r *v1alpha1.NodeReadinessRule) { r.Spec.ConditionPolicy = "noneOf" },
		`spec.conditions[0].requiredStatus: Unsupported value: "Maybe"`:       func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].RequiredStatus = "Maybe" },
		"defaultStatus must not be set with enforcementMode 'bootstrap-only'": func(r *v1alpha1.NodeReadinessRule) { bootstrapOnly(r); r.Spec.Conditions[0].DefaultStatus = "True" },
		"conditionPolicy must be allOf with enforcementMode 'bootstrap-only'": func(r *v1alpha1.NodeReadinessRule) { bootstrapOnly(r); r.Spec.ConditionPolicy = v1alpha1.PolicyAnyOf },
		"matchExpressions must have an operator that is In, NotIn, Exists or DoesNotExist": func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		},
	} {
		err := api.Create(w.ctx, w.draft("refused", change))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

// Nothing of a rule's spec changes but dryRun; what is the same in other words may.
func TestARuleIsImmutableButForDryRun(t *testing.T) {
	w := beside(t)
	r := w.rule("immutable")
	for want, patch := range map[string]string{
		"conditions is immutable":      `{"spec":{"conditions":[{"type":"other","requiredStatus":"True"}]}}`,
		"enforcementMode is immutable": `{"spec":{"enforcementMode":"bootstrap-only"}}`,
		"conditionPolicy is immutable": `{"spec":{"conditionPolicy":"anyOf"}}`,
		"taint key is immutable":       `{"spec":{"taint":{"key":"readiness.k8s.io/other"}}}`,
		"taint effect is immutable":    `{"spec":{"taint":{"effect":"NoExecute"}}}`,
		"taint value is immutable":     `{"spec":{"taint":{"value":"other"}}}`,
		"nodeSelector is immutable":    `{"spec":{"nodeSelector":{"matchLabels":{"other":"x"}}}}`,
	} {
		err := api.Patch(w.ctx, r.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
	w.patch(r, `{"spec":{"dryRun":true}}`)
	w.patch(r, `{"spec":{"dryRun":false}}`)
	w.patch(r, `{"spec":{"conditionPolicy":"allOf"}}`)
	w.patch(r, `{"spec":{"conditionPolicy":null}}`)
	w.patch(r, `{"spec":{"taint":{"timeAdded":"2026-01-01T00:00:00Z"}}}`)
	plain := w.rule("immutable-plain", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Value = "" })
	w.patch(plain, `{"spec":{"taint":{"value":"added"}}}`) // as the node-readiness-controller's does
	if err := api.Patch(w.ctx, plain, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"taint":{"value":null}}}`))); err == nil {
		t.Error("a value was removed")
	}
}

// A rule is found by its short name, with the columns and the selectable fields of NRC's.
func TestAFieldOfTheSpecSelectsRules(t *testing.T) {
	w := beside(t)
	w.rule("one")
	w.rule("two", bootstrapOnly, dryRun)
	out, err := kubectl("get", "nrr", "one", "two", "--no-headers=false")
	w.must(err)
	lines := strings.Split(string(out), "\n")
	for i, want := range []string{"NAME MODE TAINT EFFECT DRYRUN AGE", "one continuous readiness.k8s.io/one NoSchedule", "two bootstrap-only readiness.k8s.io/two NoSchedule true"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for field, want := range map[string]string{"spec.enforcementMode": "bootstrap-only", "spec.taint.key": "readiness.k8s.io/two", "spec.dryRun": "true"} {
		var list v1alpha1.NodeReadinessRuleList
		w.must(api.List(w.ctx, &list, client.MatchingFields{field: want}))
		named := func(name string) bool {
			return slices.ContainsFunc(list.Items, func(r v1alpha1.NodeReadinessRule) bool { return r.Name == name })
		}
		if !named("two") || named("one") {
			t.Errorf("%s=%s selects %v", field, want, list.Items)
		}
	}
}
