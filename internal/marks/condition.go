package marks

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionType is the node condition that shows where verification stands.
const ConditionType corev1.NodeConditionType = "node-ready/Verified"

// Reasons of the condition.
const (
	ReasonChecksPassed            = "ChecksPassed"            // True
	ReasonChecksFailed            = "ChecksFailed"            // False
	ReasonRetriesExhausted        = "RetriesExhausted"        // False
	ReasonDeadlineExceeded        = "DeadlineExceeded"        // False
	ReasonUnsupportedOS           = "UnsupportedOS"           // Unknown
	ReasonVerifying               = "Verifying"               // Unknown
	ReasonWaitingForPrerequisites = "WaitingForPrerequisites" // Unknown
	ReasonWaitingForRegistration  = "WaitingForRegistration"  // Unknown
	ReasonWaitingForSlot          = "WaitingForSlot"          // Unknown
	ReasonWorkerInconclusive      = "WorkerInconclusive"      // Unknown
	ReasonRemediationHeld         = "RemediationHeld"         // Unknown
	ReasonRulesUnavailable        = "RulesUnavailable"        // Unknown
	// ReasonGateRemoved is of a node that another writer opened before it was verified; Unknown.
	ReasonGateRemoved = "GateRemoved"
	// ReasonReleaseRefused is of a node whose gating taint the API server does not let the controller remove. A permission
	// is missing, or an admission policy refuses it, such as AKS' own for the taints of a node pool; Unknown.
	ReasonReleaseRefused = "ReleaseRefused"
)

// ReasonVerificationFailed is the reason of every condition that asks a repairer to act on a node, whatever its type
// (nodeManagement.remediation.condition). The controller knows its own conditions by it, also those of an earlier
// configuration.
const ReasonVerificationFailed = "NodeReadyVerificationFailed"

// Condition is the state of ConditionType that a decision asks for.
type Condition struct {
	Status  corev1.ConditionStatus
	Reason  string
	Message string
	// Since is when the state began.
	Since time.Time
}

// Same reports whether the node already has this condition.
func (c Condition) Same(have *corev1.NodeCondition) bool {
	return have != nil && have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message
}

// Patch renders a strategic merge patch of nodes/status that changes only this condition. It fails unless the node has
// this UID, because a node that was re-created under the same name must not get the condition of its predecessor.
func (c Condition) Patch(uid string, have *corev1.NodeCondition) []byte {
	since := metav1.NewTime(c.Since)
	if have != nil && have.Status == c.Status {
		// lastTransitionTime is when the status last changed, not the message (API conventions).
		since = have.LastTransitionTime
	}
	return conditionPatch(map[string]any{"uid": uid}, corev1.NodeCondition{
		Type: ConditionType, Status: c.Status, Reason: c.Reason, Message: c.Message,
		LastTransitionTime: since, LastHeartbeatTime: metav1.NewTime(c.Since),
	})
}

// RemoveCondition renders a strategic merge patch of nodes/status that removes ConditionType from the node of this UID.
func RemoveCondition(uid string) []byte {
	return conditionPatch(map[string]any{"uid": uid}, removal(ConditionType))
}

// SetCondition renders a strategic merge patch of nodes/status that sets a condition of another type. It fails if
// anybody has written the node since n was read, because another writer may have set that type.
func SetCondition(n *corev1.Node, c corev1.NodeCondition) []byte {
	return conditionPatch(map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}, c)
}

// RemoveConditions renders a strategic merge patch of nodes/status that removes conditions of other types. It fails if
// anybody has written the node since n was read, because another writer may have set one of them.
func RemoveConditions(n *corev1.Node, types []corev1.NodeConditionType) []byte {
	var all []any
	for _, t := range types {
		all = append(all, removal(t))
	}
	return conditionPatch(map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}, all...)
}

func removal(t corev1.NodeConditionType) any { return map[string]any{"$patch": "delete", "type": t} }

func conditionPatch(metadata map[string]any, conditions ...any) []byte {
	b, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		panic(err) // strings and times only
	}
	return b
}
