package marks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// Record is the durable state of a node's verification, kept in AnnotationRecord. Together with the worker pods, it is
// the only state. Anybody who may write the Node can forge it, so decisions limit its times and counts.
type Record struct {
	// NodeUID is the node that the record is for. On a node with another UID the record is ignored.
	NodeUID string `json:"nodeUID"`
	// BootID is the boot that the last verdict is for.
	BootID string `json:"bootID,omitempty"`
	// Checks identifies the checks, with the rest of the pod template, that the last attempt ran, and that Attempts and
	// Inconclusive were counted under (decide.Input.Checks). Under other checks they count for nothing.
	Checks string `json:"checks,omitempty"`
	// Profile identifies the profile that the node's labels chose for the last attempt, and the profiles that it was
	// chosen from (config.Config.Choice).
	Profile string `json:"profile,omitempty"`
	// Label is the verified label, as key=value, that the node got with its last pass or adoption; empty for the default.
	// Where another one is configured now, the label was not removed but renamed.
	Label string `json:"label,omitempty"`
	// Sequence is the number of the last recorded attempt; the next is Sequence+1. It never decreases, so an attempt is
	// counted once.
	Sequence int32 `json:"sequence"`
	// Attempts is how many failures of the current run count towards maxRetries.
	Attempts int32 `json:"attempts"`
	// Inconclusive is how many attempts of the current run proved nothing about the node.
	Inconclusive int32 `json:"inconclusive"`
	// Shared is how many failures of the current run verified nodes shared, or could not be compared, since a control
	// probe last passed beside one. They are inconclusive. On a node that worked they are no sign of a fault of its own:
	// see decide.SharesFailure.
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
	// VerifiedTime is when the node last passed, whatever the results of later attempts; of a node that was adopted and
	// has not passed since, when it was adopted. If an earlier record could not be read, the node may have passed at any
	// time: then it is the node's creation.
	VerifiedTime *time.Time `json:"verifiedTime,omitempty"`
	// Since is when a node that passed before was first observed to need verification again, on that controller's clock.
	// It is written if a deadline is configured, and removed by the next pass. For a node that never passed its creation
	// counts.
	Since *time.Time `json:"since,omitempty"`
	// Released is when the gate was opened past the deadline although the node had not passed
	// (reconciliation.onDeadline: release). That is done once; the next pass removes it.
	Released *time.Time `json:"released,omitempty"`
	// Probed: the same checks passed on a verified node while this one's last attempt failed.
	Probed bool `json:"probed,omitempty"`
	// Deletion is the intended deletion, written before it begins. The node is not tried again meanwhile.
	Deletion *Deletion `json:"deletion,omitempty"`
	// Suspicion is why a verified node is verified again, where a condition or a request asks for it. A pass removes it.
	Suspicion *Suspicion `json:"suspicion,omitempty"`
	// Cleared are suspicions that a pass removed, at most one for each type of a condition and MaxCleared in all.
	Cleared []Suspicion `json:"cleared,omitempty"`
	// Request is the last value of AnnotationVerifyRequested that was answered, and RequestTime when an attempt for one
	// was last decided on.
	Request     string     `json:"request,omitempty"`
	RequestTime *time.Time `json:"requestTime,omitempty"`
	// TakenBack are the last passes that another writer took back; nil for none.
	TakenBack *TakenBack `json:"takenBack,omitempty"`
	// Flapping: two machines report under the node's name; nil for a node with one.
	Flapping *Flapping `json:"flapping,omitempty"`
	// Held is the guard that holds the remediation, HeldMessage its first message.
	Held        string `json:"held,omitempty"`
	HeldMessage string `json:"heldMessage,omitempty"`
}

// Suspicion is one transition of a condition that makes a node suspect, or a request.
type Suspicion struct {
	// Type, Status and Transition (lastTransitionTime) are those of the condition; empty for a request. Transition is nil
	// if the condition has no such time.
	Type       corev1.NodeConditionType `json:"type,omitempty"`
	Status     corev1.ConditionStatus   `json:"status,omitempty"`
	Transition *time.Time               `json:"transition,omitempty"`
	// Request is the value of AnnotationVerifyRequested that is to be answered; empty for none.
	Request string `json:"request,omitempty"`
	// Time is when the suspicion began or, of one that was cleared, when the node passed: on the controller's clock.
	Time time.Time `json:"time"`
}

// SuspicionOf is the present transition of a condition. Its time is nil if the condition has none, or one that no
// record holds: whoever writes a condition may omit lastTransitionTime.
func SuspicionOf(c corev1.NodeCondition) Suspicion {
	s := Suspicion{Type: c.Type, Status: c.Status}
	if at := c.LastTransitionTime.UTC(); encodableTime(&at) {
		s.Transition = &at
	}
	return s
}

// Same reports whether it is about the same transition of the condition. Transitions without a time cannot be told
// apart.
func (s Suspicion) Same(c corev1.NodeCondition) bool {
	now := SuspicionOf(c)
	return s.Type == now.Type && s.Status == now.Status && (s.Transition == nil) == (now.Transition == nil) &&
		(s.Transition == nil || s.Transition.Equal(*now.Transition))
}

// Deletion is a deletion that was decided, and that may have begun.
type Deletion struct {
	// Kind is NodeClaim or Node, Name and UID are the object's.
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Time is when it was decided.
	Time time.Time `json:"time"`
}

// KindCondition is the kind of the action that sets a condition, in metrics and the ledger.
const KindCondition = "Condition"

// MayHaveVerified reports whether the node ever passed. It is also true if that is unknown, because then less is
// deleted.
func (r Record) MayHaveVerified() bool { return r.VerifiedTime != nil }

// Encode renders the record for AnnotationRecord.
func (r Record) Encode() string {
	b, err := json.Marshal(r)
	if err != nil {
		// Strings, numbers and times within year 9999: Marshal has nothing to refuse.
		panic(err)
	}
	return string(b)
}

// readRecord reads a node's record. If there is no record, or it belongs to another node of the same name, the result
// is the zero Record. If the record cannot be read, problem gives the reason, and the result keeps only what protects
// the node from deletion.
func readRecord(n *corev1.Node) (r Record, problem string) {
	raw, ok := n.Annotations[AnnotationRecord]
	if !ok {
		return Record{}, ""
	}
	if len(raw) > maxRecord {
		problem = fmt.Sprintf("is longer than %d bytes", maxRecord)
	} else if err := json.Unmarshal([]byte(raw), &r); err != nil {
		problem = "is not a record: " + attempt.Text(err.Error())
	} else if r.NodeUID != string(n.UID) {
		return Record{}, ""
	} else if problem = r.invalid(); problem == "" {
		return r, ""
	}
	at := n.CreationTimestamp.UTC()
	if !encodableTime(&at) { // the API server writes none such
		at = time.Unix(0, 0).UTC()
	}
	return Record{VerifiedTime: &at}, "annotation " + AnnotationRecord + " " + problem +
		"; the node gets a new record, and counts as verified before"
}

// Bounds of a readable record.
const (
	// maxCount limits the counts. At one attempt per second, a count reaches it after seventeen years. The sum of two
	// counts does not overflow.
	maxCount = 1 << 29
	// maxRecord and maxText are in bytes. A record with two messages of attempt.MaxMessage and a dozen of cleared
	// suspicions has 6 KiB; a name, a type or an ID has at most 316 bytes.
	maxRecord, maxText = 64 << 10, 1 << 10
	// MaxCleared limits Cleared; it is beyond the number of conditions that a node has.
	MaxCleared = 100
)

// invalid says which bound the record breaks; empty if none.
func (r Record) invalid() string {
	counts := []int32{r.Sequence, r.Attempts, r.Inconclusive, r.Shared}
	texts := []string{r.NodeUID, r.BootID, r.Checks, r.Profile, r.Label, string(r.LastOutcome), r.LastCheck, r.LastReason,
		r.LastMessage, r.Request, r.Held, r.HeldMessage}
	times := []*time.Time{r.LastTime, r.NextAttemptTime, r.VerifiedTime, r.Since, r.Released, r.RequestTime}
	suspicions := r.Cleared
	if r.Suspicion != nil {
		suspicions = append(slices.Clone(suspicions), *r.Suspicion)
	}
	for _, s := range suspicions {
		texts, times = append(texts, string(s.Type), string(s.Status), s.Request), append(times, &s.Time, s.Transition)
	}
	if d := r.Deletion; d != nil {
		texts, times = append(texts, d.Kind, d.Name, d.UID), append(times, &d.Time)
	}
	taken := 0
	if t := r.TakenBack; t != nil {
		taken, texts = len(t.Passes), append(texts, t.By)
		for i := range t.Passes {
			times = append(times, &t.Passes[i])
		}
	}
	flaps := bootIDs
	if f := r.Flapping; f != nil {
		flaps, texts, times = len(f.BootIDs), append(texts, f.BootIDs...), append(times, &f.Time)
	}
	switch {
	case slices.ContainsFunc(counts, func(n int32) bool { return n < 0 || n > maxCount }), r.DurationMs < 0,
		r.DurationMs > MaxDuration.Milliseconds():
		return fmt.Sprintf("has a count that is negative or above %d, or a duration of more than %s", maxCount, MaxDuration)
	case slices.ContainsFunc(times, func(t *time.Time) bool { return !encodableTime(t) }):
		return "has a time before 1970 or after 9999"
	case len(r.Cleared) > MaxCleared, slices.ContainsFunc(texts, func(s string) bool { return len(s) > maxText }):
		return fmt.Sprintf("has a text longer than %d bytes, or a list longer than %d", maxText, MaxCleared)
	case taken > MaxTakenBack:
		return fmt.Sprintf("has more than %d passes that were taken back", MaxTakenBack)
	case flaps != bootIDs:
		return fmt.Sprintf("has not %d boot IDs that alternate", bootIDs)
	}
	return ""
}

// MaxDuration limits DurationMs; it is more than a worker may run (worker.timeoutSeconds).
const MaxDuration = 366 * 24 * time.Hour

// CarriesRecord reports whether the node's annotation begins as Encode writes a record of this node. For tens of
// thousands of nodes that is much less work than to read the records.
func CarriesRecord(n *corev1.Node) bool {
	return strings.HasPrefix(n.Annotations[AnnotationRecord], `{"nodeUID":"`+string(n.UID)+`"`)
}

// RecordsLabel reports whether the node's record has this Label, without reading the record.
func RecordsLabel(n *corev1.Node, label string) bool {
	record := n.Annotations[AnnotationRecord]
	if label == "" {
		return !strings.Contains(record, `"label":`)
	}
	return strings.Contains(record, `"label":"`+label+`"`)
}

// encodableTime reports whether t can be written again in UTC, as in conditions. JSON has no years beyond 9999 (RFC
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
