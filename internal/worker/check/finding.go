// Package check has what the types of checks share: the finding of an attempt, with the closed list of reasons.
package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Outcome is what an attempt shows about the node. A worse outcome is greater.
type Outcome int

// The outcomes of an attempt.
const (
	Passed       Outcome = iota
	Warned               // passed, with a warning
	Inconclusive         // it is unknown whether the node is at fault
	Failed
)

// Finding is the result of one attempt at a check.
type Finding struct {
	Outcome Outcome
	// Reason is empty when the outcome is Passed.
	Reason Reason
	// Message is for a person: which peer, what was expected, what happened.
	Message string
}

// Passed reports whether the attempt passed, with or without a warning.
func (f Finding) Passed() bool { return f.Outcome <= Warned }

// Pass is the finding of an attempt that passed.
func Pass(format string, args ...any) Finding {
	return Finding{Message: fmt.Sprintf(format, args...)}
}

// Warn is the finding of an attempt that passed with a warning.
func Warn(reason Reason, format string, args ...any) Finding {
	return Finding{Outcome: Warned, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Fail is the finding of an attempt that did not pass. The reason decides whether it failed or is inconclusive.
func Fail(reason Reason, format string, args ...any) Finding {
	outcome := Failed
	if reason.inconclusive() {
		outcome = Inconclusive
	}
	return Finding{Outcome: outcome, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Failure is Fail for functions that return nil on success.
func Failure(reason Reason, format string, args ...any) *Finding {
	f := Fail(reason, format, args...)
	return &f
}

// Transient reports whether the fault often passes by itself within seconds, such as a lost packet or a server that is
// starting. Package retry retries it until the check's time is used up. docs/reference/checks.md lists these reasons.
func (r Reason) Transient() bool {
	switch r {
	case ReasonTimeout, ReasonConnectionRefused, ReasonConnectionReset, ReasonUnreachable, ReasonPermissionDenied,
		ReasonConnectionFailed, ReasonResolutionUnavailable, ReasonServerFailure, ReasonQueryRefused, ReasonTruncated:
		return true
	}
	return false
}

// Refusal reports whether an API server refuses to serve: it is overloaded, broken or being replaced, or a token or a
// role binding is not in effect yet. The API client retries it, no sooner than the server's Retry-After allows.
func (r Reason) Refusal() bool {
	switch r {
	case ReasonUnauthorized, ReasonForbidden, ReasonTooManyRequests, ReasonAPIUnavailable:
		return true
	}
	return false
}

// inconclusive reports whether the cause may lie outside the node. An API server that refuses a request, or answers it
// with any other status, was reached. A Service that is missing, or has too few endpoints, is so for every node.
func (r Reason) inconclusive() bool {
	switch r {
	case ReasonUnknown, ReasonUnexpectedAPIStatus, ReasonServiceNotFound, ReasonNoDNSService, ReasonNoReadyEndpoints,
		ReasonTooFewPeers:
		return true
	}
	return r.Refusal()
}

// All combines findings that all have to pass: the worst outcome with its first reason, and the messages of those that
// did not simply pass, the worst first.
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

// byDistance are the reasons of connections, from the worst. A peer that got further before it failed says more than
// one of an IP family that does not exist here.
var byDistance = []Reason{ReasonInterrupted, ReasonTimeout, ReasonConnectionReset, ReasonConnectionRefused,
	ReasonPermissionDenied, ReasonConnectionFailed, ReasonUnreachable}

// Worst combines the findings of several addresses of one peer, none of which connects: the worst with the messages of
// all. The result does not depend on their order.
func Worst(findings []Finding) Finding {
	rank := func(f Finding) int { return slices.Index(byDistance, f.Reason) } // any other reason comes first
	sorted := slices.SortedFunc(slices.Values(findings), func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Message, b.Message))
	})
	worst := sorted[0]
	for _, f := range sorted[1:] {
		worst.Message += "; " + f.Message
	}
	return worst
}

// Count formats a number with a noun whose plural ends in s: "1 server", "2 servers".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Ordinal formats 1st, 2nd, 3rd, 4th, ...
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

// Func makes one attempt at a check. It returns soon after the context ends; its message then names what it waited for.
type Func func(ctx context.Context) Finding
