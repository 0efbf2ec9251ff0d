// Package event emits Kubernetes events on Nodes without ever slowing a reconcile. Events are for people; what a controller
// decided is on the node itself. So they are queued, paced, and, where too many come at once, the least useful are dropped
// and counted.
package event

// Event is what is said of a node.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason is one of a closed list, UpperCamelCase, at most 128 bytes: VerificationPassed.
	Reason string
	// Action is what was done or failed, UpperCamelCase, at most 128 bytes: Verify, Delete. The API server requires it.
	Action string
	// Note is for a person. What does not fit an event is cut off.
	Note string
	// Key tells this event from another of the same reason on the same node: an attempt's number, a guard's name. The same
	// node, reason and key are written once, by this process or its successor, as long as the API server keeps events.
	Key string
	// Rank decides what is dropped when too many events come at once.
	Rank Rank
}

// Rank orders events by what is lost without them. The highest is written first and dropped last.
type Rank int

// Ranks, the lowest first.
const (
	// RankProgress is for what is under way; its outcome follows.
	RankProgress Rank = iota
	// RankOutcome is for what a verification came to; the node's condition says the same.
	RankOutcome
	// RankDecision is for deletions and holds: a node that is gone has no condition to read.
	RankDecision

	ranks = iota
)
