package check

// Reason is one word for why a check did not pass. The list is closed, so that conditions, alerts and scripts can rely
// on it: other packages cannot make a reason.
type Reason struct{ word string }

// NoReason is the reason of a check that passed.
var NoReason Reason

// String is the word; empty for NoReason.
func (r Reason) String() string { return r.word }

// Reasons of the run.
var (
	ReasonDependencyFailed = Reason{"DependencyFailed"}  // skipped: a check it depends on did not pass
	ReasonNotSelected      = Reason{"NotSelected"}       // skipped: --only or --skip left it out
	ReasonNeedsCluster     = Reason{"NeedsCluster"}      // skipped: a dry run has no API server to ask
	ReasonInterrupted      = Reason{"Interrupted"}       // skipped: the worker was stopped
	ReasonDeadlineExceeded = Reason{"DeadlineExceeded"}  // the worker's own timeoutSeconds ran out
	ReasonTimeout          = Reason{"Timeout"}           // no answer within the check's timeout
	ReasonInternal         = Reason{"InternalError"}     // the worker itself is broken
	ReasonUnknown          = Reason{"Unknown"}           // it is unknown whether the node is at fault
	ReasonConfiguration    = Reason{"Configuration"}     // the worker's configuration was refused
	ReasonClientSetup      = Reason{"ClientSetupFailed"} // no token or CA to talk to the API server with
)

// Reasons of connections.
var (
	ReasonConnectionRefused = Reason{"ConnectionRefused"} // the peer's host answered that nothing listens
	ReasonConnectionReset   = Reason{"ConnectionReset"}   // the connection was cut by the peer or a middlebox
	ReasonUnreachable       = Reason{"Unreachable"}       // no route to the peer
	ReasonPermissionDenied  = Reason{"PermissionDenied"}  // the operating system denied it
	ReasonConnectionFailed  = Reason{"ConnectionFailed"}  // anything else that is wrong with a connection
	ReasonUnexpectedlyOpen  = Reason{"UnexpectedlyOpen"}  // connects although it should be closed
	ReasonResolutionFailed  = Reason{"ResolutionFailed"}  // a peer's host name does not resolve
	// ReasonResolutionUnavailable: no DNS server answered for a peer's host name.
	ReasonResolutionUnavailable = Reason{"ResolutionUnavailable"}
	ReasonNoAddress             = Reason{"NoAddress"}          // no address of the IP family that is asked for
	ReasonTLSFailed             = Reason{"TLSFailed"}          // anything else that is wrong with a TLS handshake
	ReasonUntrustedAuthority    = Reason{"UntrustedAuthority"} // the certificate chain does not end in a known CA
	ReasonCertificateName       = Reason{"CertificateName"}    // the certificate is for another name
	ReasonCertificateExpired    = Reason{"CertificateExpired"} // the certificate has expired, or the clock is wrong
	ReasonCertificateNotYet     = Reason{"CertificateNotYet"}  // the certificate is not valid yet, or the clock is wrong
)

// Reasons of DNS.
var (
	ReasonNoServers          = Reason{"NoServers"}          // resolv.conf or the DNS Service names no server
	ReasonSearchIgnored      = Reason{"SearchIgnored"}      // warning: musl ignores resolv.conf's search line
	ReasonNXDomain           = Reason{"NXDomain"}           // the name does not exist
	ReasonServerFailure      = Reason{"ServerFailure"}      // SERVFAIL: the server, or its upstream, is broken
	ReasonQueryRefused       = Reason{"QueryRefused"}       // REFUSED: the server does not serve us or the name
	ReasonUnexpectedRcode    = Reason{"UnexpectedRcode"}    // another response code than expected
	ReasonNoAnswers          = Reason{"NoAnswers"}          // the name exists, with too few records of the type
	ReasonUnexpectedAnswer   = Reason{"UnexpectedAnswer"}   // an address outside the expected ranges
	ReasonTruncated          = Reason{"Truncated"}          // cut off over UDP, and TCP does not work
	ReasonMalformedAnswer    = Reason{"MalformedAnswer"}    // not a DNS answer to the question
	ReasonQueryLost          = Reason{"QueryLost"}          // warning: answered, but not at the first attempt
	ReasonEDNSFailed         = Reason{"EDNSFailed"}         // warning: the server does not handle EDNS0
	ReasonDNSServiceUnused   = Reason{"DNSServiceUnused"}   // warning: resolv.conf has no address of the DNS Service
	ReasonNoDNSService       = Reason{"NoDNSService"}       // no DNS Service has a known name; a warning check is skipped
	ReasonServiceDNSMismatch = Reason{"ServiceDNSMismatch"} // DNS and the Service disagree
)

// Reasons of the Kubernetes API.
var (
	ReasonUnauthorized    = Reason{"Unauthorized"}    // 401: the token is not accepted
	ReasonForbidden       = Reason{"Forbidden"}       // 403: the service account may not
	ReasonTooManyRequests = Reason{"TooManyRequests"} // 429: the API server sheds load
	ReasonAPIUnavailable  = Reason{"APIUnavailable"}  // 5xx: the API server or what it needs is broken
	ReasonUnexpectedBody  = Reason{"UnexpectedBody"}  // an answer other than expected
	// ReasonUnexpectedAPIStatus is any other status of an API server, whose certificate is trusted.
	ReasonUnexpectedAPIStatus = Reason{"UnexpectedAPIStatus"}
	ReasonUnexpectedUser      = Reason{"UnexpectedUser"}   // the API server authenticates the worker as another user
	ReasonServiceNotFound     = Reason{"ServiceNotFound"}  // there is no such Service
	ReasonTooFewPeers         = Reason{"TooFewPeers"}      // too few ready pods on other nodes
	ReasonPeersUnreachable    = Reason{"PeersUnreachable"} // too many of the sampled pods do not connect
	ReasonNoReadyEndpoints    = Reason{"NoReadyEndpoints"} // too few ready endpoints
)

// Reasons of HTTP.
var (
	ReasonUnexpectedStatus    = Reason{"UnexpectedStatus"}    // a status that is not expected
	ReasonRedirected          = Reason{"Redirected"}          // a redirect that is not expected, or one too many
	ReasonCertificateExpiring = Reason{"CertificateExpiring"} // valid for less time than asked for
	ReasonMalformedResponse   = Reason{"MalformedResponse"}   // not HTTP
)

// Reasons of the path MTU and the clock.
var (
	ReasonPathMTUTooSmall  = Reason{"PathMTUTooSmall"}  // the payload does not fit one segment on this path
	ReasonPathMTUBlackHole = Reason{"PathMTUBlackHole"} // large packets vanish, small ones pass
	ReasonPayloadAltered   = Reason{"PayloadAltered"}   // the echo is not what was sent
	ReasonClockSkew        = Reason{"ClockSkew"}        // this node's clock is off
	ReasonNoDate           = Reason{"NoDate"}           // the response has no usable Date header
)

// Reasons of files and disks.
var (
	ReasonNotFound    = Reason{"NotFound"}    // no such path
	ReasonWrongKind   = Reason{"WrongKind"}   // a file of another kind
	ReasonNotWritable = Reason{"NotWritable"} // cannot be written
	ReasonReadOnly    = Reason{"ReadOnly"}    // the file system is read-only, from its mount or after an error
	ReasonInputOutput = Reason{"InputOutput"} // the device reports errors
	ReasonNoSpace     = Reason{"NoSpace"}     // the disk is full
	ReasonLowSpace    = Reason{"LowSpace"}    // less free space than asked for
	ReasonLowInodes   = Reason{"LowInodes"}   // fewer free inodes than asked for
	ReasonSlowDisk    = Reason{"SlowDisk"}    // writing takes longer than allowed
	ReasonCannotLook  = Reason{"CannotLook"}  // the path cannot be inspected
)

// Reasons of commands.
var (
	ReasonCommandFailed = Reason{"CommandFailed"} // exit code 1, or a severity that means failed
	ReasonCommandWarned = Reason{"CommandWarned"} // warning: a severity that means warning
)
