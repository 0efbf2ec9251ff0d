package decide

import (
	"fmt"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Event is a Kubernetes event on the Node. Whether it is a warning, and how useful it is under pressure, follows from its reason.
type Event struct {
	Reason, Message string
	// Key is what makes it another event than one of the same reason on the same node: the same key is written once.
	Key string
}

// Reasons of events.
const (
	EventStuck            = "PrerequisiteStuck"
	EventStarted          = "VerificationStarted"
	EventPassed           = "VerificationPassed"
	EventFailed           = "VerificationFailed"
	EventInconclusive     = "VerificationInconclusive"
	EventExhausted        = "RetriesExhausted"
	EventNodeClaimDeleted = "NodeClaimDeleted"
	EventNodeDeleted      = "NodeDeleted"
	EventHeld             = "RemediationHeld"
	EventQuarantined      = "Quarantined"
	EventBackfilled       = "Backfilled"
	// EventTaintUnknown is on a NodePool.
	EventTaintUnknown = "StartupTaintUnknown"
)

func started(pod *workerpod.Observation) Event {
	return Event{Reason: EventStarted, Key: pod.UID, Message: fmt.Sprintf("Worker %s verifies the node, attempt %d", pod.Name, pod.Attempt.Number)}
}

// key of an event about what r records: the record's time is part of it, for a record that was removed counts from 1 again.
func key(r marks.Record) string {
	if r.LastTime == nil {
		return fmt.Sprint(r.Sequence)
	}
	return fmt.Sprintf("%d@%d", r.Sequence, r.LastTime.UnixMicro())
}

// outcomeEvents are the events of recording r. What only repeats what was said before is no event: a node whose retries
// are exhausted, or whose image is missing, is tried for as long as it exists.
func outcomeEvents(in Input, s spent, before, r marks.Record) []Event {
	most := in.Config.Reconciliation.MaxRetries
	repeats := !s.first && before.LastOutcome == r.LastOutcome && before.LastCheck == r.LastCheck && before.LastReason == r.LastReason
	switch {
	case r.LastOutcome == attempt.Passed:
		return []Event{{Reason: EventPassed, Key: key(r), Message: passed(r)}}
	case repeats && (r.LastOutcome == attempt.Inconclusive || s.exhausted(in)):
		return nil
	case r.LastOutcome == attempt.Inconclusive:
		return []Event{{Reason: EventInconclusive, Key: key(r), Message: fmt.Sprintf("%s; this proves nothing about the node and spends no retry (attempt %d)", Why(r), r.Sequence)}}
	}
	events := []Event{{Reason: EventFailed, Key: key(r), Message: fmt.Sprintf("%s (failure %d of %d, attempt %d)", Why(r), r.Attempts, most, r.Sequence)}}
	if r.Attempts >= most && !s.exhausted(in) {
		events = append(events, Event{Reason: EventExhausted, Key: key(r), Message: fmt.Sprintf("All %d attempts failed, last: %s", r.Attempts, Why(r))})
	}
	return events
}
