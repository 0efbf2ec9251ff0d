package decide

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Deletion is one entry of the ledger.
type Deletion struct {
	Time                time.Time
	NodeUID, Pool, Zone string
}

// Ledger is what is known of the deletions of the last hour or window.
type Ledger struct {
	Deletions []Deletion
	// CompleteSince is since when every deletion is among them: a ledger that was just made, or emptied, knows of none before.
	CompleteSince time.Time
	// Paused is why a person stopped deletions; empty where nobody did.
	Paused string
	// Version identifies what was read: a deletion is entered on condition that it is still the same.
	Version string
	// Problem says why they are not known; then no limit can be checked.
	Problem string
}

// Workloads are ordinary pods on a node: those that do not belong to the node itself.
type Workloads struct {
	// Names are some of them, as namespace/name, sorted.
	Names []string
	// More: there are others.
	More bool
	// Stale: they were listed at an earlier look. That holds a deletion, and says nothing about whom a taint would evict
	// now.
	Stale bool
	// Problem says why they are not known.
	Problem string
}

// remediate decides about the deletion of a node whose retries are exhausted, or that is past its deadline by its own fault. sure
// is that what leads to it is fresh.
func (p *Plan) remediate(in Input, s budget, sure bool, ev Evidence, now time.Time) {
	r := in.Node.Record
	if r.Deletion != nil {
		if ev.Owner == nil {
			p.need(NeedOwner)
			return
		}
		switch {
		case ev.Owner.Terminating && r.Held == "":
			return // no attempts while it drains
		case ev.Owner.Terminating:
			p.recordIntent(in, ev.Owner.Target, now) // the lookup that failed has come to an answer
			p.Step = StepRecord
			return
		case ev.Owner.Problem != "" && r.Deletion.Kind != owner.Node:
			p.recordHeld(in, s, ev, owner.Guard, ev.Owner.Problem, now) // it may be on its way out
			return
		case !sure:
			// It was decided long ago, before a reboot, or under another configuration, and did not happen: what led to it is
			// confirmed first. A list that is some seconds old may not show yet that it did happen.
			if !ev.Fresh {
				p.need(NeedFresh)
				return
			}
			r.Deletion, r.Held, r.HeldMessage = nil, "", ""
			p.Step, p.Change = StepRecord, marks.Change{Record: r}
			return
		}
	}
	for _, g := range Guards() {
		if g.holds == nil {
			continue
		}
		for _, need := range g.Needs {
			if !ev.has(need) {
				p.need(need)
				return
			}
		}
		if message := g.holds(in, ev, now); message != "" {
			p.recordHeld(in, s, ev, g.Name, message, now)
			return
		}
	}
	if !ev.Fresh {
		p.need(NeedFresh) // with it all evidence is loaded anew, from the API server, and decided on again
		return
	}
	if ev.Owner.Terminating {
		p.recordIntent(in, ev.Owner.Target, now)
		p.Step = StepRecord
		return
	}
	target := ev.Owner.Target
	p.recordIntent(in, target, now)
	p.Step, p.Target, p.Cause = StepDelete, target, deletionCause(in, s)
	p.Events = []Event{{Reason: EventDeleted(target.Kind), Key: target.UID, Message: fmt.Sprintf("Deleted %s %s: %s", target.Kind, target.Name, p.Cause)}}
}

// resolveIntent settles an intended deletion before an attempt is recorded that was under way when it was decided:
// whatever came of that attempt, a node must not be released, nor tried again, while its deletion goes on. It reports
// whether it did.
func (p *Plan) resolveIntent(in Input, s budget, current *workerpod.Observation, ev Evidence, now time.Time) bool {
	r := in.Node.Record
	if r.Deletion == nil || !in.Config.NodeManagement.DeleteFailedNodes || current == nil && in.VanishedAttempt != r.Sequence+1 {
		return false
	}
	p.Condition = betweenAttempts(in, s, now)
	p.remediate(in, s, false, ev, now)
	return true
}

// deletionCause says what leads to the node's deletion.
func deletionCause(in Input, s budget) string {
	r := in.Node.Record
	if s.exhausted(in) && r.LastOutcome == attempt.Failed || r.DeadlineCause == nil {
		return fmt.Sprintf("%d attempts failed, last: %s", r.Attempts, LastFailure(r))
	}
	return fmt.Sprintf("not verified within %s: %s", time.Duration(in.Profile.VerificationDeadlineSeconds)*time.Second, attempt.Text(r.DeadlineCause.Message))
}

// targetKind is the kind of what a deletion of the node would delete, as far as is known.
func targetKind(in Input, ev Evidence) string {
	if ev.Owner != nil && ev.Owner.Name != "" {
		return ev.Owner.Kind
	}
	return in.Node.Owner.Kind
}

// recordIntent writes down what is to be deleted: the write is refused if the node changed since it was decided.
func (p *Plan) recordIntent(in Input, t owner.Target, now time.Time) {
	r := in.Node.Record
	r.Deletion = &marks.Deletion{Kind: t.Kind, Name: t.Name, UID: t.UID, Time: now.UTC().Truncate(time.Second)}
	r.NextAttemptTime, r.Held, r.HeldMessage = nil, "", ""
	p.Change = marks.Change{Record: r}
	p.closeGate(in)
}

// recordHeld writes the guard into the record, and is an event if it is another one than before. What the guard found is written
// once: it may be a count, or an error, that is another one at every look.
func (p *Plan) recordHeld(in Input, s budget, ev Evidence, guard, message string, now time.Time) {
	r := in.Node.Record
	// While its owner is not found nobody knows whether a deletion that was intended goes on.
	if r.Deletion != nil && (guard != owner.Guard || r.Deletion.Kind == owner.Node) {
		r.Deletion = nil
	}
	if r.Held == guard && (r.Deletion == nil) == (in.Node.Record.Deletion == nil) && (in.Node.Gated || protected(in)) {
		p.Condition = betweenAttempts(in, s, now)
		return
	}
	p.Target.Kind = targetKind(in, ev)
	if r.Held != guard {
		r.Held, r.HeldMessage = guard, attempt.Text(message)
		e := Event{Reason: EventHeld, Key: guard + "/" + eventKey(r), Message: fmt.Sprintf("Deletion is held by %s: %s", guard, r.HeldMessage)}
		if guard == GuardNeverVerifiedOnly {
			e.Reason = EventQuarantined
		}
		p.Events = []Event{e}
	}
	if at, ok := nextAttemptTime(in.Config, r, in.Node.UID, now); ok && !s.first && r.Deletion == nil {
		r.NextAttemptTime = ptr.To(at)
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	p.closeGate(in)
}
