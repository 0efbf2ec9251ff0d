package node

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what an attempt said about its node.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomePassed       Outcome = "passed"
	OutcomeFailed       Outcome = "failed"       // spends the failure budget
	OutcomeInconclusive Outcome = "inconclusive" // says nothing about the node
)

// Record is the durable account of a node's verification, kept in AnnotationRecord. With the
// worker pods it is all the state there is.
type Record struct {
	// NodeUID is the node that the record is for; under another UID it counts as none.
	NodeUID string `json:"nodeUID"`
	// BootID is the boot that the last verdict is for.
	BootID string `json:"bootID,omitempty"`
	// Sequence is the number of the last worker pod whose outcome is recorded; the next pod
	// is Sequence+1. It never goes back, so a pod is counted once.
	Sequence int32 `json:"sequence"`
	// Attempts is how many failures the current run has spent of maxRetries.
	Attempts int32 `json:"attempts"`
	// Inconclusive is how many attempts of the current run said nothing about the node.
	Inconclusive int32 `json:"inconclusive"`
	// LastOutcome, LastCheck, LastReason and LastMessage describe the last attempt.
	LastOutcome Outcome `json:"lastOutcome,omitempty"`
	LastCheck   string  `json:"lastCheck,omitempty"`
	LastReason  string  `json:"lastReason,omitempty"`
	LastMessage string  `json:"lastMessage,omitempty"`
	// LastTime is when the last attempt was recorded.
	LastTime *metav1.Time `json:"lastTime,omitempty"`
	// DurationMs is how long the last attempt's container ran.
	DurationMs int64 `json:"durationMs,omitempty"`
	// NextAttemptTime is the earliest start of the next attempt.
	NextAttemptTime *metav1.MicroTime `json:"nextAttemptTime,omitempty"`
	// VerifiedTime is when the node last passed. It stays when a later attempt fails.
	VerifiedTime *metav1.Time `json:"verifiedTime,omitempty"`
	// Probed tells that the same checks passed on a verified node while this one's last attempt failed.
	Probed bool `json:"probed,omitempty"`
	// Deleting names the NodeClaim that is being deleted; the node is not tried again.
	Deleting string `json:"deleting,omitempty"`
	// Held is the remediation guard that keeps an exhausted or unattributed node from deletion.
	Held string `json:"held,omitempty"`
	// HeldMessage says why, for a person.
	HeldMessage string `json:"heldMessage,omitempty"`
}

// maxMessage bounds a message from a worker's report before it is stored on the node.
const maxMessage = 512

// Truncate cuts a message to what a record, a condition or an event may hold, on a rune's boundary.
func Truncate(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len("…")
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}

// Verified tells whether the node ever passed.
func (r Record) Verified() bool { return r.VerifiedTime != nil }

// Encode renders the record for AnnotationRecord.
func (r Record) Encode() string {
	b, err := json.Marshal(r)
	if err != nil {
		// Only strings, numbers and times: Marshal has nothing to refuse.
		panic(err)
	}
	return string(b)
}

// parseRecord reads a node's record; a missing one, and one of another node of the same name, is
// the zero Record.
func parseRecord(n *corev1.Node) (Record, error) {
	raw, ok := n.Annotations[AnnotationRecord]
	if !ok {
		return Record{}, nil
	}
	var r Record
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return Record{}, fmt.Errorf("annotation %s of node %s is not a record, the node starts afresh: %w", AnnotationRecord, n.Name, err)
	}
	if r.Sequence < 0 || r.Attempts < 0 || r.Inconclusive < 0 {
		return Record{}, fmt.Errorf("annotation %s of node %s has a negative count, the node starts afresh", AnnotationRecord, n.Name)
	}
	if r.NodeUID != string(n.UID) {
		return Record{}, nil
	}
	return r, nil
}

// Next returns the time before which no attempt may start; the zero time when there is none.
func (r Record) Next() time.Time {
	if r.NextAttemptTime == nil {
		return time.Time{}
	}
	return r.NextAttemptTime.Time
}
