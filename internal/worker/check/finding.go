// Package check is what the types of checks have in common: what an attempt at one finds, with the closed
// list of reasons, and rules for settings.
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

// othersToBlame reports whether what the reason stands for need not be the node's fault: an API
// server that refuses has been reached, and a Service that does not exist is missing everywhere.
func (r Reason) othersToBlame() bool {
	switch r {
	case ReasonUnknown, ReasonUnauthorized, ReasonForbidden, ReasonTooManyRequests, ReasonAPIUnavailable, ReasonServiceNotFound:
		return true
	}
	return false
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

// Reason says in one word why a check did not pass. The list is closed, so that reasons can
// be used in conditions, alerts and scripts.
type Reason string

// Reasons of the run.
const (
	ReasonDependencyFailed Reason = "DependencyFailed"  // skipped: a check it depends on did not pass
	ReasonNotSelected      Reason = "NotSelected"       // skipped: --only or --skip left it out
	ReasonNeedsCluster     Reason = "NeedsCluster"      // skipped: a dry run has no API server to ask
	ReasonInterrupted      Reason = "Interrupted"       // skipped: the worker was told to stop
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"  // the worker's own timeoutSeconds ran out
	ReasonTimeout          Reason = "Timeout"           // no answer within the check's timeout
	ReasonInternal         Reason = "InternalError"     // the worker itself is broken
	ReasonUnknown          Reason = "Unknown"           // the check could not tell
	ReasonConfiguration    Reason = "Configuration"     // the worker's configuration was refused
	ReasonClientSetup      Reason = "ClientSetupFailed" // no token or CA to talk to the API server with
)

// Reasons to do with connections.
const (
	ReasonConnectionRefused  Reason = "ConnectionRefused"  // the peer's host answered that nothing listens
	ReasonConnectionReset    Reason = "ConnectionReset"    // the connection was cut by the peer or a middlebox
	ReasonUnreachable        Reason = "Unreachable"        // no route to the peer
	ReasonPermissionDenied   Reason = "PermissionDenied"   // the operating system forbade it
	ReasonConnectionFailed   Reason = "ConnectionFailed"   // anything else that is wrong with a connection
	ReasonUnexpectedlyOpen   Reason = "UnexpectedlyOpen"   // connects although it should be closed
	ReasonResolutionFailed   Reason = "ResolutionFailed"   // a peer's host name does not resolve
	ReasonNoAddress          Reason = "NoAddress"          // no address of the IP family that is asked for
	ReasonTLSFailed          Reason = "TLSFailed"          // anything else that is wrong with a TLS handshake
	ReasonUntrustedAuthority Reason = "UntrustedAuthority" // the certificate chain does not end in a known CA
	ReasonCertificateName    Reason = "CertificateName"    // the certificate is for another name
	ReasonCertificateExpired Reason = "CertificateExpired" // the certificate is past its validity, or the clock is wrong
	ReasonCertificateNotYet  Reason = "CertificateNotYet"  // the certificate is not valid yet, or the clock is wrong
)

// Reasons to do with DNS.
const (
	ReasonNoServers          Reason = "NoServers"          // resolv.conf or the DNS Service names no server
	ReasonNXDomain           Reason = "NXDomain"           // the name does not exist
	ReasonServerFailure      Reason = "ServerFailure"      // SERVFAIL: the server, or its upstream, is broken
	ReasonQueryRefused       Reason = "QueryRefused"       // REFUSED: the server does not serve us or the name
	ReasonUnexpectedRcode    Reason = "UnexpectedRcode"    // another response code than expected
	ReasonNoAnswers          Reason = "NoAnswers"          // the name exists, with too few records of the type
	ReasonUnexpectedAnswer   Reason = "UnexpectedAnswer"   // an address outside the expected ranges
	ReasonTruncated          Reason = "Truncated"          // cut off over UDP, and TCP does not work
	ReasonMalformedAnswer    Reason = "MalformedAnswer"    // not a DNS answer to what was asked
	ReasonQueryLost          Reason = "QueryLost"          // warning: answered, but not at the first attempt
	ReasonServiceDNSMismatch Reason = "ServiceDNSMismatch" // DNS and the Service disagree
)

// Reasons to do with the Kubernetes API.
const (
	ReasonUnauthorized     Reason = "Unauthorized"     // 401: the token is not accepted
	ReasonForbidden        Reason = "Forbidden"        // 403: the service account may not
	ReasonTooManyRequests  Reason = "TooManyRequests"  // 429: the API server sheds load
	ReasonAPIUnavailable   Reason = "APIUnavailable"   // 5xx: the API server or what it needs is broken
	ReasonUnexpectedStatus Reason = "UnexpectedStatus" // any other HTTP status
	ReasonUnexpectedBody   Reason = "UnexpectedBody"   // an answer that does not say what it should
	ReasonUnexpectedUser   Reason = "UnexpectedUser"   // the API server takes us for someone else
	ReasonServiceNotFound  Reason = "ServiceNotFound"  // there is no such Service
	ReasonTooFewPeers      Reason = "TooFewPeers"      // too few ready pods on other nodes
	ReasonPeersUnreachable Reason = "PeersUnreachable" // too many of the sampled pods do not connect
	ReasonNoReadyEndpoints Reason = "NoReadyEndpoints" // too few ready endpoints
)

// Reasons to do with HTTP.
const (
	ReasonRedirected          Reason = "Redirected"          // a redirect that is not expected, or one too many
	ReasonCertificateExpiring Reason = "CertificateExpiring" // valid for less time than asked for
	ReasonMalformedResponse   Reason = "MalformedResponse"   // not HTTP
)

// Reasons to do with the path's MTU and with the clock.
const (
	ReasonPathMTUTooSmall  Reason = "PathMTUTooSmall"  // the payload does not fit one segment on this path
	ReasonPathMTUBlackHole Reason = "PathMTUBlackHole" // large packets vanish, small ones pass
	ReasonPayloadAltered   Reason = "PayloadAltered"   // the echo is not what was sent
	ReasonClockSkew        Reason = "ClockSkew"        // this node's clock is off
	ReasonNoDate           Reason = "NoDate"           // the response has no usable Date header
)

// Reasons to do with files and disks.
const (
	ReasonNotFound    Reason = "NotFound"    // no such path
	ReasonWrongKind   Reason = "WrongKind"   // something else than expected is there
	ReasonNotWritable Reason = "NotWritable" // cannot be written
	ReasonReadOnly    Reason = "ReadOnly"    // the file system is mounted read-only, or turned so after an error
	ReasonInputOutput Reason = "InputOutput" // the device reports errors
	ReasonNoSpace     Reason = "NoSpace"     // the disk is full
	ReasonLowSpace    Reason = "LowSpace"    // less free space than asked for
	ReasonLowInodes   Reason = "LowInodes"   // fewer free inodes than asked for
	ReasonSlowDisk    Reason = "SlowDisk"    // writing takes longer than allowed
	ReasonCannotLook  Reason = "CannotLook"  // the path cannot be examined
)

// ReasonCommandFailed is a command that exited with 1.
const ReasonCommandFailed Reason = "CommandFailed"
