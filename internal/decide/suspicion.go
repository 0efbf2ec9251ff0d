package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// accusedEvery is the shortest time between two requested verifications of one node. It is also the shortest time from
// a pass to the next verification for a condition of a type that the pass cleared. Otherwise anybody who may annotate
// nodes, or a detector that flaps, could run workers on a node without a pause.
const accusedEvery = time.Minute

// maxRequest is the longest ID of a request, in bytes: it is kept in the record.
const maxRequest = 253

// newSuspicion returns the reason to verify the node again that its record does not show yet, and the entry of
// reverify.onConditions that gives the reason. If there is no reason yet, wait is the time until there is one, or 0 for
// never.
func newSuspicion(in Input, now time.Time) (s *marks.Suspicion, by config.SuspectCondition, wait time.Duration) {
	if in.LocalWorker != nil {
		return nil, by, 0
	}
	s, by, wait = suspectCondition(in, now)
	request, later := newRequest(in, now)
	if request == "" {
		if later > 0 && (wait == 0 || later < wait) {
			wait = later
		}
		return s, by, wait
	}
	if s == nil {
		s = in.Node.Record.Suspicion
	}
	if s == nil {
		s = &marks.Suspicion{Time: timestamp(now)}
	}
	with := *s
	with.Request = request
	return &with, by, 0
}

// suspectCondition returns the first condition that makes a verified node suspect.
func suspectCondition(in Input, now time.Time) (*marks.Suspicion, config.SuspectCondition, time.Duration) {
	n, r := in.Node, in.Node.Record
	passed := r.LastOutcome == attempt.Passed || r.LastOutcome == "" && r.MayHaveVerified()
	var wait time.Duration
	if !n.Labelled || n.Gated || !passed || r.Suspicion != nil {
		return nil, config.SuspectCondition{}, 0
	}
	for _, by := range in.Profile.SuspectConditions {
		c := SuspectConditionOf(n, by)
		if c == nil {
			continue
		}
		since, ok := in.SuspectSince[by.Type]
		if !ok {
			since = now
		}
		at := since.Add(time.Duration(by.ForSeconds) * time.Second)
		if cleared, until := cooldown(in, c.Type, now); now.Before(until) {
			if !cleared.Same(*c) {
				until = cleared.Time.Add(accusedEvery)
			}
			if until.After(at) {
				at = until
			}
		}
		if left := at.Sub(now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		begins := marks.SuspicionOf(*c)
		begins.Time = timestamp(now)
		return &begins, by, 0
	}
	return nil, config.SuspectCondition{}, wait
}

// SuspectConditionOf is the node's condition of the type, if it has the status.
func SuspectConditionOf(n marks.Facts, by config.SuspectCondition) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == by.Type && c.Status == by.Status
	})
	if i < 0 {
		return nil
	}
	return &n.Conditions[i]
}

// cooldown is the last suspicion of the type that a pass cleared, and until when it makes conditions of the type count
// less; zero if no pass cleared one. A time in the future is forged or from a fast clock, and does not count.
func cooldown(in Input, of corev1.NodeConditionType, now time.Time) (cleared marks.Suspicion, until time.Time) {
	i := slices.IndexFunc(in.Node.Record.Cleared, func(s marks.Suspicion) bool { return s.Type == of })
	if i < 0 || in.Node.Record.Cleared[i].Time.After(now.Add(clockTolerance)) {
		return marks.Suspicion{}, time.Time{}
	}
	cleared = in.Node.Record.Cleared[i]
	return cleared, cleared.Time.Add(time.Duration(*in.Config.NodeManagement.Reverify.CooldownSeconds) * time.Second)
}

// newRequest is the request that the record does not show yet; empty for none. later is when one may be answered. A
// node's adoption comes first. Otherwise the request would begin the record of a node that never passed.
func newRequest(in Input, now time.Time) (id string, later time.Duration) {
	r := in.Node.Record
	switch id = in.Node.Requested; {
	case id == "" || id == r.Request || len(id) > maxRequest:
		return "", 0
	case PendingRequest(r) != "", !in.Node.Gated && !in.Node.HasRecord && !in.Node.Labelled, Adoptable(in):
		return "", 0
	case r.RequestTime == nil || r.RequestTime.After(now.Add(clockTolerance)):
		return id, 0
	}
	if left := r.RequestTime.Add(accusedEvery).Sub(now); left > 0 {
		return "", left
	}
	return id, 0
}

// PendingRequest is the ID of the request that the record shows without its answer; empty for none.
func PendingRequest(r marks.Record) string {
	if r.Suspicion == nil || r.Suspicion.Request == r.Request {
		return ""
	}
	return r.Suspicion.Request
}

// requestSkipsBackoff reports whether the pending request starts an attempt before its time. An inconclusive attempt
// after the request has the usual backoff, because it may leave the request pending. For example, the API server may
// refuse each of its pods. A failure without an answer began before the request. RequestTime may lie in the future if
// the clocks of two leaders differ, and would then start one attempt after another.
func requestSkipsBackoff(r marks.Record, now time.Time) bool {
	switch {
	case PendingRequest(r) == "":
		return false
	case r.LastOutcome != attempt.Inconclusive:
		return true
	case r.RequestTime == nil || r.RequestTime.After(now):
		return false
	}
	return r.LastTime == nil || r.LastTime.Before(*r.RequestTime)
}

// recordSuspicion records why the node is verified again. The same write closes the node's gate if the configuration
// asks for it and few enough nodes are unhealthy. done is whether there is something to
// write, or to load first. Else the plan says when there may be.
func recordSuspicion(in Input, ev Evidence, now time.Time) (p Plan, done bool) {
	s, by, wait := newSuspicion(in, now)
	if s == nil {
		p.requeueAfter(wait)
		return p, false
	}
	_, cooling := cooldown(in, by.Type, now)
	closes := by.Taint && !in.Closed() && !protected(in) && !now.Before(cooling)
	if closes {
		switch { // maxUnhealthy limits how many gates are closed; with deletion off there is no ledger
		case in.Config.NodeManagement.DeleteFailedNodes && ev.Ledger == nil:
			p.Need = NeedLedger
			return p, true
		case ev.Counts == nil:
			p.Need = NeedCounts
			return p, true
		}
		closes = unhealthy(in, ev, now) == "" && unhealthyZone(in, ev, now) == ""
	}
	if closes && !ev.Fresh {
		p.Need = NeedFresh // the cache may not show what was closed a moment ago
		return p, true
	}
	r := in.Node.Record
	if r.Suspicion == nil {
		p.Suspect = s.Type
	}
	r.NodeUID, r.Suspicion = in.Node.UID, s
	if PendingRequest(r) != "" {
		r.RequestTime = ptr.To(timestamp(now))
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	if closes {
		closeGate(&p.Change, in)
	}
	return p, true
}

// settleSuspicion is the record r of an attempt, with what its result means for the suspicion and for the request, and
// the answer to that request. answers is the request that the attempt was made for. A writer whose cache is behind may
// have recorded another request without knowing of this attempt. The next attempt answers that request or, after a
// pass, it is read from the node again.
func settleSuspicion(in Input, r marks.Record, answers string, outcome attempt.Outcome, now time.Time) (_ marks.Record,
	answer attempt.Outcome) {
	if answers != "" && answers == PendingRequest(r) && !recordsSuperseded(r) {
		r.Request, answer = r.Suspicion.Request, outcome
	}
	if outcome != attempt.Passed {
		return r, answer
	}
	conditions := in.Profile.SuspectConditions
	kept := slices.DeleteFunc(slices.Clone(r.Cleared), func(s marks.Suspicion) bool {
		return !slices.ContainsFunc(conditions, func(c config.SuspectCondition) bool { return c.Type == s.Type })
	})
	cleared := func(s marks.Suspicion) {
		s.Request, s.Time = "", timestamp(now)
		kept = append(slices.DeleteFunc(kept, func(old marks.Suspicion) bool { return old.Type == s.Type }), s)
	}
	if s := r.Suspicion; s != nil && s.Type != "" {
		cleared(*s)
	}
	began := now
	if pod := CurrentPod(in.Node.Record, in.Pods); pod != nil {
		began = pod.Seen.First
	}
	for _, by := range conditions {
		since, ok := in.SuspectSince[by.Type]
		// The worker may have begun before a later transition.
		if c := SuspectConditionOf(in.Node, by); c != nil && ok && !since.After(began) {
			cleared(marks.SuspicionOf(*c))
		}
	}
	r.Suspicion, r.Cleared = nil, kept[max(0, len(kept)-marks.MaxCleared):] // more types may be configured
	return r, answer
}

// SuspicionResult is the result of a suspicion from a condition, for metrics.
type SuspicionResult string

// The results. SuspicionAccused is a suspicion that began, SuspicionConfirmed one under which an attempt failed that
// counts against the node.
const (
	SuspicionAccused   SuspicionResult = "accused"
	SuspicionCleared   SuspicionResult = "cleared"
	SuspicionConfirmed SuspicionResult = "confirmed"
)

// SuspicionResults lists them.
func SuspicionResults() []SuspicionResult {
	return []SuspicionResult{SuspicionAccused, SuspicionCleared, SuspicionConfirmed}
}

// suspicionResult is what an attempt with the outcome means for the suspicion in the record before it. Only the first
// failure confirms the suspicion.
func suspicionResult(spent budget, before marks.Record, outcome attempt.Outcome) (corev1.NodeConditionType,
	SuspicionResult) {
	switch s := before.Suspicion; {
	case s == nil || s.Type == "":
	case outcome == attempt.Passed:
		return s.Type, SuspicionCleared
	case outcome == attempt.Failed && spent.attempts == 0:
		return s.Type, SuspicionConfirmed
	}
	return "", ""
}

// suspicionClearedEvents reports that the checks passed on a node that a condition made suspect. There is no event for
// any other node.
func suspicionClearedEvents(in Input, r marks.Record) []Event {
	s := in.Node.Record.Suspicion
	if s == nil || s.Type == "" {
		return nil
	}
	cooldown := time.Duration(*in.Config.NodeManagement.Reverify.CooldownSeconds) * time.Second
	return []Event{{Reason: EventSuspicionCleared, Key: eventKey(r), Message: fmt.Sprintf(
		"%s, although condition %s is %s. Within %s, the same transition starts no further verification, and no condition "+
			"of this type closes the gate",
		passedMessage(r), attempt.Text(string(s.Type)), attempt.Text(string(s.Status)), cooldown)}}
}

// timestamp is a time in the precision of records.
func timestamp(now time.Time) time.Time { return now.UTC().Truncate(time.Microsecond) }
