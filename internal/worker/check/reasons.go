package check

import "slices"

// Reason is one word for why a check did not pass. The list is closed, so that conditions, alerts and scripts can rely
// on it: other packages cannot make a reason.
type Reason struct{ word string }

// NoReason is the reason of a check that passed.
var NoReason Reason

// String is the word; empty for NoReason.
func (r Reason) String() string { return r.word }

var reasons []Reason

// Reasons lists every reason.
func Reasons() []Reason { return slices.Clone(reasons) }

func reason(word string) Reason {
	r := Reason{word}
	reasons = append(reasons, r)
	return r
}

// Reasons of the run.
var (
	ReasonDependencyFailed = reason("DependencyFailed")  // skipped: a check it depends on did not pass
	ReasonNotSelected      = reason("NotSelected")       // skipped: --only or --skip left it out
	ReasonNeedsCluster     = reason("NeedsCluster")      // skipped: a dry run has no API server to ask
	ReasonInterrupted      = reason("Interrupted")       // skipped: the worker was stopped
	ReasonDeadlineExceeded = reason("DeadlineExceeded")  // the worker's own timeoutSeconds ran out
	ReasonTimeout          = reason("Timeout")           // no answer within the check's timeout
	ReasonInternal         = reason("InternalError")     // the worker itself is broken
	ReasonUnknown          = reason("Unknown")           // it is unknown whether the node is at fault
	ReasonConfiguration    = reason("Configuration")     // the worker's configuration was refused
	ReasonClientSetup      = reason("ClientSetupFailed") // no token or CA to talk to the API server with
)

// Reasons of connections.
var (
	ReasonConnectionRefused = reason("ConnectionRefused") // the peer's host answered that nothing listens
	ReasonConnectionReset   = reason("ConnectionReset")   // the connection was cut by the peer or a middlebox
	ReasonUnreachable       = reason("Unreachable")       // no route to the peer
	ReasonPermissionDenied  = reason("PermissionDenied")  // the operating system denied it
	ReasonConnectionFailed  = reason("ConnectionFailed")  // anything else that is wrong with a connection
	ReasonUnexpectedlyOpen  = reason("UnexpectedlyOpen")  // connects although it should be closed
	ReasonResolutionFailed  = reason("ResolutionFailed")  // a peer's host name does not resolve
	// ReasonResolutionUnavailable: no DNS server answered for a peer's host name.
	ReasonResolutionUnavailable = reason("ResolutionUnavailable")
	ReasonNoAddress             = reason("NoAddress")          // no address of the IP family that is asked for
	ReasonTLSFailed             = reason("TLSFailed")          // anything else that is wrong with a TLS handshake
	ReasonUntrustedAuthority    = reason("UntrustedAuthority") // the certificate chain does not end in a known CA
	ReasonCertificateName       = reason("CertificateName")    // the certificate is for another name
	ReasonCertificateExpired    = reason("CertificateExpired") // the certificate has expired, or the clock is wrong
	ReasonCertificateNotYet     = reason("CertificateNotYet")  // the certificate is not valid yet, or the clock is wrong
)

// Reasons of DNS.
var (
	ReasonNoServers          = reason("NoServers")          // resolv.conf or the DNS Service names no server
	ReasonNXDomain           = reason("NXDomain")           // the name does not exist
	ReasonServerFailure      = reason("ServerFailure")      // SERVFAIL: the server, or its upstream, is broken
	ReasonQueryRefused       = reason("QueryRefused")       // REFUSED: the server does not serve us or the name
	ReasonUnexpectedRcode    = reason("UnexpectedRcode")    // another response code than expected
	ReasonNoAnswers          = reason("NoAnswers")          // the name exists, with too few records of the type
	ReasonUnexpectedAnswer   = reason("UnexpectedAnswer")   // an address outside the expected ranges
	ReasonTruncated          = reason("Truncated")          // cut off over UDP, and TCP does not work
	ReasonMalformedAnswer    = reason("MalformedAnswer")    // not a DNS answer to the question
	ReasonQueryLost          = reason("QueryLost")          // warning: answered, but not at the first attempt
	ReasonServiceDNSMismatch = reason("ServiceDNSMismatch") // DNS and the Service disagree
)

// Reasons of the Kubernetes API.
var (
	ReasonUnauthorized     = reason("Unauthorized")     // 401: the token is not accepted
	ReasonForbidden        = reason("Forbidden")        // 403: the service account may not
	ReasonTooManyRequests  = reason("TooManyRequests")  // 429: the API server sheds load
	ReasonAPIUnavailable   = reason("APIUnavailable")   // 5xx: the API server or what it needs is broken
	ReasonUnexpectedStatus = reason("UnexpectedStatus") // any other HTTP status
	ReasonUnexpectedBody   = reason("UnexpectedBody")   // an answer other than expected
	ReasonUnexpectedUser   = reason("UnexpectedUser")   // the API server authenticates the worker as another user
	ReasonServiceNotFound  = reason("ServiceNotFound")  // there is no such Service
	ReasonTooFewPeers      = reason("TooFewPeers")      // too few ready pods on other nodes
	ReasonPeersUnreachable = reason("PeersUnreachable") // too many of the sampled pods do not connect
	ReasonNoReadyEndpoints = reason("NoReadyEndpoints") // too few ready endpoints
)

// Reasons of HTTP.
var (
	ReasonRedirected          = reason("Redirected")          // a redirect that is not expected, or one too many
	ReasonCertificateExpiring = reason("CertificateExpiring") // valid for less time than asked for
	ReasonMalformedResponse   = reason("MalformedResponse")   // not HTTP
)

// Reasons of the path MTU and the clock.
var (
	ReasonPathMTUTooSmall  = reason("PathMTUTooSmall")  // the payload does not fit one segment on this path
	ReasonPathMTUBlackHole = reason("PathMTUBlackHole") // large packets vanish, small ones pass
	ReasonPayloadAltered   = reason("PayloadAltered")   // the echo is not what was sent
	ReasonClockSkew        = reason("ClockSkew")        // this node's clock is off
	ReasonNoDate           = reason("NoDate")           // the response has no usable Date header
)

// Reasons of files and disks.
var (
	ReasonNotFound    = reason("NotFound")    // no such path
	ReasonWrongKind   = reason("WrongKind")   // a file of another kind
	ReasonNotWritable = reason("NotWritable") // cannot be written
	ReasonReadOnly    = reason("ReadOnly")    // the file system is read-only, from its mount or after an error
	ReasonInputOutput = reason("InputOutput") // the device reports errors
	ReasonNoSpace     = reason("NoSpace")     // the disk is full
	ReasonLowSpace    = reason("LowSpace")    // less free space than asked for
	ReasonLowInodes   = reason("LowInodes")   // fewer free inodes than asked for
	ReasonSlowDisk    = reason("SlowDisk")    // writing takes longer than allowed
	ReasonCannotLook  = reason("CannotLook")  // the path cannot be inspected
)

// Reasons of commands.
var (
	ReasonCommandFailed = reason("CommandFailed") // exit code 1, or a severity that means failed
	ReasonCommandWarned = reason("CommandWarned") // warning: a severity that means warning
)
