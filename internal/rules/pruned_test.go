package rules

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// Fields that a definition without our fields drops are not written again for an hour. All other fields of the status
// are.
func TestPrunedFieldsAreNotWrittenForEver(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	want := v1alpha1.NodeReadinessRuleStatus{ObservedGeneration: 1, Summary: &v1alpha1.RuleSummary{Held: 1},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServing, Status: metav1.ConditionTrue}}}
	pruned := v1alpha1.NodeReadinessRuleStatus{ObservedGeneration: 1}
	older := v1alpha1.NodeReadinessRuleStatus{ObservedGeneration: 1, Conditions: want.Conditions}
	for name, c := range map[string]struct {
		until time.Time
		have  v1alpha1.NodeReadinessRuleStatus
		want  bool
	}{
		"nothing is known yet":              {time.Time{}, pruned, false},
		"known to be pruned":                {now.Add(time.Hour), pruned, true},
		"an hour later":                     {now, pruned, false},
		"another field differs":             {now.Add(time.Hour), v1alpha1.NodeReadinessRuleStatus{ObservedGeneration: 2}, false},
		"the definition has the fields now": {now.Add(time.Hour), older, false},
		"all is as it should be":            {time.Time{}, want, true},
	} {
		s := &ruleState{prunedUntil: c.until}
		if got := s.upToDate(c.have, want, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
