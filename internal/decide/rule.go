package decide

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Rule is a NodeReadinessRule, compiled for decisions.
type Rule struct {
	Name, UID  string
	Generation int64
	Created    time.Time
	// Deleting: it is on its way out. Finalized: our finalizer is on it; a live rule without owns no taint yet, and must put
	// none on a node, or its deletion would leave that behind.
	Deleting, Finalized bool
	DryRun              bool
	// Continuous is the enforcement mode; the other is bootstrap-only.
	Continuous bool
	// AnyOf is the condition policy; the other is allOf.
	AnyOf      bool
	Conditions []v1alpha1.ConditionRequirement
	Taint      marks.Taint
	// Fault says, with the field, why the rule is not obeyed; empty for one that is.
	Fault string

	selector labels.Selector
	gates    bool // its taint is one that verification owns
}

// CompileRule prepares a rule. gating are the taints that verification owns.
func CompileRule(r *v1alpha1.NodeReadinessRule, gating []marks.Taint) Rule {
	c := Rule{
		Name: r.Name, UID: string(r.UID), Generation: r.Generation, Created: r.CreationTimestamp.Time,
		Deleting: r.DeletionTimestamp != nil, Finalized: slices.Contains(r.Finalizers, v1alpha1.Finalizer), DryRun: r.Spec.DryRun,
		Continuous: r.Spec.EnforcementMode == v1alpha1.ModeContinuous, AnyOf: r.Spec.ConditionPolicy == v1alpha1.PolicyAnyOf,
		Conditions: r.Spec.Conditions, selector: labels.Nothing(),
		Taint: marks.Taint{Key: r.Spec.Taint.Key, Value: r.Spec.Taint.Value, Effect: r.Spec.Taint.Effect},
	}
	c.gates = slices.ContainsFunc(gating, func(t marks.Taint) bool { return t.ID() == c.Taint.ID() })
	if selector, err := metav1.LabelSelectorAsSelector(&r.Spec.NodeSelector); err == nil {
		c.selector = selector
	}
	if faults := faultsOf(&r.Spec, gating); len(faults) > 0 {
		c.Fault = faults.ToAggregate().Error()
	}
	return c
}

// SortRules sorts rules by who decides about a taint that several name: the older, then the one whose name comes first.
func SortRules(rules []Rule) {
	slices.SortFunc(rules, func(a, b Rule) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.UID, b.UID)
	})
}

// Selects reports whether the rule's selector matches the labels. A faulty rule selects nothing.
func (r *Rule) Selects(nodeLabels map[string]string) bool {
	return r.Fault == "" && r.selector.Matches(labels.Set(nodeLabels))
}

// Acts reports whether the rule holds and releases nodes.
func (r *Rule) Acts() bool { return r.Fault == "" && !r.Deleting && r.Finalized && !r.DryRun }

// idle reports whether what the rule owns stays as it is: a dry-run rule changes no node, also when it is deleted, and one
// whose finalizer somebody took away waits for it to be back.
func (r *Rule) idle() bool { return r.DryRun || !r.Deleting && !r.Finalized }

// names reports whether the rule looks at the condition.
func (r *Rule) names(condition corev1.NodeConditionType) bool {
	return slices.ContainsFunc(r.Conditions, func(c v1alpha1.ConditionRequirement) bool { return c.Type == string(condition) })
}

// NameCondition reports whether any of the rules looks at the condition.
func NameCondition(rules []Rule, condition corev1.NodeConditionType) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.names(condition) })
}

// RuleNode is what is observed of a node for its rules.
type RuleNode struct {
	Node *corev1.Node
	// Renewed is when a condition's heartbeat was last seen to be renewed, by the condition's type, on the clock that saw
	// it. One whose heartbeat never was is not in it.
	Renewed map[string]time.Time
	// Adopting is since when a rule, by its UID, has been seen to hold the node by a taint that nobody owns yet.
	Adopting map[string]time.Time
	// Stirred is when any node was last seen to join or to change its conditions.
	Stirred time.Time
}

// RuleState is how a node stands with a rule that selects it.
type RuleState string

// The states.
const (
	RuleHeld     RuleState = "held"     // the conditions do not hold: the taint is on the node
	RuleReleased RuleState = "released" // they do, or did once for a bootstrap-only rule
	RuleDry      RuleState = "dry-run"  // the rule changes no node
)

// Evaluation is a rule on a node that it selects and about whose taint it decides.
type Evaluation struct {
	Rule  *Rule
	State RuleState
	// Met: the conditions are as required. Completed: the node has passed the bootstrap-only rule before.
	Met, Completed bool
	// Results are the conditions as they count, in the rule's order.
	Results []v1alpha1.ConditionResult
	// Missing: the node lacks at least one of them, whatever a default makes of that.
	Missing bool
	// Tainted: the rule's taint is on the node.
	Tainted bool
	// Since is when the last of the conditions changed, by the clock of who wrote it; zero where none did.
	Since time.Time
}

// evaluate looks at the rule's conditions. It returns when the first of them is due to be stale.
func evaluate(r *Rule, n RuleNode, staleAfter time.Duration, now time.Time) (e Evaluation, wait time.Duration) {
	e = Evaluation{Rule: r, Results: make([]v1alpha1.ConditionResult, 0, len(r.Conditions))}
	met := 0
	for _, c := range r.Conditions {
		status := corev1.ConditionStatus("")
		for i := range n.Node.Status.Conditions {
			if have := &n.Node.Status.Conditions[i]; string(have.Type) == c.Type {
				status = have.Status
				if at := have.LastTransitionTime.Time; at.After(e.Since) {
					e.Since = at
				}
			}
		}
		if renewed, ok := n.Renewed[c.Type]; ok && staleAfter > 0 && status != "" {
			if left := renewed.Add(staleAfter).Sub(now); left <= 0 {
				status = ""
			} else if wait == 0 || left < wait {
				wait = left
			}
		}
		if status == "" {
			e.Missing = true
			if status = c.DefaultStatus; status == "" {
				status = corev1.ConditionUnknown
			}
		}
		if status == c.RequiredStatus {
			met++
		}
		e.Results = append(e.Results, v1alpha1.ConditionResult{Type: c.Type, CurrentStatus: status, RequiredStatus: c.RequiredStatus, DefaultStatus: c.DefaultStatus})
	}
	e.Met = met == len(r.Conditions) || r.AnyOf && met > 0
	e.Completed = !r.Continuous && marks.BootstrapCompleted(n.Node, r.UID, r.Name)
	e.Tainted = tainted(n.Node, r.Taint.ID())
	switch {
	case r.DryRun:
		e.State = RuleDry
	case e.Met || e.Completed:
		e.State = RuleReleased
	default:
		e.State = RuleHeld
	}
	return e, wait
}

func tainted(n *corev1.Node, id marks.TaintID) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return marks.TaintIDOf(t) == id })
}

// DryRunTally is what a rule in dryRun would change on the nodes that it selects.
type DryRunTally struct{ Affected, Add, Remove, Risky int32 }

// Count adds a node.
func (t *DryRunTally) Count(e Evaluation) {
	t.Affected++
	switch {
	case e.Completed:
	case !e.Met && !e.Tainted:
		t.Add++
	case e.Met && e.Tainted:
		t.Remove++
	}
	if e.Missing {
		t.Risky++
	}
}

// Results renders the tally for the rule's status, in the words of the node-readiness-controller.
func (t *DryRunTally) Results() *v1alpha1.DryRunResults {
	var parts []string
	for _, part := range []struct {
		n      int32
		before string
		after  string
	}{{t.Add, "would add ", " taints"}, {t.Remove, "would remove ", " taints"}, {t.Risky, "", " nodes have missing conditions"}} {
		if part.n > 0 {
			parts = append(parts, part.before+decimal(part.n)+part.after)
		}
	}
	summary := "No changes needed"
	if len(parts) > 0 {
		summary = strings.Join(parts, ", ")
	}
	return &v1alpha1.DryRunResults{AffectedNodes: ptr.To(t.Affected), TaintsToAdd: ptr.To(t.Add), TaintsToRemove: ptr.To(t.Remove),
		RiskyOperations: ptr.To(t.Risky), Summary: summary}
}
