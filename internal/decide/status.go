package decide

import "time"

// Status is a node's place in its verification, for people and metrics.
type Status string

// The statuses.
const (
	StatusPending   Status = "pending"   // must be verified, no worker yet
	StatusVerifying Status = "verifying" // an attempt is under way
	StatusVerified  Status = "verified"
	StatusFailed    Status = "failed" // the last attempt failed, or the deadline is past
	StatusHeld      Status = "held"   // a guard holds its remediation
)

// Statuses lists them.
func Statuses() []Status {
	return []Status{StatusPending, StatusVerifying, StatusVerified, StatusFailed, StatusHeld}
}

// statusOf is the status of a node in each state, unless StatusOf knows more of it.
var statusOf = map[State]Status{StateVerified: StatusVerified, StateRemediating: StatusFailed,
	StateVerifying: StatusVerifying, StateWaiting: StatusPending, StateHeld: StatusHeld, StateExhausted: StatusFailed,
	StateBackingOff: StatusPending}

// StatusOf is a node's status; empty for a node that kube-node-ready does not manage. A node remains held while an
// attempt runs, and failed between the attempts after a failure.
func StatusOf(in Input, now time.Time) Status {
	status := statusOf[StateOf(in, now)]
	switch {
	case status == "", status == StatusVerified:
	case in.Node.Record.Held != "":
		return StatusHeld
	case ReportsDeadlineExceeded(in) && !SharesFailure(in), status == StatusPending && budgetOf(in).attempts > 0:
		return StatusFailed
	}
	return status
}

// Settled reports whether StatusOf is StatusVerified now and remains so until the Node changes or a worker pod of it
// comes. It does not depend on the time, so it must be evaluated only when the node changes.
func Settled(in Input) bool {
	timeless := in.Config.NodeManagement.Reverify.Interval.Duration <= 0 && len(in.Profile.SuspectConditions) == 0 &&
		in.Node.Requested == in.Node.Record.Request && len(in.Node.OtherEffect) == 0
	return timeless && StateOf(in, time.Time{}) == StateVerified
}
