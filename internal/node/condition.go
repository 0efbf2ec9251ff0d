package node

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionType is the node condition that tells where verification stands.
const ConditionType corev1.NodeConditionType = "node-ready/Verified"

// Reasons of the condition.
const (
	ReasonChecksPassed            = "ChecksPassed"            // True
	ReasonChecksFailed            = "ChecksFailed"            // False
	ReasonRetriesExhausted        = "RetriesExhausted"        // False
	ReasonVerifying               = "Verifying"               // Unknown
	ReasonWaitingForPrerequisites = "WaitingForPrerequisites" // Unknown
	ReasonWorkerInconclusive      = "WorkerInconclusive"      // Unknown
	ReasonRemediationHeld         = "RemediationHeld"         // Unknown
)

// Condition is the state of ConditionType that a decision asks for.
type Condition struct {
	Status  corev1.ConditionStatus
	Reason  string
	Message string
	// Since is when the state began. It comes from the record or the pod and not from a
	// clock, so that writing the same condition twice changes nothing.
	Since time.Time
}

// Same tells whether the node already says so.
func (c Condition) Same(have *corev1.NodeCondition) bool {
	return have != nil && have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message
}

// Patch renders a strategic merge patch of nodes/status that touches this condition and no other.
func (c Condition) Patch(have *corev1.NodeCondition) []byte {
	since := metav1.NewTime(c.Since)
	if have != nil && have.Status == c.Status {
		// lastTransitionTime is when the status last changed, not the message (API conventions).
		since = have.LastTransitionTime
	}
	b, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: ConditionType, Status: c.Status, Reason: c.Reason, Message: c.Message,
		LastTransitionTime: since, LastHeartbeatTime: metav1.NewTime(c.Since),
	}}}})
	if err != nil {
		panic(err) // strings and times only
	}
	return b
}
