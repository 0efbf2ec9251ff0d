package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReadinessRuleStatus is what became of a rule. Its lists name nodes that are held or failed, and at most 100 of them.
//
// +kubebuilder:validation:MinProperties=1
type NodeReadinessRuleStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// AppliedNodes are nodes that the rule holds by its taint.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=253
	AppliedNodes []string `json:"appliedNodes,omitempty"`
	// FailedNodes are nodes on which the rule could not be carried out.
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=5000
	FailedNodes []NodeFailure `json:"failedNodes,omitempty"`
	// NodeEvaluations say of held and failed nodes why.
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=5000
	NodeEvaluations []NodeEvaluation `json:"nodeEvaluations,omitempty"`
	// DryRunResults say what a rule in dryRun would change.
	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`
	// Conditions are Serving, Accepted and, where rules.maxClosedPercent is set, ClosingLimited.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Summary counts nodes, also those that the lists have no place for.
	// +optional
	Summary *RuleSummary `json:"summary,omitempty"`
}

// Types of the conditions in a rule's status.
const (
	// ConditionServing reports whether a controller carries the rule out.
	ConditionServing = "Serving"
	// ConditionAccepted reports whether the rule is valid.
	ConditionAccepted = "Accepted"
	// ConditionClosingLimited reports whether rules.maxClosedPercent leaves nodes open that the rule would close again.
	ConditionClosingLimited = "ClosingLimited"
)

// Reasons of those conditions.
const (
	ReasonServing      = "Serving"
	ReasonDryRun       = "DryRun"
	ReasonRefused      = "Refused"
	ReasonStandingBack = "StandingBack"
	ReasonForbidden    = "Forbidden"
	ReasonAccepted     = "Accepted"
	ReasonOverruled    = "Overruled"
	ReasonLimitReached = "LimitReached"
	ReasonBelowLimit   = "BelowLimit"
)

// RuleSummary counts the nodes that a rule selects and decides about.
type RuleSummary struct {
	// Held nodes carry the rule's taint, or wait for it.
	// +required
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held"`
	// Released nodes do not carry the rule's taint.
	// +required
	// +kubebuilder:validation:Minimum=0
	Released int32 `json:"released"`
	// Failed nodes are those on which the rule could not be carried out. They are among the held or the released ones.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}

// NodeFailure is a node on which a rule could not be carried out.
type NodeFailure struct {
	// NodeName is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	NodeName string `json:"nodeName"`
	// Reason is EvaluationError.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// Message is for a person.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`
	// LastEvaluationTime is when it was found so first.
	// +required
	LastEvaluationTime metav1.Time `json:"lastEvaluationTime"`
}

// ReasonEvaluationError is the reason of every NodeFailure.
const ReasonEvaluationError = "EvaluationError"

// NodeEvaluation is how a node stands with a rule.
type NodeEvaluation struct {
	// NodeName is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	NodeName string `json:"nodeName"`
	// ConditionResults are the rule's conditions as they are on the node.
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=5000
	ConditionResults []ConditionResult `json:"conditionResults"`
	// TaintStatus reports whether the rule's taint is on the node.
	// +required
	TaintStatus TaintStatus `json:"taintStatus"`
	// LastEvaluationTime is when it was found so first.
	// +required
	LastEvaluationTime metav1.Time `json:"lastEvaluationTime"`
}

// TaintStatus reports whether a taint is on a node.
//
// +kubebuilder:validation:Enum=Present;Absent
type TaintStatus string

// The statuses of a taint.
const (
	TaintPresent TaintStatus = "Present"
	TaintAbsent  TaintStatus = "Absent"
)

// ConditionResult is a condition of a rule as it is on a node.
type ConditionResult struct {
	// Type of the condition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// CurrentStatus is the node's; Unknown for a missing one, which counts as DefaultStatus where that is set.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	CurrentStatus corev1.ConditionStatus `json:"currentStatus"`
	// RequiredStatus is the rule's.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	RequiredStatus corev1.ConditionStatus `json:"requiredStatus"`
	// DefaultStatus is the rule's.
	// +optional
	// +kubebuilder:validation:Enum=True;False;Unknown
	DefaultStatus corev1.ConditionStatus `json:"defaultStatus,omitempty"`
}

// DryRunResults say what a rule in dryRun would change.
//
// +kubebuilder:validation:MinProperties=1
type DryRunResults struct {
	// AffectedNodes is how many nodes the rule selects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AffectedNodes *int32 `json:"affectedNodes,omitempty"`
	// TaintsToAdd is how many nodes would be tainted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TaintsToAdd *int32 `json:"taintsToAdd,omitempty"`
	// TaintsToRemove is how many nodes would lose the taint.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TaintsToRemove *int32 `json:"taintsToRemove,omitempty"`
	// RiskyOperations is how many nodes lack at least one of the conditions, whatever a default makes of that.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RiskyOperations *int32 `json:"riskyOperations,omitempty"`
	// Summary says the same in words.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary"`
}
