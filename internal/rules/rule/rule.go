// Package rule decides what NodeReadinessRules require of a node, and computes their status. Its functions are pure.
package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Rule is a NodeReadinessRule, compiled for decisions.
type Rule struct {
	Name, UID  string
	Generation int64
	Created    time.Time
	// Deleting: the rule is being deleted. Finalized: it has our finalizer. A rule without the finalizer must not add a
	// taint, because its deletion would leave the taint behind.
	Deleting, Finalized bool
	DryRun              bool
	// Continuous is the enforcement mode; the other is bootstrap-only.
	Continuous bool
	// AnyOf is the condition policy; the other is allOf.
	AnyOf      bool
	Conditions []v1alpha1.ConditionRequirement
	Taint      marks.Taint
	// Invalid says, with the field, why the rule is refused; empty for a valid one.
	Invalid string

	selector labels.Selector
}

// Compile prepares a rule. gating are the taints that verification owns.
func Compile(r *v1alpha1.NodeReadinessRule, gating []marks.Taint) Rule {
	c := Rule{
		Name: r.Name, UID: string(r.UID), Generation: r.Generation, Created: r.CreationTimestamp.Time,
		Deleting: r.DeletionTimestamp != nil, Finalized: slices.Contains(r.Finalizers, v1alpha1.Finalizer),
		DryRun: r.Spec.DryRun, Continuous: r.Spec.EnforcementMode == v1alpha1.ModeContinuous,
		AnyOf: r.Spec.ConditionPolicy == v1alpha1.PolicyAnyOf, Conditions: r.Spec.Conditions,
		Taint:    marks.Taint{Key: r.Spec.Taint.Key, Value: r.Spec.Taint.Value, Effect: r.Spec.Taint.Effect},
		selector: labels.Nothing(),
	}
	if selector, err := metav1.LabelSelectorAsSelector(&r.Spec.NodeSelector); err == nil {
		c.selector = selector
	}
	if errs := validate(&r.Spec, gating); len(errs) > 0 {
		c.Invalid = errs.ToAggregate().Error()
	}
	return c
}

// Sort sorts rules by which of them decides about a taint that several have: the older one; ties are broken by name.
func Sort(rules []Rule) {
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
}

// Selects reports whether the rule's selector matches the labels. An invalid rule selects nothing.
func (r *Rule) Selects(nodeLabels map[string]string) bool {
	return r.Invalid == "" && r.Concerns(nodeLabels)
}

// Active reports whether the rule holds and releases nodes.
func (r *Rule) Active() bool { return r.Invalid == "" && !r.Deleting && r.Finalized && !r.DryRun }

// Concerns reports whether the rule's selector matches the labels. It also applies to a refused rule, which releases
// the nodes that it selects.
func (r *Rule) Concerns(nodeLabels map[string]string) bool {
	return r.selector.Matches(labels.Set(nodeLabels))
}

// idle reports whether the rule leaves what it owns unchanged. A dry-run rule changes no node until it is deleted. A
// rule whose finalizer somebody removed waits until the finalizer is back. A refused rule gets no finalizer.
func (r *Rule) idle() bool { return !r.Deleting && (r.DryRun || !r.Finalized && r.Invalid == "") }

// AnyRequires reports whether any of the rules requires something of the condition.
func AnyRequires(rules []Rule, condition corev1.NodeConditionType) bool {
	same := func(c v1alpha1.ConditionRequirement) bool { return c.Type == string(condition) }
	return slices.ContainsFunc(rules, func(r Rule) bool { return slices.ContainsFunc(r.Conditions, same) })
}

// AnyConcerns reports whether rules that are listed and not served concern the node. A rule that is neither refused nor
// in dryRun concerns the nodes that it selects and those that carry its taint. In addition, the rules concern every
// node whose annotation names the owner of a taint.
func AnyConcerns(n *corev1.Node, rules []Rule) bool {
	for i := range rules {
		r := &rules[i]
		if r.Invalid == "" && !r.DryRun && (!r.Deleting && r.Selects(n.Labels) || Tainted(n, r.Taint.ID())) {
			return true
		}
	}
	return len(rules) > 0 && len(marks.OwnedOn(n)) > 0
}

// Tainted reports whether the node carries the taint, whatever its value.
func Tainted(n *corev1.Node, id marks.TaintID) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return marks.TaintIDOf(t) == id })
}

// Node is what is observed of a node for its rules.
type Node struct {
	Node *corev1.Node
	// Gating are the taints that verification owns: no rule changes them.
	Gating []marks.Taint
	// Renewed is when a condition's heartbeat was last observed to be renewed, by the condition's type, on the
	// observer's clock. One whose heartbeat never was is not in it.
	Renewed map[string]time.Time
	// Adopting is since when a rule, by its UID, has been observed to hold the node by a taint that nobody owns yet.
	Adopting map[string]time.Time
	// Released are the UIDs of the bootstrap-only rules that this process has observed the node pass: the previous
	// Plan.Released. The annotation alone proves nothing, since a kubelet may write it.
	Released []string
	// LastChange is when any node was last observed to join or to change its conditions.
	LastChange time.Time
	// Limited: rules.maxClosedPercent is set. MayClose are then the UIDs of the rules that may close the node although
	// they have released it before.
	Limited  bool
	MayClose map[string]bool
	// Registered: act as if Karpenter had registered the node.
	Registered bool
	// releasedBy are the UIDs of the rules that have released the node, according to its annotation.
	releasedBy []string
}

// State is the state of a node under a rule that selects it.
type State string

// The states.
const (
	Held     State = "held"     // the conditions do not hold, or the taint is on the node
	Released State = "released" // they do, or did once for a bootstrap-only rule, and the taint is not on the node
	Dry      State = "dry-run"  // the rule changes no node
)

// Evaluation is a rule on a node that it selects and about whose taint it decides.
type Evaluation struct {
	Rule  *Rule
	State State
	// Met: the conditions are as required. Completed: the node has passed the bootstrap-only rule before.
	Met, Completed bool
	// Results are the conditions as they count, in the rule's order.
	Results []v1alpha1.ConditionResult
	// Missing: the node lacks at least one of the conditions, whatever their defaults.
	Missing bool
	// Defaulted are the types of those that the node lacks and that count as their default.
	Defaulted []string
	// Tainted: the rule's taint is on the node.
	Tainted bool
	// ReleasedBefore: the node's annotation says that this continuous rule has released it. Known only with a limit.
	ReleasedBefore bool
	// LeftOpen: the conditions are not as required, and the limit leaves the node open.
	LeftOpen bool
	// Unregistered: Karpenter has not registered the node, which keeps the taint until then.
	Unregistered bool
	// Since is when the last of the conditions changed, by the clock of who wrote it; zero if none did.
	Since time.Time
}

// Unmet are the conditions for which the rule holds the node: none if enough of them are as required.
func (e *Evaluation) Unmet() (unmet []v1alpha1.ConditionResult) {
	for _, r := range e.Results {
		if !e.Met && r.CurrentStatus != r.RequiredStatus {
			unmet = append(unmet, r)
		}
	}
	return unmet
}

// Why is why the rule holds the node, or would hold it if the limit did not leave it open; empty otherwise.
func (e *Evaluation) Why() string {
	if e.State != Held && !e.LeftOpen {
		return ""
	}
	var parts []string
	for _, r := range e.Unmet() {
		parts = append(parts, fmt.Sprintf("%s is %s and must be %s", r.Type, r.CurrentStatus, r.RequiredStatus))
	}
	separator := ", "
	if e.Rule.AnyOf {
		separator = ", or "
	}
	why := strings.Join(parts, separator)
	switch {
	case e.LeftOpen:
		return why + "; left open by rules.maxClosedPercent"
	case e.Unregistered && e.Met:
		return "its conditions hold, and the taint stays until Karpenter has registered the node"
	case e.Met:
		return "its conditions hold, and the taint is still on the node"
	case !e.Tainted:
		return why + "; the taint is not on the node yet"
	}
	return why
}

// shown are the results for people. A missing condition is Unknown, and the value that it counts as is reported
// separately.
func (e *Evaluation) shown() []v1alpha1.ConditionResult {
	results := slices.Clone(e.Results)
	for i := range results {
		if slices.Contains(e.Defaulted, results[i].Type) {
			results[i].CurrentStatus = corev1.ConditionUnknown
		}
	}
	return results
}

// evaluate evaluates the rule's conditions. wait is when the first of them becomes stale.
func evaluate(r *Rule, n Node, staleAfter time.Duration, now time.Time) (e Evaluation, wait time.Duration) {
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
			} else {
				e.Defaulted = append(e.Defaulted, c.Type)
			}
		}
		if status == c.RequiredStatus {
			met++
		}
		e.Results = append(e.Results, v1alpha1.ConditionResult{Type: c.Type, CurrentStatus: status,
			RequiredStatus: c.RequiredStatus, DefaultStatus: c.DefaultStatus})
	}
	e.Met = met == len(r.Conditions) || r.AnyOf && met > 0
	e.Completed = !r.Continuous && marks.BootstrapCompleted(n.Node, r.UID, r.Name, r.Created)
	e.Tainted = Tainted(n.Node, r.Taint.ID())
	if n.Limited && r.Continuous && !r.DryRun {
		e.ReleasedBefore = slices.Contains(n.releasedBy, r.UID)
		e.LeftOpen = e.ReleasedBefore && !e.Met && !e.Tainted && !n.MayClose[r.UID]
	}
	switch {
	case r.DryRun:
		e.State = Dry
	case (e.Met || e.Completed || e.LeftOpen) && !e.Tainted:
		e.State = Released
	default:
		e.State = Held
	}
	return e, wait
}

// AddsTolerations reports whether new pods of the controller, of which this is one, get the tolerations of the rules
// that are there by then. The chart marks its pods when it installs the policy for that.
func AddsTolerations(pod *corev1.Pod) bool {
	return pod.Annotations["node-ready/rule-tolerations"] == "added"
}
