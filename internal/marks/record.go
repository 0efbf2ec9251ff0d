package marks

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// Record is the durable account of a node's verification, kept in AnnotationRecord. With the worker pods it is all the
// state there is. Whoever may write the Node may forge it, so no decision trusts a time or a count in it beyond what
// bounds it.
type Record struct {
	// NodeUID is the node that the record is for; under another UID it counts as none.
	NodeUID string `json:"nodeUID"`
	// BootID is the boot that the last verdict is for.
	BootID string `json:"bootID,omitempty"`
	// Sequence is the number of the last attempt whose outcome is recorded; the next is Sequence+1. It never goes back,
	// so an attempt is counted once.
	Sequence int32 `json:"sequence"`
	// Attempts is how many failures the current run has spent of maxRetries.
	Attempts int32 `json:"attempts"`
	// Inconclusive is how many attempts of the current run proved nothing about the node.
	Inconclusive int32 `json:"inconclusive"`
	// Superseded is how many attempts in a row, the last one included, were made under what no longer holds.
	Superseded int32 `json:"superseded,omitempty"`
	// Shared is how many failures of the current run verified nodes shared, or could not be compared with, since a
	// control probe last passed beside one.
	Shared int32 `json:"shared,omitempty"`
	// LastOutcome, LastCheck, LastReason and LastMessage describe the last attempt; see attempt.Result.
	LastOutcome attempt.Outcome `json:"lastOutcome,omitempty"`
	LastCheck   string          `json:"lastCheck,omitempty"`
	LastReason  string          `json:"lastReason,omitempty"`
	LastMessage string          `json:"lastMessage,omitempty"`
	// LastTime is when the last attempt was recorded, on the clock of the controller that did.
	LastTime *time.Time `json:"lastTime,omitempty"`
	// DurationMs is how long the last attempt's checks ran.
	DurationMs int64 `json:"durationMs,omitempty"`
	// NextAttemptTime is the earliest start of the next attempt as it was computed when the last one was recorded. It is
	// for readers: decisions compute it anew from LastTime, the counts and the present configuration.
	NextAttemptTime *time.Time `json:"nextAttemptTime,omitempty"`
	// VerifiedTime is when the node last passed. It stays when a later attempt fails.
	VerifiedTime *time.Time `json:"verifiedTime,omitempty"`
	// Since is when a node that passed before was first seen to need it again, on the clock of the controller that saw it. It is
	// written where a deadline is configured, and goes with the next pass. A node that never passed is counted from its creation.
	Since *time.Time `json:"since,omitempty"`
	// Concluded: the node failed as often as it may before it ever passed, which was counted. It stays for the life of the node.
	Concluded bool `json:"concluded,omitempty"`
	// DeadlineCause is what was last found out about a node past its deadline; any other outcome removes it.
	DeadlineCause *DeadlineCause `json:"overdue,omitempty"`
	// HistoryLost: an earlier record could not be read, or the node was adopted, so it may have passed before.
	HistoryLost bool `json:"historyLost,omitempty"`
	// Probed: the same checks passed on a verified node while this one's last attempt failed.
	Probed bool `json:"probed,omitempty"`
	// Unseen: a failure was recorded as inconclusive because no controller saw when it came. There is no second one until the
	// next failure is counted.
	Unseen bool `json:"unseen,omitempty"`
	// Deletion is what was decided to be deleted, written before it is; the node is not tried again while it goes.
	Deletion *Deletion `json:"deletion,omitempty"`
	// Held is the remediation guard that keeps the node from deletion, and HeldMessage what it found at first.
	Held        string `json:"held,omitempty"`
	HeldMessage string `json:"heldMessage,omitempty"`
}

// DeadlineCause is what was found out about a node past its deadline by comparing it with a verified one.
type DeadlineCause struct {
	// Time is when it was found out.
	Time time.Time `json:"time"`
	// BootID is the node's boot at that time: what was found out is void after a reboot.
	BootID string `json:"bootID,omitempty"`
	// Fault says whose fault it is: one of the Fault constants.
	Fault string `json:"fault"`
	// Message says what kept the node from passing or, where that is not held against it, why not.
	Message string `json:"message,omitempty"`
}

// The values of Overdue.Fault.
const (
	FaultNode    = "node"    // it lies on the node: a control probe passed after the deadline
	FaultShared  = "shared"  // verified nodes share it, or it could not be compared with any
	FaultUnclear = "unclear" // verified nodes have just ceased to share it
)

// Deletion is a deletion that was decided.
type Deletion struct {
	// Kind is NodeClaim or Node, Name and UID are the object's.
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Time is when it was decided.
	Time time.Time `json:"time"`
}

// MayHaveVerified reports whether the node ever passed, as far as is known: where that was lost, it counts as passed,
// because then less is deleted.
func (r Record) MayHaveVerified() bool { return r.VerifiedTime != nil || r.HistoryLost }

// Encode renders the record for AnnotationRecord.
func (r Record) Encode() string {
	b, err := json.Marshal(r)
	if err != nil {
		// Strings, numbers and times within year 9999: Marshal has nothing to refuse.
		panic(err)
	}
	return string(b)
}

// maxCount bounds the counts of a record that is believed. At an attempt a second it takes seventeen years to get there, and
// no sum of two overflows.
const maxCount = 1 << 29

// readRecord reads a node's record; a missing one, and one of another node of the same name, is the zero Record. fault
// says why it cannot be read; then only what guards the node from deletion is saved.
func readRecord(n *corev1.Node) (r Record, fault string) {
	raw, ok := n.Annotations[AnnotationRecord]
	if !ok {
		return Record{}, ""
	}
	err := json.Unmarshal([]byte(raw), &r)
	switch {
	case err != nil:
		fault = "is not a record: " + attempt.Text(err.Error())
	case r.NodeUID != string(n.UID):
		return Record{}, ""
	case !plausibleCount(r.Sequence) || !plausibleCount(r.Attempts) || !plausibleCount(r.Inconclusive) ||
		!plausibleCount(r.Superseded) || !plausibleCount(r.Shared) || r.DurationMs < 0:
		fault = fmt.Sprintf("has a count that is negative or over %d", maxCount)
	case !encodableTime(r.LastTime) || !encodableTime(r.VerifiedTime) || !encodableTime(r.NextAttemptTime) || !encodableTime(r.Since) ||
		r.Deletion != nil && !encodableTime(&r.Deletion.Time) || r.DeadlineCause != nil && !encodableTime(&r.DeadlineCause.Time):
		fault = "has a time before 1970 or after 9999"
	default:
		return r, ""
	}
	return Record{HistoryLost: true}, "annotation " + AnnotationRecord + " " + fault + "; the node starts afresh, and counts as one that was verified before"
}

func plausibleCount(n int32) bool { return n >= 0 && n <= maxCount }

// encodableTime reports whether t can be written again, in UTC as conditions are: JSON has no years beyond 9999 (RFC 3339).
func encodableTime(t *time.Time) bool {
	return t == nil || t.UTC().Year() >= 1970 && t.UTC().Year() <= 9999
}
