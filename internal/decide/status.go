package decide

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
)

// Status is a node's place in its verification, for people and metrics.
type Status string

// The statuses.
const (
	StatusPending   Status = "pending"   // must be verified, no worker yet
	StatusVerifying Status = "verifying" // a worker is on the node
	StatusVerified  Status = "verified"
	StatusFailed    Status = "failed" // the last attempt failed, or retries are exhausted
	StatusHeld      Status = "held"   // a remediation guard holds its deletion
)

// Statuses lists them.
func Statuses() []Status {
	return []Status{StatusPending, StatusVerifying, StatusVerified, StatusFailed, StatusHeld}
}

// StatusOf tells a node's status; empty for a node that is none of our business.
func StatusOf(in Input, now time.Time) Status {
	switch {
	case !Subject(in):
		return ""
	case !Needed(in, now):
		if in.Node.Labelled || in.Node.Record.LastOutcome == node.OutcomePassed {
			return StatusVerified
		}
		return ""
	}
	for _, p := range in.Pods {
		if p.Attempt == in.Node.Record.Sequence+1 && !p.Recorded && in.Node.Record.Held == "" {
			return StatusVerifying
		}
	}
	s := run(in)
	switch {
	case in.Node.Record.Held != "":
		return StatusHeld
	case s.attempts > 0:
		return StatusFailed
	}
	return StatusPending
}
