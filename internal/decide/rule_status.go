package decide

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

const (
	// maxRuleNodes bounds each list of nodes in a rule's status.
	maxRuleNodes = 100
	// maxRuleStatus bounds the status in bytes of JSON. The API server writes down who manages each key of each list, which
	// takes up to twice as much again, and the spec may take 12 KiB: the object stays under 64 KiB.
	maxRuleStatus = 14 << 10
)

// RuleTally is how all nodes stand with one rule.
type RuleTally struct {
	Held, Released int
	// Bootstrapping are the nodes that a bootstrap-only rule holds.
	Bootstrapping int
	// HeldNodes are the evaluations of the nodes that it holds, by node.
	HeldNodes map[string]Evaluation
	// DryRun is what it would change.
	DryRun DryRunTally
}

// Count adds a node.
func (t *RuleTally) Count(node string, e Evaluation) {
	switch e.State {
	case RuleDry:
		t.DryRun.Count(e)
	case RuleReleased:
		t.Released++
	case RuleHeld:
		t.Held++
		if !e.Rule.Continuous {
			t.Bootstrapping++
		}
		if t.HeldNodes == nil {
			t.HeldNodes = map[string]Evaluation{}
		}
		t.HeldNodes[node] = e
	}
}

// RuleFailure is why a rule could not be carried out on a node.
type RuleFailure struct {
	Message string
	At      time.Time
}

// RuleStatus is what a rule's status should say. What did not change since have keeps its time, so that a status is
// written only where it says something else.
func RuleStatus(r *Rule, have v1alpha1.NodeReadinessRuleStatus, t *RuleTally, failed map[string]RuleFailure, now time.Time) v1alpha1.NodeReadinessRuleStatus {
	s := v1alpha1.NodeReadinessRuleStatus{ObservedGeneration: r.Generation}
	if r.DryRun && r.Fault == "" {
		s.DryRunResults = t.DryRun.Results()
	}
	size := 0
	fits := func(o any) bool {
		b, err := json.Marshal(o)
		size += len(b) + 1
		return err == nil && size <= maxRuleStatus
	}
	for _, name := range sortedKeys(failed) {
		f := v1alpha1.NodeFailure{NodeName: name, Reason: v1alpha1.ReasonEvaluationError, Message: attempt.Text(failed[name].Message), LastEvaluationTime: stamp(failed[name].At)}
		if len(s.FailedNodes) == maxRuleNodes || !fits(f) {
			break
		}
		s.FailedNodes = append(s.FailedNodes, f)
	}
	before := map[string]v1alpha1.NodeEvaluation{}
	for _, e := range have.NodeEvaluations {
		before[e.NodeName] = e
	}
	for _, name := range sortedKeys(t.HeldNodes) {
		e := v1alpha1.NodeEvaluation{NodeName: name, ConditionResults: t.HeldNodes[name].Results, TaintStatus: v1alpha1.TaintAbsent, LastEvaluationTime: stamp(now)}
		if t.HeldNodes[name].Tainted {
			e.TaintStatus = v1alpha1.TaintPresent
		}
		if old, ok := before[name]; ok && old.TaintStatus == e.TaintStatus && slices.Equal(old.ConditionResults, e.ConditionResults) {
			e.LastEvaluationTime = old.LastEvaluationTime
		}
		if len(s.NodeEvaluations) == maxRuleNodes || !fits(e) || !fits(name) {
			break
		}
		s.NodeEvaluations = append(s.NodeEvaluations, e)
		s.AppliedNodes = append(s.AppliedNodes, name)
	}
	return s
}

// stamp cuts a time to what a metav1.Time holds, so that it is the same once read back.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
