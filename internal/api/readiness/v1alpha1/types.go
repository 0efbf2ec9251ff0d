package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReadinessRule keeps a taint on the nodes that it selects until their conditions are as required.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodereadinessrules,scope=Cluster,shortName=nrr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.enforcementMode`,description="bootstrap-only, or continuous."
// +kubebuilder:printcolumn:name="Taint",type=string,JSONPath=`.spec.taint.key`,description="Key of the taint."
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.taint.effect`,description="Effect of the taint."
// +kubebuilder:printcolumn:name="DryRun",type=boolean,JSONPath=`.spec.dryRun`,description="Whether the rule changes no node."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the rule's creation."
// +kubebuilder:selectablefield:JSONPath=`.spec.enforcementMode`
// +kubebuilder:selectablefield:JSONPath=`.spec.taint.key`
// +kubebuilder:selectablefield:JSONPath=`.spec.dryRun`
type NodeReadinessRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the rule requires of nodes.
	// +required
	Spec NodeReadinessRuleSpec `json:"spec"`
	// Status is the observed state of the rule.
	// +optional
	Status NodeReadinessRuleStatus `json:"status,omitempty"`
}

// NodeReadinessRuleList is a list of rules.
//
// +kubebuilder:object:root=true
type NodeReadinessRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeReadinessRule `json:"items"`
}

// NodeReadinessRuleSpec is what a rule requires of nodes. All fields except dryRun are immutable.
//
// +kubebuilder:validation:XValidation:rule="(has(self.conditionPolicy) ? self.conditionPolicy : 'allOf') == (has(oldSelf.conditionPolicy) ? oldSelf.conditionPolicy : 'allOf')",message="conditionPolicy is immutable",fieldPath=".conditionPolicy"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.enforcementMode != 'bootstrap-only' || !has(self.conditionPolicy) || self.conditionPolicy == 'allOf'",message="conditionPolicy must be allOf with enforcementMode 'bootstrap-only'",fieldPath=".conditionPolicy",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.enforcementMode != 'bootstrap-only' || self.conditions.all(c, !has(c.defaultStatus))",message="defaultStatus must not be set with enforcementMode 'bootstrap-only'",fieldPath=".conditions",optionalOldSelf=true
type NodeReadinessRuleSpec struct {
	// Conditions are the node conditions that the rule evaluates.
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="conditions is immutable"
	Conditions []ConditionRequirement `json:"conditions"`
	// ConditionPolicy is allOf if every condition must be as required, anyOf if one must be. Default allOf.
	// +optional
	ConditionPolicy ConditionPolicy `json:"conditionPolicy,omitempty"`
	// EnforcementMode is bootstrap-only, until the conditions first hold, or continuous, while the rule exists.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="enforcementMode is immutable"
	EnforcementMode EnforcementMode `json:"enforcementMode"`
	// Taint is on a selected node until its conditions hold.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.key.startsWith('readiness.k8s.io/') || self.key.startsWith('startup-taint.cluster-autoscaler.kubernetes.io/')",message="taint key must start with 'readiness.k8s.io/' or 'startup-taint.cluster-autoscaler.kubernetes.io/'",fieldPath=".key"
	// +kubebuilder:validation:XValidation:rule="size(self.key) <= 253",message="taint key length must be at most 253 characters",fieldPath=".key"
	// +kubebuilder:validation:XValidation:rule="self.key.split('/').size() == 2",message="taint key must have exactly one '/' separator (prefix/name format)",messageExpression="\"taint key must have exactly one '/' separator (prefix/name format)\" + (self.key.contains('/') && size(self.key) <= 253 ? \"; Kubernetes takes no other, a legal key is '\" + self.key.substring(0, self.key.indexOf('/') + 1) + self.key.substring(self.key.indexOf('/') + 1).replace('/', '-') + \"'\" : '')",fieldPath=".key"
	// +kubebuilder:validation:XValidation:rule="self.key.split('/').size() != 2 || size(self.key.split('/')[1]) >= 1 && size(self.key.split('/')[1]) <= 63",message="taint key name part must be 1-63 characters",fieldPath=".key"
	// +kubebuilder:validation:XValidation:rule="self.key.split('/').size() != 2 || self.key.split('/')[1].matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="taint key name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",fieldPath=".key"
	// +kubebuilder:validation:XValidation:rule="!has(self.value) || size(self.value) <= 63",message="taint value length must be at most 63 characters",fieldPath=".value"
	// +kubebuilder:validation:XValidation:rule="!has(self.value) || self.value.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')",message="taint value must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",fieldPath=".value"
	// +kubebuilder:validation:XValidation:rule="self.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute']",message="taint effect must be one of 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",fieldPath=".effect"
	// +kubebuilder:validation:XValidation:rule="self.key == oldSelf.key",message="taint key is immutable",fieldPath=".key"
	// +kubebuilder:validation:XValidation:rule="self.effect == oldSelf.effect",message="taint effect is immutable",fieldPath=".effect"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.value) || has(self.value) && self.value == oldSelf.value",message="taint value is immutable",fieldPath=".value"
	Taint corev1.Taint `json:"taint"`
	// NodeSelector selects nodes by their labels. It must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeSelector is immutable"
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="nodeSelector must not be empty"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="matchExpressions must have an operator that is In, NotIn, Exists or DoesNotExist"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// DryRun reports in the status what would change, and changes no node. Existing taints stay. Default false.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// ConditionRequirement is a node condition and the status it must have.
type ConditionRequirement struct {
	// Type of the node's condition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// RequiredStatus is True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	RequiredStatus corev1.ConditionStatus `json:"requiredStatus"`
	// DefaultStatus is the status of a condition that the node does not have. Default Unknown.
	// +optional
	// +kubebuilder:validation:Enum=True;False;Unknown
	DefaultStatus corev1.ConditionStatus `json:"defaultStatus,omitempty"`
}

// ConditionPolicy is how many of the conditions must be as required.
//
// +kubebuilder:validation:Enum=allOf;anyOf
type ConditionPolicy string

// The policies.
const (
	PolicyAllOf ConditionPolicy = "allOf"
	PolicyAnyOf ConditionPolicy = "anyOf"
)

// EnforcementMode is how long a rule acts on a node.
//
// +kubebuilder:validation:Enum=bootstrap-only;continuous
type EnforcementMode string

// The modes.
const (
	ModeBootstrapOnly EnforcementMode = "bootstrap-only"
	ModeContinuous    EnforcementMode = "continuous"
)
