package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// Status is a node's place in its verification, for people and metrics.
type Status string

// The statuses.
const (
	StatusPending   Status = "pending"   // must be verified, no worker yet
	StatusVerifying Status = "verifying" // an attempt is under way
	StatusVerified  Status = "verified"
	StatusFailed    Status = "failed" // the last attempt failed, or the deadline is past
	StatusHeld      Status = "held"   // a remediation guard holds its deletion
)

// Statuses lists them.
func Statuses() []Status {
	return []Status{StatusPending, StatusVerifying, StatusVerified, StatusFailed, StatusHeld}
}

// Settled reports whether StatusOf is StatusVerified now and remains so until the Node changes or a worker pod of it
// comes. It does not depend on the time, so it must be evaluated only when the node changes.
func Settled(in Input) bool {
	timeless := in.Config.NodeManagement.Reverify.Interval.Duration <= 0 && len(in.Profile.SuspectConditions) == 0 &&
		in.Node.Requested == in.Node.Record.Request
	return timeless && StatusOf(in, time.Time{}) == StatusVerified
}

// Done reports whether a new leader has nothing to do for an existing node, apart from its pods. The node is settled,
// its condition shows that, and no condition asks for its remediation.
func Done(in Input) bool {
	c := in.Node.Condition
	shown := c != nil && c.Status == corev1.ConditionTrue && showsPass(in)
	return Settled(in) && shown && len(in.Node.RemediationConditions) == 0
}

// StatusOf is a node's status; empty for a node that kube-node-ready does not manage.
func StatusOf(in Input, now time.Time) Status {
	switch {
	case !Eligible(in), in.Node.Deleting:
		return ""
	case !NeedsVerification(in, now):
		if in.Node.Labelled || in.Node.Record.LastOutcome == attempt.Passed {
			return StatusVerified
		}
		return ""
	case in.Node.Record.Held != "":
		return StatusHeld
	case ReportsDeadlineExceeded(in) && !SharesFailure(in):
		return StatusFailed
	case CurrentPod(in.Node.Record, in.Pods) != nil:
		return StatusVerifying
	case budgetOf(in).attempts > 0:
		return StatusFailed
	}
	return StatusPending
}
