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
)

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
	return RemoveConditionOf(uid, ConditionType)
}

// SetCondition renders a strategic merge patch of nodes/status that sets a condition of another type. It fails if
// anybody has written the node since n was read, because another writer may have set that type.
func SetCondition(n *corev1.Node, c corev1.NodeCondition) []byte {
	return conditionPatch(map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}, c)
}

// RemoveConditionOf is RemoveCondition for another type.
func RemoveConditionOf(uid string, kind corev1.NodeConditionType) []byte {
	return conditionPatch(map[string]any{"uid": uid}, map[string]any{"$patch": "delete", "type": kind})
}

func conditionPatch(metadata map[string]any, condition any) []byte {
	b, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		panic(err) // strings and times only
	}
	return b
}
