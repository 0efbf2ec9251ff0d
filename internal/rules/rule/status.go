package rule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

const (
	// maxNodes bounds each list of nodes in a rule's status.
	maxNodes = 100
	// maxStatus bounds the status in bytes of JSON. The API server records the manager of each key of each list, which
	// takes up to twice as much again. The spec may take 12 KiB. So the object stays under 64 KiB.
	maxStatus = 14 << 10
)

// Tally is the states of all nodes under one rule.
type Tally struct {
	Released int
	// Held are the evaluations of the nodes that it holds, by node.
	Held map[string]Evaluation
	// Blocked counts held nodes by the conditions that are not as required.
	Blocked map[string]int
	// ReleasedBefore counts the nodes whose annotation says that the rule has released them, ClosedAgain those of them
	// that carry its taint. LeftOpen are the names of those that rules.maxClosedPercent leaves open. All are empty
	// without that limit.
	ReleasedBefore, ClosedAgain int
	LeftOpen                    map[string]bool
	// DryRun is what it would change.
	DryRun DryRunTally
}

// Clone copies the tally, so that it can be read while the original changes.
func (t *Tally) Clone() Tally {
	c := *t
	c.Held, c.Blocked, c.LeftOpen = maps.Clone(t.Held), maps.Clone(t.Blocked), maps.Clone(t.LeftOpen)
	return c
}

// Count adds a node.
func (t *Tally) Count(node string, e Evaluation) {
	t.count(e, 1)
	if e.State == Held {
		if t.Held == nil {
			t.Held = map[string]Evaluation{}
		}
		t.Held[node] = e
	}
	if e.LeftOpen {
		if t.LeftOpen == nil {
			t.LeftOpen = map[string]bool{}
		}
		t.LeftOpen[node] = true
	}
}

// Drop removes a node that was counted with the evaluation.
func (t *Tally) Drop(node string, e Evaluation) {
	t.count(e, -1)
	delete(t.Held, node)
	delete(t.LeftOpen, node)
}

func (t *Tally) count(e Evaluation, by int) {
	if e.ReleasedBefore {
		t.ReleasedBefore += by
		if e.Tainted {
			t.ClosedAgain += by
		}
	}
	switch e.State {
	case Dry:
		t.DryRun.count(e, int32(by))
	case Released:
		t.Released += by
	case Held:
		for _, r := range e.Unmet() {
			if t.Blocked == nil {
				t.Blocked = map[string]int{}
			}
			if t.Blocked[r.Type] += by; t.Blocked[r.Type] == 0 {
				delete(t.Blocked, r.Type)
			}
		}
	}
}

// DryRunTally is what a rule in dryRun would change on the nodes that it selects.
type DryRunTally struct{ Affected, Add, Remove, Risky int32 }

// count adds a node, or removes it if by is -1.
func (t *DryRunTally) count(e Evaluation, by int32) {
	t.Affected += by
	switch {
	case e.Met && e.Tainted:
		t.Remove += by
	case !e.Met && !e.Tainted && !e.Completed:
		t.Add += by
	}
	if e.Missing {
		t.Risky += by
	}
}

// Results renders the tally for the rule's status, with the texts of the node-readiness-controller.
func (t *DryRunTally) Results() *v1alpha1.DryRunResults {
	var parts []string
	if t.Add > 0 {
		parts = append(parts, fmt.Sprintf("would add %d taints", t.Add))
	}
	if t.Remove > 0 {
		parts = append(parts, fmt.Sprintf("would remove %d taints", t.Remove))
	}
	if t.Risky > 0 {
		parts = append(parts, fmt.Sprintf("%d nodes have missing conditions", t.Risky))
	}
	return &v1alpha1.DryRunResults{AffectedNodes: &t.Affected, TaintsToAdd: &t.Add, TaintsToRemove: &t.Remove,
		RiskyOperations: &t.Risky, Summary: cmp.Or(strings.Join(parts, ", "), "No changes needed")}
}

// CountsAs reports whether two evaluations of a node have the same effect on the tally.
func (e Evaluation) CountsAs(o Evaluation) bool {
	return e.Rule == o.Rule && e.State == o.State && e.Met == o.Met && e.Completed == o.Completed &&
		e.Missing == o.Missing && e.Tainted == o.Tainted && e.ReleasedBefore == o.ReleasedBefore &&
		e.LeftOpen == o.LeftOpen && slices.Equal(e.Results, o.Results) && slices.Equal(e.Defaulted, o.Defaulted)
}

// Failure is why a rule could not be applied to a node.
type Failure struct {
	Message string
	At      time.Time
}

// Status is what a rule's status should be. Unchanged parts keep the time in have, so that the status is written only
// if something changed.
func Status(r *Rule, have v1alpha1.NodeReadinessRuleStatus, t *Tally, failed map[string]Failure,
	now time.Time) v1alpha1.NodeReadinessRuleStatus {
	s := v1alpha1.NodeReadinessRuleStatus{ObservedGeneration: r.Generation}
	if r.DryRun && r.Invalid == "" {
		s.DryRunResults = t.DryRun.Results()
	}
	if r.Active() {
		held, released := int32(len(t.Held)), int32(t.Released)
		s.Summary = &v1alpha1.RuleSummary{Held: held, Released: released, Failed: int32(len(failed))}
	}
	size := 0
	fits := func(o any) bool {
		b, err := json.Marshal(o)
		size += len(b) + 1
		return err == nil && size <= maxStatus
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		f := v1alpha1.NodeFailure{NodeName: name, Reason: v1alpha1.ReasonEvaluationError,
			Message: attempt.Text(failed[name].Message), LastEvaluationTime: stamp(failed[name].At)}
		if len(s.FailedNodes) == maxNodes || !fits(f) {
			break
		}
		s.FailedNodes = append(s.FailedNodes, f)
	}
	before := map[string]v1alpha1.NodeEvaluation{}
	for _, e := range have.NodeEvaluations {
		before[e.NodeName] = e
	}
	for _, name := range slices.Sorted(maps.Keys(t.Held)) {
		held := t.Held[name]
		e := v1alpha1.NodeEvaluation{NodeName: name, ConditionResults: held.shown(),
			TaintStatus: v1alpha1.TaintAbsent, LastEvaluationTime: stamp(now)}
		if held.Tainted {
			e.TaintStatus = v1alpha1.TaintPresent
		}
		old, known := before[name]
		if known && old.TaintStatus == e.TaintStatus && slices.Equal(old.ConditionResults, e.ConditionResults) {
			e.LastEvaluationTime = old.LastEvaluationTime
		}
		if len(s.NodeEvaluations) == maxNodes || !fits(e) || !fits(name) {
			break
		}
		s.NodeEvaluations = append(s.NodeEvaluations, e)
		s.AppliedNodes = append(s.AppliedNodes, name)
	}
	return s
}

// stamp truncates a time to the precision of a metav1.Time, so that it is the same when it is read back.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Conditions are the conditions of a rule that is served here. The older rule that decides about its taint is by, nil
// for none. The value of rules.maxClosedPercent is percent, 0 for no limit. The condition tolerated is whether the
// controller tolerates the taint, nil for none. Unchanged conditions keep the time in have.
func Conditions(r *Rule, have []metav1.Condition, by *Rule, t *Tally, percent int32, tolerated *metav1.Condition,
	now time.Time) []metav1.Condition {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	conditions := []metav1.Condition{acceptedCondition(r, by)}
	if percent > 0 && r.Continuous && r.Active() {
		limited := condition(v1alpha1.ConditionClosingLimited, no, v1alpha1.ReasonBelowLimit, "no node is left open")
		if len(t.LeftOpen) > 0 {
			limited.Status, limited.Reason = yes, v1alpha1.ReasonLimitReached
			limited.Message = limitMessage(t, percent)
		}
		conditions = append(conditions, limited)
	}
	serving := condition(v1alpha1.ConditionServing, yes, v1alpha1.ReasonServing, "kube-node-ready applies the rule")
	switch {
	case r.Invalid != "":
		serving.Status, serving.Reason = no, v1alpha1.ReasonRefused
		serving.Message = "the rule is refused: it adds no taint, and the taints that it owned are removed"
	case r.DryRun:
		serving.Reason = v1alpha1.ReasonDryRun
		serving.Message = "the rule changes no node; dryRunResults shows the changes that it would make"
	}
	conditions = append(conditions, serving)
	if tolerated != nil {
		conditions = append(conditions, *tolerated)
	}
	return completed(r, have, conditions, now)
}

func acceptedCondition(r, by *Rule) metav1.Condition {
	c := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the rule is valid")
	switch {
	case r.Invalid != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonRefused, r.Invalid
	case by != nil:
		c.Reason = v1alpha1.ReasonOverruled
		c.Message = fmt.Sprintf("the older rule %s has the same taint and decides about the nodes that both select", by.Name)
	}
	return c
}

func condition(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message}
}

// NotServing are the conditions of a rule that was served here and no longer is; nil if they do not say that it is
// served. Otherwise a rule that another controller serves is left alone.
func NotServing(r *Rule, have []metav1.Condition, state ServingState, why string, now time.Time) []metav1.Condition {
	if !meta.IsStatusConditionTrue(have, v1alpha1.ConditionServing) {
		return nil
	}
	reason := v1alpha1.ReasonForbidden
	if state == StandingBack {
		reason = v1alpha1.ReasonStandingBack
	}
	next := slices.Clone(have)
	for i := range next {
		if next[i].Type == v1alpha1.ConditionServing {
			next[i].Status, next[i].Reason, next[i].Message = metav1.ConditionFalse, reason, why
		}
	}
	return completed(r, have, next, now)
}

// completed sets the generation and the times of conditions, which are sorted by type.
func completed(r *Rule, have, conditions []metav1.Condition, now time.Time) []metav1.Condition {
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.Message, c.LastTransitionTime = r.Generation, attempt.Text(c.Message), stamp(now)
		if old := meta.FindStatusCondition(have, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return conditions
}

// ClosingLimit is how many of the nodes that a rule has released before may be tainted again at a time: percent of
// them, rounded down. It is at least one, or the rule would never taint a node of a small cluster again.
func ClosingLimit(releasedBefore int, percent int32) int {
	return max(1, releasedBefore*int(percent)/100)
}

// limitMessage says how the limit affects a rule's nodes.
func limitMessage(t *Tally, percent int32) string {
	return fmt.Sprintf("rules.maxClosedPercent is %d: of %d nodes that the rule has released before, "+
		"%d are closed again, and %d are left open although the conditions fail",
		percent, t.ReleasedBefore, t.ClosedAgain, len(t.LeftOpen))
}
