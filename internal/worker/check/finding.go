// Package check is what the types of checks have in common: what an attempt at one finds, with the closed
// list of reasons.
package check

import (
	"fmt"
	"strings"
)

// Outcome is what one attempt at a check says about the node; the worse, the greater.
type Outcome int

// The outcomes of an attempt.
const (
	Passed       Outcome = iota
	Warned               // what was wanted was found, with something that is worth a warning
	Inconclusive         // it could not tell whether the node is at fault
	Failed
)

// Finding is what one attempt at a check came to.
type Finding struct {
	Outcome Outcome
	// Reason is empty when the outcome is Passed.
	Reason Reason
	// Message is for a person: which peer, what was expected, what happened.
	Message string
}

// Passed reports whether the attempt found what it wanted, with or without a warning.
func (f Finding) Passed() bool { return f.Outcome <= Warned }

// Pass is the finding of an attempt that found what it wanted.
func Pass(format string, args ...any) Finding {
	return Finding{Message: fmt.Sprintf(format, args...)}
}

// Warn is the finding of an attempt that found what it wanted, and something to be warned of.
func Warn(reason Reason, format string, args ...any) Finding {
	return Finding{Outcome: Warned, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Fail is the finding of an attempt that did not find what it wanted. The reason says whether
// that is the node's fault or could be another's.
func Fail(reason Reason, format string, args ...any) Finding {
	outcome := Failed
	if reason.othersToBlame() {
		outcome = Inconclusive
	}
	return Finding{Outcome: outcome, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Failure is Fail for those who return no finding as long as all is well.
func Failure(reason Reason, format string, args ...any) *Finding {
	f := Fail(reason, format, args...)
	return &f
}

// Transient reports whether what the reason stands for often passes by itself within seconds: something is not up
// yet, or a packet was lost. Package retry asks again then, until the check's time is used up. This is the only place
// that says so; docs/checks.md lists the reasons.
func (r Reason) Transient() bool {
	switch r {
	case ReasonTimeout, ReasonConnectionRefused, ReasonConnectionReset, ReasonUnreachable,
		ReasonPermissionDenied, ReasonConnectionFailed, ReasonResolutionUnavailable, ReasonServerFailure, ReasonQueryRefused, ReasonTruncated:
		return true
	}
	return false
}

// Refusal reports whether the reason is an API server's refusal to serve: it is overloaded, broken or being replaced,
// or has not heard yet of a token or a role binding. The API client asks again, no sooner than the server's
// Retry-After says.
func (r Reason) Refusal() bool {
	switch r {
	case ReasonUnauthorized, ReasonForbidden, ReasonTooManyRequests, ReasonAPIUnavailable:
		return true
	}
	return false
}

// othersToBlame reports whether what the reason stands for need not be the node's fault: an API
// server that refuses has been reached, and a Service that does not exist, or has too few ready endpoints, lacks
// them everywhere.
func (r Reason) othersToBlame() bool {
	switch r {
	case ReasonUnknown, ReasonServiceNotFound, ReasonNoReadyEndpoints, ReasonTooFewPeers:
		return true
	}
	return r.Refusal()
}

// All is one finding of several attempts that all have to pass: the worst outcome, with the
// first reason for it, and the messages of those that are not simply passed, the worst first.
func All(findings []Finding) Finding {
	var total Finding
	var messages []string
	for o := Failed; o >= Passed; o-- {
		for _, f := range findings {
			if f.Outcome != o || o == Passed && total.Outcome != Passed {
				continue
			}
			if messages == nil {
				total.Outcome, total.Reason = f.Outcome, f.Reason
			}
			messages = append(messages, f.Message)
		}
	}
	total.Message = strings.Join(messages, "; ")
	return total
}

// Count is a number with what it counts, whose plural ends in s: "1 server", "2 servers".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Ordinal is 1st, 2nd, 3rd, 4th, ...
func Ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
