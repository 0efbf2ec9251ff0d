package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReadinessRuleStatus is the observed state of a rule. Its lists contain held and failed nodes, 100 at most.
//
// +kubebuilder:validation:MinProperties=1
type NodeReadinessRuleStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// AppliedNodes are the nodes that carry the rule's taint.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=253
	AppliedNodes []string `json:"appliedNodes,omitempty"`
	// FailedNodes are the nodes that the rule could not be applied to.
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=5000
	FailedNodes []NodeFailure `json:"failedNodes,omitempty"`
	// NodeEvaluations are the reasons why nodes are held or failed.
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=5000
	NodeEvaluations []NodeEvaluation `json:"nodeEvaluations,omitempty"`
	// DryRunResults are what a rule with dryRun would change.
	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`
	// Conditions are Serving, Accepted, Tolerated and, where rules.maxClosedPercent is set, ClosingLimited.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Summary counts nodes, including those that the lists omit.
	// +optional
	Summary *RuleSummary `json:"summary,omitempty"`
}

// Types of the conditions in a rule's status.
const (
	// ConditionServing reports whether a controller applies the rule.
	ConditionServing = "Serving"
	// ConditionAccepted reports whether the rule is valid.
	ConditionAccepted = "Accepted"
	// ConditionClosingLimited reports whether rules.maxClosedPercent keeps the rule from tainting nodes again.
	ConditionClosingLimited = "ClosingLimited"
	// ConditionTolerated reports whether the controller's own pods tolerate the rule's taint.
	ConditionTolerated = "Tolerated"
)

// Reasons of those conditions.
const (
	ReasonServing       = "Serving"
	ReasonDryRun        = "DryRun"
	ReasonRefused       = "Refused"
	ReasonStandingBack  = "StandingBack"
	ReasonForbidden     = "Forbidden"
	ReasonAccepted      = "Accepted"
	ReasonOverruled     = "Overruled"
	ReasonLimitReached  = "LimitReached"
	ReasonBelowLimit    = "BelowLimit"
	ReasonTolerated     = "Tolerated"
	ReasonNotTolerated  = "NotTolerated"
	ReasonPodUnreadable = "PodUnreadable"
)

// RuleSummary counts the nodes that a rule selects.
type RuleSummary struct {
	// Held is how many nodes carry the rule's taint, or are about to.
	// +required
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held"`
	// Released is how many nodes do not carry the rule's taint.
	// +required
	// +kubebuilder:validation:Minimum=0
	Released int32 `json:"released"`
	// Failed is how many nodes the rule could not be applied to. They are counted as held or released, too.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}

// NodeFailure is a node that a rule could not be applied to.
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
	// Message describes the failure for a human reader.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`
	// LastEvaluationTime is when this failure was first observed.
	// +required
	LastEvaluationTime metav1.Time `json:"lastEvaluationTime"`
}

// ReasonEvaluationError is the reason of every NodeFailure.
const ReasonEvaluationError = "EvaluationError"

// NodeEvaluation is the result of a rule on one node.
type NodeEvaluation struct {
	// NodeName is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	NodeName string `json:"nodeName"`
	// ConditionResults are the rule's conditions and their status on the node.
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=5000
	ConditionResults []ConditionResult `json:"conditionResults"`
	// TaintStatus reports whether the rule's taint is on the node.
	// +required
	TaintStatus TaintStatus `json:"taintStatus"`
	// LastEvaluationTime is when this result was first observed.
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

// ConditionResult is a condition of a rule and its status on a node.
type ConditionResult struct {
	// Type of the condition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// CurrentStatus is the status on the node. A missing condition is Unknown, and counts as DefaultStatus if that is set.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	CurrentStatus corev1.ConditionStatus `json:"currentStatus"`
	// RequiredStatus is the status that the rule requires.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	RequiredStatus corev1.ConditionStatus `json:"requiredStatus"`
	// DefaultStatus is the status that the rule gives to a missing condition.
	// +optional
	// +kubebuilder:validation:Enum=True;False;Unknown
	DefaultStatus corev1.ConditionStatus `json:"defaultStatus,omitempty"`
}

// DryRunResults are what a rule with dryRun would change.
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
	// RiskyOperations is how many nodes lack at least one of the conditions, regardless of defaultStatus.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RiskyOperations *int32 `json:"riskyOperations,omitempty"`
	// Summary describes the same in words.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary"`
}
