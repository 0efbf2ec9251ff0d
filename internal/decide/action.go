package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// The entries of remediation.actions are tried in order. An action is recorded before it is carried out, as a deletion
// is (marks.Remediation). Then the node is left alone for waitSeconds, or until it reboots. After that it is verified
// again with a full retry budget. The next entry is tried only if that budget is exhausted, too. A pass takes back what
// the actions did.

// lastAction is the last action that was decided on for the node, or nil if there was none since the node passed. It
// ignores an object that the API server does not let the controller delete: that one is from before the pass.
func lastAction(r marks.Record) *marks.Remediation {
	if len(r.Remediations) == 0 {
		return nil
	}
	last := &r.Remediations[len(r.Remediations)-1]
	if last.State == marks.RemediationReverting && last.Condition == "" {
		return nil
	}
	return last
}

// nextAction is the entry of remediation.actions to try next, and its index. ok is false if all were tried. An action
// that may not have been carried out is tried again.
func nextAction(in Input) (a config.Action, index int32, ok bool) {
	if last := lastAction(in.Node.Record); last != nil {
		index = last.Action
		if last.State != marks.RemediationIntended {
			index++
		}
	}
	actions := in.Config.NodeManagement.Remediation.Actions
	if int(index) >= len(actions) {
		return config.Action{}, index, false
	}
	return actions[index], index, true
}

// NextAction is the entry of remediation.actions to try next on the node, or the zero Action if all were tried.
func NextAction(in Input) config.Action {
	a, _, _ := nextAction(in)
	return a
}

// ActionID identifies the next action among all actions on the node: by its index in remediation.actions, and by when
// the node last passed before it (see ledger.Entry). It stays the same while the action is tried again.
func ActionID(in Input) (index int32, round string) {
	_, index, _ = nextAction(in)
	switch r := in.Node.Record; {
	case r.VerifiedTime != nil:
		round = r.VerifiedTime.UTC().Format(time.RFC3339)
	case r.HistoryLost:
		round = ledger.RoundUnknown
	}
	return index, round
}

// enteredBefore reports whether an entry of the ledger is about the action to try next.
func (d *decision) enteredBefore(e ledger.Entry) bool {
	index, round := ActionID(d.in)
	next := ledger.Entry{UID: d.in.Node.UID, Kind: d.targetKind(), Index: &index, Round: round}
	return next.Same(e)
}

// actionWait is how long the node must still be left alone after an action, or 0 if it need not be.
func (d *decision) actionWait() time.Duration {
	if !verifiesAction(d.in.Node.Record) {
		return 0
	}
	last := lastAction(d.in.Node.Record)
	if otherBoot(last.BootID, d.in.Node.BootID) || last.Time.After(d.now.Add(clockTolerance)) {
		return 0
	}
	return max(0, waitEnd(d.in, *last).Sub(d.now))
}

// waitEnd is when the checks run again after an action, unless the node reboots before.
func waitEnd(in Input, a marks.Remediation) time.Time {
	seconds := int32(config.DefaultActionWaitSeconds)
	if actions := in.Config.NodeManagement.Remediation.Actions; int(a.Action) < len(actions) {
		seconds = *actions[a.Action].WaitSeconds
	}
	return a.Time.Add(time.Duration(seconds) * time.Second)
}

// ActionWaitEnd is when the wait after the last action on the node ends or ended. The value ok is true only if the
// action was carried out, and since then the node did not pass and nothing else was decided about it.
func ActionWaitEnd(in Input, now time.Time) (end time.Time, ok bool) {
	last := lastAction(in.Node.Record)
	if last == nil || last.State != marks.RemediationStarted || in.Node.Record.Deletion != nil ||
		last.Time.After(now.Add(clockTolerance)) {
		return time.Time{}, false
	}
	return waitEnd(in, *last), true
}

// verifiesAction reports whether no attempt has ended since the last action was carried out. The next attempt then
// begins a round.
func verifiesAction(r marks.Record) bool {
	last := lastAction(r)
	return last != nil && last.State == marks.RemediationStarted && r.Sequence == last.Sequence
}

// awaitAction makes the node wait for the effect of an action, and reports whether it does.
func (d *decision) awaitAction() bool {
	left := d.actionWait()
	if left <= 0 {
		return false
	}
	r := d.in.Node.Record
	last := lastAction(r)
	d.requeueAfter(left)
	d.Condition = &marks.Condition{Status: "False", Reason: marks.ReasonRetriesExhausted, Since: lastTime(r),
		Message: attempt.Text(fmt.Sprintf("%s; %s at %s; the checks run again at %s, or after a reboot", LastFailure(r),
			describeAction(*last), last.Time.UTC().Format(time.RFC3339), d.now.Add(left).UTC().Format(time.RFC3339)))}
	return true
}

// describeAction says what an action did.
func describeAction(a marks.Remediation) string {
	if a.Condition != "" {
		return fmt.Sprintf("condition %s=%s was set", a.Condition, a.Status)
	}
	return fmt.Sprintf("%s %s was created", a.Kind, a.FullName())
}

// startAction writes the next action, which is not a deletion, into the record, to be carried out at once.
func (d *decision) startAction() {
	action, index, _ := nextAction(d.in)
	r := d.in.Node.Record
	r.Remediations = slices.Clone(r.Remediations)
	name := workerpod.RemediationName(workerpod.Target{Name: d.in.Node.Name, UID: d.in.Node.UID}, r.Sequence, index)
	if last := lastAction(r); last != nil && last.State == marks.RemediationIntended {
		name = cmp.Or(last.Name, name) // it may have been created
		r.Remediations = r.Remediations[:len(r.Remediations)-1]
	}
	a := marks.Remediation{Action: index, State: marks.RemediationIntended, Time: timestamp(d.now),
		BootID: d.in.Node.BootID, Sequence: r.Sequence}
	if c := action.Condition; c != nil {
		a.Condition, a.Status, a.Reason = c.Type, c.Status, c.Reason
	} else {
		o := action.Object
		a.APIVersion, a.Kind, a.Namespace = o.Identity()
		a.Name, a.Keep = name, !*o.DeleteOnRecovery
	}
	r.Remediations = append(r.Remediations, a)
	r.NextAttemptTime, r.Held, r.HeldMessage, r.DeadlineCause = nil, "", "", nil
	d.Step, d.Change, d.Action, d.Cause = StepAct, marks.Change{Record: r}, &a, d.deletionCause()
	d.closeGate()
	d.Target.Kind = a.TargetKind()
	d.Events = []Event{{Reason: EventRemediationStarted, Key: fmt.Sprintf("%d/%s", index, eventKey(r)),
		Message: fmt.Sprintf("Remediation: %s: %s", describeAction(a), d.Cause)}}
}

// Started is the record of a node once StepAct was carried out.
func (p Plan) Started() marks.Record {
	r := p.Change.Record
	r.Remediations = slices.Clone(r.Remediations)
	r.Remediations[len(r.Remediations)-1].State = marks.RemediationStarted
	return r
}

// cancelIntended takes back a condition that an action may have set, because a guard holds the action now. An object
// needs no such step: when the action is tried again, the object has the same name.
func cancelIntended(r marks.Record) []marks.Remediation {
	if last := lastAction(r); last != nil && last.State == marks.RemediationIntended && last.Condition != "" {
		return withState(r.Remediations, marks.RemediationReverting)
	}
	return r.Remediations
}

// withState returns the actions, with the last one in another state.
func withState(all []marks.Remediation, state string) []marks.Remediation {
	all = slices.Clone(all)
	all[len(all)-1].State = state
	return all
}

// afterPass returns the actions that must still be taken back on a node that passed.
func afterPass(all []marks.Remediation) (left []marks.Remediation) {
	for _, a := range all {
		if a.State == marks.RemediationEnded || a.Condition == "" && a.Keep {
			continue
		}
		a.State = marks.RemediationReverting
		left = append(left, a)
	}
	return left
}

// revert takes back the first action that is due for it, and reports whether there is one. The reason decides what
// happens to the record. If the node passed, the action is removed. If a guard holds the node or deletion was switched
// off, the action may be tried again. Otherwise the next action follows. An object that the API server has just refused
// to delete blocks nothing until the next try.
func (d *decision) revert() bool {
	r := d.in.Node.Record
	i := slices.IndexFunc(r.Remediations, func(a marks.Remediation) bool {
		return a.State == marks.RemediationReverting && !d.awaitRevert(a)
	})
	if i < 0 || d.in.LocalWorker != nil {
		return false
	}
	if !d.ev.Fresh {
		d.Need = NeedFresh
		return true
	}
	a := r.Remediations[i]
	r.Remediations = slices.Clone(r.Remediations)
	if a.Condition == "" || r.LastOutcome == attempt.Passed || r.Held != "" ||
		!d.in.Config.NodeManagement.DeleteFailedNodes {
		r.Remediations = slices.Delete(r.Remediations, i, i+1)
	} else {
		r.Remediations[i].State = marks.RemediationEnded
	}
	d.Step, d.Action, d.Change = StepRevert, &a, marks.Change{Record: r}
	return true
}

// awaitRevert reports whether the API server refused to delete the object of an action, and the next try is not due
// yet.
func (d *decision) awaitRevert(a marks.Remediation) bool {
	left := d.in.RevertRetries[a.FullName()].Sub(d.now)
	d.requeueAfter(left)
	return left > 0
}

// RevertRefused is the event about an object of an action that stays although the node passed, or deletion is off: the
// API server refuses to delete it.
func RevertRefused(a marks.Remediation, why string) Event {
	return Event{Reason: EventRevertRefused, Key: a.FullName(), Message: fmt.Sprintf(
		"%s %s of a remediation stays, and is tried again: %s. Let the controller get and delete it, or delete it yourself",
		a.Kind, a.FullName(), why)}
}

// SupervisesCondition reports whether the node has a condition that an action set, so the guards must still allow it.
func SupervisesCondition(in Input) bool {
	last := lastAction(in.Node.Record)
	return last != nil && last.State == marks.RemediationStarted && last.Condition != ""
}

// Supervise decides whether to undo the condition that an action set. It is undone if a guard holds now and the node's
// owner is not being deleted yet. Otherwise a repairer would act although a guard forbids it.
func Supervise(in Input, ev Evidence, now time.Time) Plan {
	d := newDecision(in, ev, now)
	if !SupervisesCondition(in) || in.Node.Deleting {
		return d.Plan
	}
	r := in.Node.Record
	if in.Config.NodeManagement.DeleteFailedNodes {
		if ev.Owner == nil {
			return Plan{Need: NeedOwner}
		}
		if ev.Owner.Terminating {
			return d.Plan
		}
		guard, message := d.heldBy(GuardAction, GuardActions)
		if guard == "" {
			return d.Plan // no guard holds, or evidence is missing
		}
		d.recordHeld(guard, message)
		if d.Step == StepRecord {
			r = d.Change.Record
		}
	}
	r.Remediations = withState(r.Remediations, marks.RemediationReverting)
	d.Step, d.Change.Record = StepRecord, r
	return d.Plan
}

// heldBy evaluates the guards, except those in without, and returns the first one that holds and its message. Both are
// empty if no guard holds, or if the plan needs evidence first.
func (d *decision) heldBy(without ...string) (guard, message string) {
	for _, g := range guards {
		if g.holds == nil || slices.Contains(without, g.Name) {
			continue
		}
		for _, need := range g.Needs {
			if !d.ev.has(need) {
				d.Need = need
				return "", ""
			}
		}
		if message := g.holds(d); message != "" {
			return g.Name, message
		}
	}
	return "", ""
}

// actionsExhausted holds a node on which every action was tried.
func (d *decision) actionsExhausted() string {
	if _, n, ok := nextAction(d.in); !ok {
		return fmt.Sprintf("all %d entries of remediation.actions were tried", n)
	}
	return ""
}

// actionRefused holds an action that cannot be carried out: another program wrote the condition, or the API server
// refuses the object. The next entry is not tried in its place.
func (d *decision) actionRefused() string {
	if c := NextAction(d.in).Condition; c != nil && !ownCondition(d.in.Node.Record, *c) {
		for _, have := range d.in.Node.Conditions {
			if have.Type == c.Type {
				return fmt.Sprintf("another program already set the condition %s on the node", c.Type)
			}
		}
	}
	return *d.ev.ActionProblem
}

// ownCondition reports whether an action of the record may have set the condition.
func ownCondition(r marks.Record, c config.ConditionAction) bool {
	return slices.ContainsFunc(r.Remediations, func(a marks.Remediation) bool {
		return a.Condition == c.Type && a.State != marks.RemediationEnded
	})
}
