package decide

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// State is where a node stands in its verification. It is a function of what was read of the node and of the time, and
// is stored nowhere.
type State string

// The states, in the order in which StateOf tries them. A node that must be verified is in one of those from
// StateRemediating on.
const (
	// StateNotOurs: the node is excluded or being deleted, or nothing asks for its verification and it never passed one.
	StateNotOurs State = "not-ours"
	// StateVerified: its checks passed in this boot, or it was adopted, and nothing asks for another verification.
	StateVerified State = "verified"
	// StateRemediating: its remediation is intended or begun, or it carries a condition that asks a repairer for one.
	StateRemediating State = "remediating"
	// StateVerifying: an attempt has begun, and its result is not in the record.
	StateVerifying State = "verifying"
	// StateWaiting: the next attempt is due, and something must hold before it starts.
	StateWaiting State = "waiting"
	// StateHeld: a guard keeps its remediation back, and attempts go on.
	StateHeld State = "held"
	// StateExhausted: no retry is left. It is confirmed, remediated, or tried every exhaustedRetrySeconds.
	StateExhausted State = "exhausted"
	// StateBackingOff: its last attempt did not pass, or ran other checks, and the next one has a time.
	StateBackingOff State = "backing-off"
)

// States lists them.
func States() []State {
	return []State{StateNotOurs, StateVerified, StateRemediating, StateVerifying, StateWaiting, StateHeld, StateExhausted,
		StateBackingOff}
}

// StateOf is the node's state.
func StateOf(in Input, now time.Time) State {
	n, r := in.Node, in.Node.Record
	if n.Deleting || !Eligible(in) {
		return StateNotOurs
	}
	if !NeedsVerification(in, now) {
		if n.Labelled || r.LastOutcome == attempt.Passed {
			return StateVerified
		}
		return StateNotOurs
	}
	spent := budgetOf(in)
	switch {
	case r.Deletion != nil && in.Config.NodeManagement.DeleteFailedNodes:
		return StateRemediating
	case underWay(in):
		return StateVerifying
	case in.Profile.Unchecked(), spent.first && !ranOtherChecks(r, in.Checks):
		return StateWaiting
	case spent.first:
	case r.Held != "":
		return StateHeld
	case spentAll(in) && len(n.RemediationConditions) > 0:
		return StateRemediating
	case spentAll(in):
		return StateExhausted
	}
	if _, due := nextAttempt(in, now); !due {
		return StateBackingOff
	}
	return StateWaiting
}

// underWay reports whether the next attempt has begun. Its pod may be gone without a result.
func underWay(in Input) bool {
	next := in.NextAttempt().Number
	return CurrentPod(in.Node.Record, in.Pods) != nil || in.Vanished.Number == next ||
		localUnderWay(in)
}

// Quiet reports whether there is nothing to do for the node, apart from its pods and rules, until it changes or until
// look has passed. If time alone changes nothing, look is 0.
func Quiet(in Input, now time.Time) (look time.Duration, ok bool) {
	n := in.Node
	switch state := StateOf(in, now); {
	case state == StateNotOurs && (n.Deleting || !in.Selected):
		return 0, true
	case state != StateNotOurs && state != StateVerified, unsupported(in), len(n.RemediationConditions) > 0,
		OpenedUnverified(in), n.Record.Flapping != nil, !in.BootReturned.IsZero():
		return 0, false
	}
	if shown := verifiedCondition(in); shown == nil && n.Condition != nil || shown != nil && !shown.Same(n.Condition) {
		return 0, false
	}
	return nextReason(in, now), true
}

// budget is how many retries the present run has spent. A run begins after a pass, after a reboot (whatever
// reverify.onReboot is), and when the node gets other checks.
type budget struct {
	attempts, inconclusive int32
	shared                 int32 // see marks.Record.Shared
	first                  bool  // no attempt of this run is recorded yet
}

func budgetOf(in Input) budget {
	r := in.Node.Record
	booted := r.Flapping == nil && otherBoot(r.BootID, in.Node.BootID)
	if r.LastOutcome == "" || r.LastOutcome == attempt.Passed || booted || r.Checks != in.Checks {
		return budget{first: true}
	}
	return budget{attempts: r.Attempts, inconclusive: r.Inconclusive, shared: r.Shared}
}

// spentAll reports whether the run has no retries left.
func spentAll(in Input) bool { return exhausts(in, budgetOf(in).attempts) }
