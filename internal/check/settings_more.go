package check

// HTTP sends a request and looks at the response.
type HTTP struct {
	// URL, http or https. Its host is resolved as a pod would resolve it; no proxy is used.
	URL string `json:"url,omitempty"`
	// Method is GET (default), HEAD, POST, PUT or OPTIONS.
	Method string `json:"method,omitempty"`
	// Headers of the request. Host sets the request's host. Values are never reported.
	Headers map[string]string `json:"headers,omitempty"`
	// Body of the request.
	Body string `json:"body,omitempty"`
	// ExpectStatus lists the statuses that pass. Default: 200 to 299.
	ExpectStatus []int32 `json:"expectStatus,omitempty"`
	// ExpectBody is a regular expression (RE2) that the first 64 KiB of the body must match.
	ExpectBody string `json:"expectBody,omitempty"`
	// MaxRedirects that are followed. Default 0: a redirect is a failure, unless its status is
	// expected.
	MaxRedirects int32 `json:"maxRedirects,omitempty"`
	// CA is a PEM bundle to trust in place of the system's authorities.
	CA string `json:"ca,omitempty"`
	// CAFile is a file in the worker's container that holds such a bundle.
	CAFile string `json:"caFile,omitempty"`
	// ServerName is sent as SNI and must be in the certificate. Default: the URL's host.
	ServerName string `json:"serverName,omitempty"`
	// MinCertificateValidityHours is how long the server's certificate must still be valid. Default 0.
	MinCertificateValidityHours int32 `json:"minCertificateValidityHours,omitempty"`
}

// Defaults of Peers.
const (
	// DefaultPeerSample is how many peers are connected to.
	DefaultPeerSample = 5
	// DefaultPeerFailPercent is the share of failing peers at which the check fails.
	DefaultPeerFailPercent = 50
)

// Peers connects to pods on other nodes, chosen across nodes and zones.
type Peers struct {
	// Namespace of the pods. Default: the worker's own.
	Namespace string `json:"namespace,omitempty"`
	// Selector of the pods, a label selector such as app=web,tier!=cache.
	Selector string `json:"selector,omitempty"`
	// Port that the pods listen on, with TCP.
	Port int32 `json:"port,omitempty"`
	// Sample is how many pods are connected to, at most. Default 5.
	Sample int32 `json:"sample,omitempty"`
	// FailPercent is the share of the sample that must fail for the check to fail. Default 50.
	FailPercent int32 `json:"failPercent,omitempty"`
	// MinPeers is how many ready pods on other nodes there must be. Default 0: the first
	// node of a cluster has no peers, and passes; a selector that matches nothing is a warning.
	MinPeers int32 `json:"minPeers,omitempty"`
}

// The ways to send a payload for MTU.
const (
	// MTURaw writes the payload as it is; the target's kernel acknowledges it.
	MTURaw = "raw"
	// MTUEcho also waits for the target to send the payload back.
	MTUEcho = "echo"
	// MTUTLS sends a TLS ClientHello of the payload's size and waits for the answer.
	MTUTLS = "tls"
)

// MaxMTUPayload bounds the payload: beyond the jumbo frames of every network, and what one TLS
// record holds (16384 bytes, RFC 8446, section 5.1).
const MaxMTUPayload = 16_000

// MTU sends a payload to a TCP target in one segment that may not be fragmented.
type MTU struct {
	// Address is the target's host:port. Default: the Kubernetes Service, with protocol tls.
	Address string `json:"address,omitempty"`
	// Protocol is raw (default with an address), echo or tls.
	Protocol string `json:"protocol,omitempty"`
	// PayloadBytes of the segment, headers not counted. Default: the largest that this
	// node's kernel believes to fit the path, at most 16000.
	PayloadBytes int32 `json:"payloadBytes,omitempty"`
}

// DefaultMaxSkewSeconds is below what breaks tokens, leases and TLS, and above what the
// whole seconds of a Date header can show.
const DefaultMaxSkewSeconds = 5

// Clock compares this node's clock with the API server's.
type Clock struct {
	// MaxSkewSeconds either way. Default 5.
	MaxSkewSeconds int32 `json:"maxSkewSeconds,omitempty"`
}

// The kinds of File.
const (
	// KindFile is a regular file.
	KindFile = "file"
	// KindDirectory is a directory.
	KindDirectory = "directory"
	// KindSocket is a Unix socket.
	KindSocket = "socket"
	// KindDevice is a block or character device.
	KindDevice = "device"
)

// File looks at a path in the worker's file system (a volume shows the node's).
type File struct {
	// Path, absolute.
	Path string `json:"path,omitempty"`
	// Kind is file, directory, socket or device. Default: any.
	Kind string `json:"kind,omitempty"`
	// Writable also asks that the file can be opened for writing, or, in a directory, that a
	// file can be made and written.
	Writable bool `json:"writable,omitempty"`
}

// Disk looks at the file system that holds a path.
type Disk struct {
	// Path of a directory, absolute.
	Path string `json:"path,omitempty"`
	// MinFreeBytes is the space that unprivileged users must still have. Default 0: not looked at.
	MinFreeBytes int64 `json:"minFreeBytes,omitempty"`
	// MinFreePercent is the share of the space, as df(1) counts it. Default 0: not looked at.
	MinFreePercent int32 `json:"minFreePercent,omitempty"`
	// MinFreeInodesPercent is the share of the inodes. Default 0: not looked at.
	MinFreeInodesPercent int32 `json:"minFreeInodesPercent,omitempty"`
	// MaxWriteLatencyMs is how long writing 4 KiB to a new file and syncing it to the disk may
	// take, the median of five. Default 0: nothing is written.
	MaxWriteLatencyMs int32 `json:"maxWriteLatencyMs,omitempty"`
}

// DefaultMaxOutputBytes is how much of a command's output goes into its message.
const DefaultMaxOutputBytes = 512

// What a command that could not tell means for the node.
const (
	// UnknownInconclusive proves nothing: the node is neither verified nor at fault.
	UnknownInconclusive = "inconclusive"
	// UnknownFail is held against the node.
	UnknownFail = "fail"
	// UnknownWarn is reported and holds nothing up.
	UnknownWarn = "warn"
)

// Exec runs a command, or reads the result that an init container left. Exit code 0 passes, 1
// fails. Everything else means that it could not tell: another code, a signal, a command that
// cannot be run, a result file that cannot be read.
type Exec struct {
	// Command and its arguments; no shell is involved. The first is a path or is found in PATH.
	Command []string `json:"command,omitempty"`
	// ResultFile, in place of a command, is a file that an init container wrote: its exit code
	// on the first line, then its output.
	ResultFile string `json:"resultFile,omitempty"`
	// OnUnknown is what it means when the command could not tell: inconclusive (default), fail or warn.
	OnUnknown string `json:"onUnknown,omitempty"`
	// MaxOutputBytes of standard output and error that are kept for the message. Default 512.
	MaxOutputBytes int32 `json:"maxOutputBytes,omitempty"`
}
