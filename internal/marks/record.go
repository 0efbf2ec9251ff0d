package marks

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// Record is the durable state of a node's verification, kept in AnnotationRecord. Together with the worker pods it is
// all the state there is. Whoever may write the Node may forge it, so decisions bound its times and counts.
type Record struct {
	// NodeUID is the node that the record is for. On a node with another UID the record is ignored.
	NodeUID string `json:"nodeUID"`
	// BootID is the boot that the last verdict is for.
	BootID string `json:"bootID,omitempty"`
	// Sequence is the number of the last recorded attempt; the next is Sequence+1. It never decreases, so an attempt is
	// counted once.
	Sequence int32 `json:"sequence"`
	// Attempts is how many failures of the current run count towards maxRetries.
	Attempts int32 `json:"attempts"`
	// Inconclusive is how many attempts of the current run proved nothing about the node.
	Inconclusive int32 `json:"inconclusive"`
	// Superseded is how many attempts in a row, up to the last one, had a basis that no longer holds.
	Superseded int32 `json:"superseded,omitempty"`
	// Shared is how many failures of the current run verified nodes shared, or could not be compared, since a control
	// probe last passed beside one.
	Shared int32 `json:"shared,omitempty"`
	// LastOutcome, LastCheck, LastReason and LastMessage describe the last attempt; see attempt.Result.
	LastOutcome attempt.Outcome `json:"lastOutcome,omitempty"`
	LastCheck   string          `json:"lastCheck,omitempty"`
	LastReason  string          `json:"lastReason,omitempty"`
	LastMessage string          `json:"lastMessage,omitempty"`
	// LastTime is when the last attempt was recorded, on that controller's clock.
	LastTime *time.Time `json:"lastTime,omitempty"`
	// DurationMs is how long the last attempt's checks ran.
	DurationMs int64 `json:"durationMs,omitempty"`
	// NextAttemptTime is the earliest start of the next attempt, computed when the last one was recorded. It is for
	// readers only: decisions compute it from LastTime, the counts and the present configuration.
	NextAttemptTime *time.Time `json:"nextAttemptTime,omitempty"`
	// VerifiedTime is when the node last passed, whatever later attempts come to.
	VerifiedTime *time.Time `json:"verifiedTime,omitempty"`
	// Since is when a node that passed before was first observed to need verification again, on that controller's clock.
	// It is written if a deadline is configured, and removed by the next pass. For a node that never passed its creation
	// counts.
	Since *time.Time `json:"since,omitempty"`
	// Concluded: the node exhausted its retries before it ever passed, and was counted as such, once for its life.
	Concluded bool `json:"concluded,omitempty"`
	// DeadlineCause is what keeps a node past its deadline from passing. Any other result removes it.
	DeadlineCause *DeadlineCause `json:"overdue,omitempty"`
	// HistoryLost: an earlier record could not be read, or the node was adopted, so it may have passed before.
	HistoryLost bool `json:"historyLost,omitempty"`
	// Probed: the same checks passed on a verified node while this one's last attempt failed.
	Probed bool `json:"probed,omitempty"`
	// Unseen: a failure was recorded as inconclusive because no controller observed when it happened. That is done only
	// once until the next failure is counted.
	Unseen bool `json:"unseen,omitempty"`
	// Deletion is the intended deletion, written before it begins. The node is not tried again meanwhile.
	Deletion *Deletion `json:"deletion,omitempty"`
	// Held is the guard that holds the deletion, HeldMessage its first message.
	Held        string `json:"held,omitempty"`
	HeldMessage string `json:"heldMessage,omitempty"`
}

// DeadlineCause is what keeps a node past its deadline, found by comparison with a verified node.
type DeadlineCause struct {
	// Time is when it was found.
	Time time.Time `json:"time"`
	// BootID is the node's boot at that time. After a reboot the cause is void.
	BootID string `json:"bootID,omitempty"`
	// Fault is one of the Fault constants.
	Fault string `json:"fault"`
	// Message says what kept the node from passing or, unless the node is at fault, why it is not deleted for it.
	Message string `json:"message,omitempty"`
}

// The values of Overdue.Fault.
const (
	FaultNode    = "node"    // the node: a control probe passed after the deadline
	FaultShared  = "shared"  // verified nodes share the problem, or none could be compared
	FaultUnclear = "unclear" // verified nodes had the same problem until just now
)

// Deletion is a deletion that was decided, and that may have begun.
type Deletion struct {
	// Kind is NodeClaim or Node, Name and UID are the object's.
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Time is when it was decided.
	Time time.Time `json:"time"`
}

// MayHaveVerified reports whether the node ever passed. It also does if that is unknown, since then less is deleted.
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

// maxCount bounds the counts of a record that is believed. At an attempt a second it takes seventeen years to get
// there, and no sum of two overflows.
const maxCount = 1 << 29

// readRecord reads a node's record. A missing record, and one of another node of the same name, is the zero Record.
// problem says why a record cannot be read; then only what protects the node from deletion is kept.
func readRecord(n *corev1.Node) (r Record, problem string) {
	raw, ok := n.Annotations[AnnotationRecord]
	if !ok {
		return Record{}, ""
	}
	err := json.Unmarshal([]byte(raw), &r)
	switch {
	case err != nil:
		problem = "is not a record: " + attempt.Text(err.Error())
	case r.NodeUID != string(n.UID):
		return Record{}, ""
	case !plausibleCount(r.Sequence) || !plausibleCount(r.Attempts) || !plausibleCount(r.Inconclusive) ||
		!plausibleCount(r.Superseded) || !plausibleCount(r.Shared) || r.DurationMs < 0:
		problem = fmt.Sprintf("has a count that is negative or over %d", maxCount)
	case !encodableTime(r.LastTime) || !encodableTime(r.VerifiedTime) || !encodableTime(r.NextAttemptTime) ||
		!encodableTime(r.Since) || r.Deletion != nil && !encodableTime(&r.Deletion.Time) ||
		r.DeadlineCause != nil && !encodableTime(&r.DeadlineCause.Time):
		problem = "has a time before 1970 or after 9999"
	default:
		return r, ""
	}
	return Record{HistoryLost: true}, "annotation " + AnnotationRecord + " " + problem +
		"; the node starts afresh, and counts as one that was verified before"
}

func plausibleCount(n int32) bool { return n >= 0 && n <= maxCount }

// encodableTime reports whether t can be written again, in UTC as conditions are: JSON has no years beyond 9999 (RFC
// 3339).
func encodableTime(t *time.Time) bool {
	return t == nil || t.UTC().Year() >= 1970 && t.UTC().Year() <= 9999
}

// RecordCache holds decoded records by node UID, for callers that read all nodes repeatedly. Decoding a record takes
// longer than the rest of Observe.
type RecordCache map[types.UID]cachedRecord

// cachedRecord is a record, and the annotation that it was read from.
type cachedRecord struct {
	raw    string
	record *Record
}

// Observe is the function Observe with the cached record, if the annotation has not changed. It adds the record to
// next. The Record must not be modified.
func (r RecordCache) Observe(n *corev1.Node, v Vocabulary, next RecordCache) Facts {
	raw := n.Annotations[AnnotationRecord]
	if k, ok := r[n.UID]; ok && k.raw == raw {
		next[n.UID] = cachedRecord{raw, k.record} // not k: its string would keep an old version of the node in memory
		f := observe(n, v)
		f.Record = *k.record
		return f
	}
	f := Observe(n, v)
	if f.HasRecord && f.RecordProblem == "" {
		record := f.Record
		next[n.UID] = cachedRecord{raw, &record}
	}
	return f
}
