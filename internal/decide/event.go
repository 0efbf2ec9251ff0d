package decide

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Event is a Kubernetes event on the Node, a rule or a NodePool.
type Event struct {
	Reason Reason
	// Message is for a person. It is cut to the size of an event.
	Message string
	// Key tells this event from another of the same reason on the same object: an attempt's number, a guard's name. The
	// same object, reason and key are written once, by this process or its successor, as long as the API server keeps
	// events.
	Key string
}

// Reason is an event's reason, and what follows from it. Each is declared once, by Warning or Normal.
type Reason struct {
	// Name is UpperCamelCase, at most 128 bytes: VerificationPassed.
	Name string
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Action is what was done or failed, UpperCamelCase, at most 128 bytes: Verify, Delete. The API server requires it.
	Action string
	// Rank decides what is dropped when too many events come at once.
	Rank Rank
}

// Rank orders events by importance. The highest is written first and dropped last.
type Rank int

// Ranks, the lowest first.
const (
	// RankProgress is for progress; an event about the outcome follows.
	RankProgress Rank = iota
	// RankOutcome is for results of verifications, which the node's condition also shows.
	RankOutcome
	// RankDecision is for actions and holds, because a deleted node has no condition.
	RankDecision
)

// Warning declares the reason of events of type Warning.
func Warning(name, action string, rank Rank) Reason {
	return Reason{Name: name, Type: corev1.EventTypeWarning, Action: action, Rank: rank}
}

// Normal declares the reason of events of type Normal.
func Normal(name, action string, rank Rank) Reason {
	return Reason{Name: name, Type: corev1.EventTypeNormal, Action: action, Rank: rank}
}

// Reasons of events.
var (
	EventPrerequisiteStuck = Warning("PrerequisiteStuck", "Verify", RankDecision)
	EventStarted           = Normal("VerificationStarted", "Verify", RankProgress)
	EventPassed            = Normal("VerificationPassed", "Verify", RankOutcome)
	EventFailed            = Warning("VerificationFailed", "Verify", RankOutcome)
	EventInconclusive      = Warning("VerificationInconclusive", "Verify", RankOutcome)
	EventExhausted         = Warning("RetriesExhausted", "Verify", RankDecision)
	EventHeld              = Warning("RemediationHeld", "Delete", RankDecision)
	// EventRemediationStarted is of an action that begins, a deletion or a condition.
	EventRemediationStarted = Warning("RemediationStarted", "Remediate", RankDecision)
	// EventConditionStays is of a node whose condition asks for remediation, although it should not.
	EventConditionStays = Warning("RemediationConditionStays", "Remediate", RankDecision)
	EventQuarantined    = Warning("Quarantined", "Quarantine", RankDecision)
	// EventSuspicionCleared is of a node that a condition made suspect and whose checks pass.
	EventSuspicionCleared = Normal("SuspicionCleared", "Verify", RankDecision)
	// EventBornVerified is of a node that was verified although it was created with the verified label.
	EventBornVerified   = Warning("BornVerified", "Verify", RankDecision)
	EventMarksTakenBack = Warning("MarksTakenBack", "Verify", RankDecision)
	// EventReleasedUnverified is of a node whose gate is opened past its deadline, as the user asked.
	EventReleasedUnverified = Warning("ReleasedUnverified", "Release", RankDecision)
	// EventBootIDFlapping is of a node under whose name two machines report.
	EventBootIDFlapping = Warning("BootIDFlapping", "Verify", RankDecision)
	// EventGateRemoved is of a node whose gating taint another writer removed before the node had a record.
	EventGateRemoved = Warning("GateRemoved", "Verify", RankDecision)
	// EventReleaseRefused is of a node whose gating taint the API server does not let the controller remove.
	EventReleaseRefused = Warning("ReleaseRefused", "Release", RankDecision)
	EventBackfilled     = Warning("Backfilled", "AddTaint", RankDecision)
	EventUnsupportedOS  = Warning("UnsupportedOS", "Verify", RankDecision)
	// EventReportMissing is about a worker that passed but left no report, so its checks are unknown.
	EventReportMissing = Warning("ReportMissing", "Verify", RankDecision)
	// EventRulesUnavailable is on a rule that cannot be served, and on each node that waits for it.
	EventRulesUnavailable = Warning("RulesUnavailable", "Serve", RankDecision)
	// EventStartupTaintUnknown is on a NodePool.
	EventStartupTaintUnknown = Warning("StartupTaintUnknown", "Gate", RankDecision)
)

// EventDeleted is the reason of the event after the deletion of an owner of the kind.
func EventDeleted(kind string) Reason { return Warning(kind+"Deleted", "Delete", RankDecision) }

func started(pod *workerpod.Observation) Event {
	message := fmt.Sprintf("Worker %s verifies the node, attempt %d", pod.Name, pod.Attempt.Number)
	return Event{Reason: EventStarted, Key: pod.UID, Message: message}
}

// eventKey is the key of an event about the attempt that r records. It includes the time, because attempts count from 1
// again after the record was removed.
func eventKey(r marks.Record) string {
	if r.LastTime == nil {
		return fmt.Sprint(r.Sequence)
	}
	return fmt.Sprintf("%d@%d", r.Sequence, r.LastTime.UnixMicro())
}

// outcomeEvents are the events for recording r. A repeated result that changes nothing has none. A node with exhausted
// retries or a missing image would otherwise cause events for as long as it exists. spent is what was spent before this
// attempt, exhausted whether the node has exhausted its retries now.
func outcomeEvents(in Input, spent budget, before, r marks.Record, result attempt.Result, exhausted bool) []Event {
	key, most := eventKey(r), in.Config.Reconciliation.MaxRetries
	repeats := !spent.first && before.LastOutcome == r.LastOutcome && before.LastCheck == r.LastCheck &&
		before.LastReason == r.LastReason
	switch {
	case r.LastOutcome == attempt.Passed:
		events := []Event{{Reason: EventPassed, Key: key, Message: passedMessage(r)}}
		if result.Report == nil && result.Reason != attempt.ReasonNoChecks {
			message := fmt.Sprintf("The worker exited with 0 but left no report, so its checks are unknown. Set worker.image "+
				"to the kube-node-ready image of the controller's version (attempt %d)", r.Sequence)
			events = append(events, Event{Reason: EventReportMissing, Key: key, Message: message})
		}
		return events
	case repeats && (r.LastOutcome == attempt.Inconclusive || exhausts(in, spent.attempts)):
		return nil
	case r.LastOutcome == attempt.Inconclusive:
		message := fmt.Sprintf("%s; this proves nothing about the node and spends no retry (attempt %d)",
			LastFailure(r), r.Sequence)
		return []Event{{Reason: EventInconclusive, Key: key, Message: message}}
	}
	if recordsDeadline(r) {
		message := "The retries count as spent: " + overdue(in, r)
		return []Event{{Reason: EventExhausted, Key: key, Message: message}}
	}
	message := fmt.Sprintf("%s (failure %d of %d, attempt %d)", LastFailure(r), r.Attempts, most, r.Sequence)
	events := []Event{{Reason: EventFailed, Key: key, Message: message}}
	if exhausted && !exhausts(in, spent.attempts) {
		message = fmt.Sprintf("All %d attempts failed, last: %s", r.Attempts, LastFailure(r))
		events = append(events, Event{Reason: EventExhausted, Key: key, Message: message})
	}
	return events
}
