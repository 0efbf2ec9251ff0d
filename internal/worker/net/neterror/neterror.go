// Package neterror turns the errors of connections, TLS handshakes and the Kubernetes API into
// the reasons of package check and words for a person.
package neterror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// A Coded error knows its own reason.
type Coded interface {
	error
	Reason() check.Reason
}

// Subject is a Coded error whose text names what it is about itself, and is a sentence already.
type Subject interface {
	Coded
	Sentence() bool
}

// Finding is why an operation on a peer failed, as a whole sentence.
func Finding(peer string, err error) check.Finding {
	reason, phrase := Of(err)
	separator := " "
	var subject Subject
	if errors.As(err, &subject) && subject.Sentence() {
		separator = ": "
	}
	return check.Fail(reason, "%s%s%s", peer, separator, phrase)
}

// Of is why an operation on the network failed. The phrase completes a sentence that
// begins with the peer: "10.0.0.1:443" + " " + "refused the connection".
func Of(err error) (check.Reason, string) {
	var coded Coded
	if errors.As(err, &coded) {
		return coded.Reason(), coded.Error()
	}
	if reason, phrase := classifyTLS(err); reason != check.NoReason {
		return reason, phrase
	}
	switch {
	case IsTimeout(err):
		return check.ReasonTimeout, "did not answer in time"
	case errors.Is(err, context.Canceled):
		return check.ReasonInterrupted, "was not waited for: the worker was told to stop"
	case errors.Is(err, syscall.ECONNREFUSED):
		return check.ReasonConnectionRefused, "refused the connection: nothing listens there, or a firewall rejects it"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return check.ReasonConnectionReset, "reset the connection"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL),
		errors.Is(err, syscall.ENETDOWN), errors.Is(err, syscall.EHOSTDOWN), errors.Is(err, syscall.EAFNOSUPPORT):
		return check.ReasonUnreachable, "is unreachable: " + errno(err)
	case errors.Is(err, os.ErrPermission):
		return check.ReasonPermissionDenied, "may not be contacted: " + errno(err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return check.ReasonConnectionReset, "closed the connection without an answer"
	}
	return check.ReasonConnectionFailed, "failed: " + err.Error()
}

// IsTimeout is true for an error that says that time ran out, on a deadline of a connection
// or of a context, or in the operating system.
func IsTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT) || (errors.As(err, &ne) && ne.Timeout())
}

// classifyTLS tells the ways apart in which a handshake fails. A certificate outside its
// validity is as often the doing of a node whose clock is wrong, so both times are named.
func classifyTLS(err error) (check.Reason, string) {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return validity(invalid.Cert, time.Now())
	case errors.As(err, &name):
		return check.ReasonCertificateName, "presented a certificate for another name: " + name.Error()
	case errors.As(err, &authority):
		return check.ReasonUntrustedAuthority, "presented a certificate of an authority that is not trusted here: " + authority.Error()
	case errors.As(err, &record):
		return check.ReasonTLSFailed, "does not speak TLS: " + record.Msg
	case errors.As(err, &invalid), errors.As(err, &verify):
		return check.ReasonTLSFailed, "presented an unusable certificate: " + err.Error()
	case errors.As(err, &alert):
		return check.ReasonTLSFailed, "ended the TLS handshake: " + alert.Error()
	}
	return check.NoReason, ""
}

func validity(cert *x509.Certificate, now time.Time) (check.Reason, string) {
	if now.Before(cert.NotBefore) {
		return check.ReasonCertificateNotYet, fmt.Sprintf(
			"presented a certificate that is not valid before %s, and this node's clock says %s: the clock is the suspect",
			stamp(cert.NotBefore), stamp(now))
	}
	return check.ReasonCertificateExpired, fmt.Sprintf(
		"presented a certificate that expired at %s, and this node's clock says %s: either it was not renewed or the clock is wrong",
		stamp(cert.NotAfter), stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func errno(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}
