// Package neterror maps errors of connections, TLS handshakes, files and the Kubernetes API to the reasons of package
// check, with a message for a person.
package neterror

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// A Coded error has a reason.
type Coded interface {
	error
	Reason() check.Reason
}

// Error is a Coded error. Text completes a sentence that begins with the peer.
type Error struct {
	Code check.Reason
	Text string
}

func (e *Error) Error() string { return e.Text }

// Reason is the check's reason.
func (e *Error) Reason() check.Reason { return e.Code }

// Finding is the finding of an operation on a peer that failed. The text of an error with a method Sentence is a
// sentence of its own; any other text continues the sentence that begins with the peer.
func Finding(peer string, err error) check.Finding {
	reason, phrase := Of(err)
	separator := " "
	var sentence interface{ Sentence() bool }
	if errors.As(err, &sentence) && sentence.Sentence() {
		separator = ": "
	}
	return check.Fail(reason, "%s%s%s", peer, separator, phrase)
}

// Of returns why a network operation failed. The phrase completes a sentence that begins with the peer:
// "10.0.0.1:443" + " " + "refused the connection".
func Of(err error) (check.Reason, string) {
	if coded, ok := errors.AsType[Coded](err); ok {
		return coded.Reason(), coded.Error()
	}
	if reason, phrase := classifyTLS(err); reason != check.NoReason {
		return reason, phrase
	}
	switch phrase := zoneFault(err); {
	case IsTimeout(err):
		return check.ReasonTimeout, "did not answer in time"
	case errors.Is(err, context.Canceled):
		return check.ReasonInterrupted, "was not waited for: the worker was stopped"
	case errors.Is(err, syscall.ECONNREFUSED):
		return check.ReasonConnectionRefused, "refused the connection: nothing listens there, or a firewall rejects it"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return check.ReasonConnectionReset, "reset the connection"
	case phrase != "":
		return check.ReasonUnreachable, "is unreachable: " + phrase
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return check.ReasonUnreachable, "is unreachable: " + errno(err) + ", or a firewall rejects it"
	case slices.ContainsFunc(unreachable, func(e syscall.Errno) bool { return errors.Is(err, e) }):
		return check.ReasonUnreachable, "is unreachable: " + errno(err)
	case errors.Is(err, syscall.EINVAL): // of connect and sendto; ip-route(8)
		return check.ReasonUnreachable, "is unreachable: its route is of type blackhole, or the address is not valid here"
	case errors.Is(err, syscall.EPERM): // of sendmsg, from netfilter
		return check.ReasonPermissionDenied,
			"may not be contacted: " + errno(err) + ": a packet filter, or the connection table is full"
	case errors.Is(err, syscall.EACCES): // of an ICMPv6 answer, or of ip-route(8)
		return check.ReasonPermissionDenied,
			"may not be contacted: " + errno(err) + ": a firewall rejects it, or its route is of type prohibit"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.HasSuffix(err.Error(), closedIdle):
		return check.ReasonConnectionReset, "closed the connection without an answer"
	}
	if phrase := malformed(err); phrase != "" {
		return check.ReasonMalformedResponse, phrase
	}
	return check.ReasonConnectionFailed, "failed: " + err.Error()
}

// closedIdle is what net/http says, in an error that it does not export (errServerClosedIdle), of a server that closed
// a new connection before the request was sent.
const closedIdle = "http: server closed idle connection"

// unreachable are the errors of a path that leads nowhere.
var unreachable = []syscall.Errno{syscall.EADDRNOTAVAIL, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EAFNOSUPPORT}

// zoneFault returns why the zone of the peer's address leads nowhere; empty if it does not, or if the operating system
// did not refuse the address. A zone is the name or the number of a network interface (RFC 4007, section 11).
func zoneFault(err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	if _, isErrno := errors.AsType[syscall.Errno](err); !ok || !isErrno || op.Addr == nil {
		return ""
	}
	peer, parseErr := netip.ParseAddrPort(op.Addr.String())
	zone := peer.Addr().Zone()
	switch {
	case parseErr != nil || !peer.Addr().Is6():
		return ""
	case zone == "" && peer.Addr().IsLinkLocalUnicast():
		return "a link-local address needs a zone, as in fe80::1%eth0"
	case zone == "":
		return ""
	}
	if _, err := net.InterfaceByName(zone); err == nil {
		return ""
	}
	if number, err := strconv.Atoi(zone); err == nil {
		if _, err := net.InterfaceByIndex(number); err == nil {
			return ""
		}
	}
	return "there is no network interface " + zone + " here"
}

// OfAddresses returns the error of a peer none of whose addresses connects; errs has the error of each. It names them
// all, the worst first, which decides the reason. The error of a single address is returned as it is.
func OfAddresses(addresses []string, errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	findings := make([]check.Finding, len(errs))
	for i, err := range errs {
		findings[i] = Finding(addresses[i], err)
	}
	f := check.Worst(findings)
	return &Error{Code: f.Reason, Text: "does not connect: " + f.Message}
}

// IsTimeout reports whether a deadline of a connection or a context passed, or the operating system timed out.
func IsTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT) || ok && ne.Timeout()
}

// classifyTLS returns why a TLS handshake failed. A certificate outside its validity may be due to this node's clock,
// so the phrase has both times.
func classifyTLS(err error) (check.Reason, string) {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		var presented []*x509.Certificate
		if errors.As(err, &verify) {
			presented = verify.UnverifiedCertificates
		}
		return validity(invalid.Cert, owner(invalid.Cert, presented), time.Now())
	case errors.As(err, &name):
		return check.ReasonCertificateName, "presented a certificate for another name: " + name.Error()
	case errors.As(err, &authority):
		return check.ReasonUntrustedAuthority,
			"presented a certificate of an authority that is not trusted here: " + authority.Error()
	case errors.Is(err, http.ErrSchemeMismatch):
		return check.ReasonTLSFailed, "does not speak TLS: it answered in plain HTTP"
	case errors.As(err, &record):
		return check.ReasonTLSFailed, "does not speak TLS: " + record.Msg
	case errors.As(err, &invalid), errors.As(err, &verify):
		return check.ReasonTLSFailed, "presented an unusable certificate: " + err.Error()
	case IsAlert(err):
		return check.ReasonTLSFailed, "ended the TLS handshake: " + err.Error()
	}
	if text := ofTLS(err); text != "" {
		return check.ReasonTLSFailed, "failed the TLS handshake: " + text
	}
	return check.NoReason, ""
}

// ofTLS returns what crypto/tls finds wrong with the peer's part of a handshake; empty if err is another error.
// crypto/tls has no types for such errors. Each text begins with the package's name.
func ofTLS(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		op, isOp := err.(*net.OpError) //nolint:errorlint // each error of the chain in turn
		if isOp && op.Op == "local error" || strings.HasPrefix(err.Error(), "tls: ") {
			break
		}
	}
	if err == nil {
		return ""
	}
	text := err.Error()
	if _, cause, found := strings.Cut(text, "failed to parse certificate from server: "); found {
		return "Go cannot read its certificate: " + cause
	}
	var version uint16
	_, selected, found := strings.Cut(text, "selected unsupported protocol version ")
	if _, scanErr := fmt.Sscanf(selected, "%x", &version); found && scanErr == nil {
		return "it speaks only " + tls.VersionName(version)
	}
	return text
}

// broken begins net/http's errors about an HTTP/1 response that it cannot read.
const broken = "HTTP/1.x transport connection broken: "

// malformed returns what is wrong with an answer that is not HTTP; empty if err is another error. net/http has few
// types for such errors, and err is none that Of knows.
func malformed(err error) string {
	text := err.Error()
	contains := func(part string) bool { return strings.Contains(text, part) }
	_, cause, isBroken := strings.Cut(text, broken)
	switch {
	case contains("response header"):
		return "answered with too many headers: " + result.Clip(text, maxQuoted)
	case isBroken:
		return "answered something that is not HTTP: " + result.Clip(cause, maxQuoted)
	case slices.ContainsFunc(http2Codes, contains):
		return "broke the HTTP/2 protocol: " + result.Clip(text, maxQuoted)
	case contains("chunk"), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return "answered a body that cannot be read: " + result.Clip(text, maxQuoted)
	}
	return ""
}

// maxQuoted limits how much of an answer is repeated in a message, in bytes.
const maxQuoted = 120

// http2Codes are in the errors about a peer that breaks HTTP/2 (RFC 9113, section 7).
var http2Codes = []string{"PROTOCOL_ERROR", "FRAME_SIZE_ERROR", "COMPRESSION_ERROR", "FLOW_CONTROL_ERROR",
	"http2: frame too large"}

// IsAlert reports whether the peer sent a TLS alert. Over TCP, crypto/tls wraps a type of its own that it does not
// export; tls.AlertError is of QUIC.
func IsAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// owner is a phrase for a certificate of a chain, with its owner: the server, an authority between, or the authority
// that is trusted here.
func owner(cert *x509.Certificate, presented []*x509.Certificate) string {
	name := cmp.Or(cert.Subject.CommonName, strings.Join(cert.DNSNames, ", "), cert.Subject.String(), "without a name")
	switch at := slices.IndexFunc(presented, cert.Equal); {
	case at == 0, at < 0 && !cert.IsCA:
		return fmt.Sprintf("a certificate of its own (%s)", name)
	case at > 0:
		return fmt.Sprintf("the certificate of an intermediate authority (%s)", name)
	}
	return fmt.Sprintf("a certificate of an authority (%s) whose own, among those trusted here (ca.crt),", name)
}

func validity(cert *x509.Certificate, owner string, now time.Time) (check.Reason, string) {
	if !strings.HasSuffix(owner, ",") {
		owner += " that"
	}
	if now.Before(cert.NotBefore) {
		return check.ReasonCertificateNotYet, fmt.Sprintf(
			"presented %s is not valid before %s, and this node's clock says %s: the clock is probably wrong",
			owner, stamp(cert.NotBefore), stamp(now))
	}
	return check.ReasonCertificateExpired, fmt.Sprintf("presented %s expired at %s. "+
		"This node's clock says %s: either it was not renewed or the clock is wrong",
		owner, stamp(cert.NotAfter), stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func errno(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return err.Error()
}

// ofFile returns why a file operation failed. The phrase completes a sentence that begins with the path.
func ofFile(err error) (check.Reason, string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return check.ReasonNotFound, "does not exist"
	case errors.Is(err, syscall.EROFS):
		return check.ReasonReadOnly, "is on a read-only file system (mounted read-only, or made read-only after a disk error)"
	case errors.Is(err, syscall.EIO):
		return check.ReasonInputOutput, "is on a device that reports input/output errors"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return check.ReasonNoSpace, "is on a full file system: " + errno(err)
	case errors.Is(err, fs.ErrPermission):
		return check.ReasonPermissionDenied, "denies access to the worker's user: " + errno(err)
	}
	return check.ReasonCannotLook, "cannot be examined: " + errno(err)
}

// FileFinding is the finding of a path that could not be inspected. It is inconclusive if the worker's user may not
// enter a directory on the way: such a directory is the same on every node.
func FileFinding(path string, err error) check.Finding {
	reason, phrase := ofFile(err)
	if reason == check.ReasonPermissionDenied {
		return check.Fail(check.ReasonUnknown, "%s cannot be examined: user %d may not enter the directory %s",
			path, os.Geteuid(), closedDirectory(path))
	}
	return check.Fail(reason, "%s %s", path, phrase)
}

// closedDirectory is the directory on the way to a path, through symbolic links too, that may not be entered.
func closedDirectory(path string) string {
	_, err := filepath.EvalSymlinks(path)
	if denied, ok := errors.AsType[*fs.PathError](err); ok {
		path = denied.Path
	}
	return filepath.Dir(path)
}

// WriteFinding is the finding of a path that could not be written.
func WriteFinding(path string, err error) check.Finding {
	reason, phrase := ofFile(err)
	if reason == check.ReasonPermissionDenied {
		reason = check.ReasonNotWritable
	}
	return check.Fail(reason, "%s cannot be written: it %s", path, phrase)
}

// The stages of an HTTP request.
const (
	connecting int32 = iota
	handshaking
	waiting
)

// Progress is the stage of an HTTP request. It decides what a timeout means: no connection, a TLS handshake whose large
// packets are lost, or a slow server.
type Progress struct {
	started  time.Time
	deadline time.Time // zero for none
	stage    atomic.Int32

	mu sync.Mutex
	// addresses are those that are being connected to, or have not connected, with the error of the latter.
	addresses map[string]error
	// names are the absolute names by which hosts were resolved through the search list.
	names map[string]string
}

// progressKey is the key of a request's progress in its context.
type progressKey struct{}

// Resolved notes, for a request under Watch, the absolute name by which its host was resolved. An empty name, for the
// host's own, is not noted.
func Resolved(ctx context.Context, host, name string) {
	p, watched := ctx.Value(progressKey{}).(*Progress)
	if !watched || name == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[host] = name
}

// Deadline is when a request under Watch ends; zero if it is under none, or has no deadline. The context that net/http
// dials with has the request's values, and not its deadline (net/http transport.go, getConn).
func Deadline(ctx context.Context) time.Time {
	if p, watched := ctx.Value(progressKey{}).(*Progress); watched {
		return p.deadline
	}
	return time.Time{}
}

// Names ends a message with the names of the search list by which hosts were resolved; empty if there are none.
func (p *Progress) Names() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text string
	for _, host := range slices.Sorted(maps.Keys(p.names)) {
		text += fmt.Sprintf("; %s was resolved as %s", host, p.names[host])
	}
	return text
}

// Watch returns a context for a request, and the request's progress.
func Watch(ctx context.Context) (context.Context, *Progress) {
	p := &Progress{started: time.Now(), addresses: map[string]error{}, names: map[string]string{}}
	p.deadline, _ = ctx.Deadline()
	ctx = context.WithValue(ctx, progressKey{}, p)
	note := func(address string, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.addresses[address] = err
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectStart: func(_, address string) { note(address, context.DeadlineExceeded) },
		ConnectDone: func(_, address string, err error) {
			if !errors.Is(err, context.Canceled) { // the request's end
				note(address, err)
			}
		},
		TLSHandshakeStart: func() { p.stage.Store(handshaking) },
		GotConn:           func(httptrace.GotConnInfo) { p.stage.Store(waiting) },
	}), p
}

// Finding is the package's Finding with Names; for a timeout its message has the stage.
func (p *Progress) Finding(peer string, err error) check.Finding {
	f := p.finding(peer, err)
	f.Message += p.Names()
	return f
}

func (p *Progress) finding(peer string, err error) check.Finding {
	f := Finding(peer, err)
	if _, coded := errors.AsType[Coded](err); coded || f.Reason != check.ReasonTimeout {
		return f
	}
	took := time.Since(p.started).Round(time.Millisecond)
	switch p.stage.Load() {
	case connecting:
		f.Message = fmt.Sprintf("%s did not accept a connection within %s: packets are lost or dropped by a firewall%s",
			peer, took, p.others())
	case handshaking:
		f.Message = fmt.Sprintf("%s accepted a connection, but did not complete the TLS handshake within %s: "+
			"large packets may be lost on the path (a check of type mtu tells)", peer, took)
	default:
		f.Message = fmt.Sprintf("%s took the request, but did not answer within %s", peer, took)
	}
	return f
}

// others describes what became of each address, where there are several.
func (p *Progress) others() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.addresses) < 2 {
		return ""
	}
	var findings []check.Finding
	for address, err := range p.addresses {
		if err != nil {
			findings = append(findings, Finding(address, err))
		}
	}
	if len(findings) == 0 {
		return ""
	}
	return " (" + check.Worst(findings).Message + ")"
}
