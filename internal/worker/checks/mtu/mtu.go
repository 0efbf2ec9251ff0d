// Package mtu is the check type mtu: a segment of a given size reaches a TCP target whole.
//
// This is the classic failure of overlay networks: the MTU of a path is smaller than the node assumes, and the ICMP
// messages that would report it are filtered. Handshakes and small requests pass, but every large packet is lost. The
// check connects with the don't-fragment bit set (IP_PMTUDISC_DO) and writes the payload at once, so that it leaves as
// one segment. It polls the connection's TCP_INFO until the target's kernel has acknowledged the payload.
package mtu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// The ways to send a payload.
const (
	// ProtocolRaw writes the payload as it is; the target's kernel acknowledges it.
	ProtocolRaw = "raw"
	// ProtocolEcho also waits for the target to send the payload back.
	ProtocolEcho = "echo"
	// ProtocolTLS sends a TLS ClientHello of the payload's size and waits for the answer.
	ProtocolTLS = "tls"
)

const (
	// maxPayload exceeds the jumbo frames of every network, and fits one TLS record (16384 bytes, RFC 8446, section 5.1).
	maxPayload = 16_000
	// minHello is the size of a ClientHello without padding.
	minHello = 600
	// poll is how often TCP_INFO is read.
	poll = 2 * time.Millisecond
	// smallEcho is a payload that every path passes: IPv4 hosts must accept packets of 576 bytes (RFC 791, section 3.1).
	smallEcho = 256
)

// Settings sends a payload to a TCP target in one segment that may not be fragmented.
type Settings struct {
	// Address is the target's host:port. Default: the Kubernetes Service, with protocol tls.
	Address string `json:"address,omitempty"`
	// Protocol is raw (default with an address), echo or tls.
	Protocol string `json:"protocol,omitempty" enum:"raw echo tls"`
	// PayloadBytes of the segment, without headers. Default: the largest payload that fits the path according to this
	// node's kernel, at most 16000.
	PayloadBytes *int32 `json:"payloadBytes,omitempty" minimum:"1" maximum:"16000"`
}

// Validate checks the rules that concern more than one setting.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Address != "" {
		if err := resolver.ValidateHostPort(s.Address); err != nil {
			errs = append(errs, field.Invalid(p.Child("address"), s.Address, err.Error()))
		}
	} else if s.Protocol != "" && s.Protocol != ProtocolTLS {
		errs = append(errs, field.Invalid(p.Child("protocol"), s.Protocol,
			"the Kubernetes Service speaks only tls; set an address or remove it"))
	}
	if n := ptr.Deref(s.PayloadBytes, minHello); n < minHello && (s.Protocol == ProtocolTLS || s.Address == "") {
		errs = append(errs, field.Invalid(p.Child("payloadBytes"), n,
			fmt.Sprintf("must be at least %d with protocol tls; remove it to use the default", minHello)))
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

// state is the TCP_INFO of a connection.
type state struct {
	mss, pathMTU int
	// acked counts the payload bytes that the target has acknowledged.
	acked uint64
	// closed is true if the connection has ended.
	closed        bool
	retransmitted int
}

// path is a check with its settings.
type path struct {
	Settings
	resolver *resolver.Resolver
}

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	p := path{Settings: ptr.Deref(s, Settings{}), resolver: pod.Resolver}
	if p.Address == "" {
		p.Address, p.Protocol = pod.Service(), ProtocolTLS
	}
	p.Protocol = cmp.Or(p.Protocol, ProtocolRaw)
	return func(ctx context.Context) check.Finding { return retry.Finding(ctx, retry.Lost, p.run) }
}

func (p path) run(ctx context.Context) check.Finding {
	if p.Address == "" {
		return check.Fail(check.ReasonNoAddress, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
	}
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return check.Fail(check.ReasonConfiguration, "%v", err)
	}
	addrs, answer, err := p.resolver.LookupAddrs(ctx, host)
	if err != nil {
		reason, phrase := neterror.Of(err)
		return check.Fail(reason, "%s", phrase)
	}
	if !supported {
		return check.Fail(check.ReasonUnknown, "the path's MTU can only be examined on Linux")
	}
	named := host
	if name := answer.Through(host); name != "" {
		p.Address += " (" + name + ")"
		named += ", as " + name
	}
	raw, err := resolver.DialAny(ctx, net.Dialer{Control: forbidFragments}, "tcp", addrs, port)
	if err != nil {
		return neterror.Finding(p.Address, err)
	}
	if remote := raw.RemoteAddr().String(); remote != p.Address {
		p.Address = fmt.Sprintf("%s (%s)", remote, named)
	}
	defer func() { _ = raw.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := raw.(*net.TCPConn)
	_ = conn.SetLinger(0) // no retransmission after the check
	return p.send(ctx, conn, host)
}

// send sends the payload and waits until it is acknowledged and answered.
func (p path) send(ctx context.Context, conn *net.TCPConn, host string) check.Finding {
	if p.Protocol == ProtocolEcho {
		if err := echo(conn, text(smallEcho)); err != nil {
			reason, phrase := neterror.Of(err)
			return check.Fail(reason, "%s, sent %d bytes to echo, %s", p.Address, smallEcho, phrase)
		}
	}
	before, err := inspect(conn)
	if err != nil {
		return check.Fail(check.ReasonUnknown,
			"the kernel does not show the state of the connection to %s: %v", p.Address, err)
	}
	payload, failure := p.payload(host, before)
	if failure != nil {
		return *failure
	}
	size := len(payload)
	start := time.Now()
	exchanged := make(chan error, 1)
	recovery.Go(func() { exchanged <- p.exchange(conn, payload) }, func(p *recovery.Panic) { exchanged <- p })
	after, err := awaitAck(ctx, conn, before.acked+uint64(size), exchanged)
	took := time.Since(start).Round(100 * time.Microsecond)
	switch {
	case err != nil:
		return p.lost(ctx, size, before, after, took, err)
	case size > after.mss:
		return *p.tooSmall(size, after)
	}
	if err := <-exchanged; err != nil {
		return p.unanswered(ctx, size, after, err)
	}
	return check.Pass("%d bytes reached %s in one segment in %s (path MTU %d)", size, p.Address, took, after.pathMTU)
}

// unanswered is the finding of a payload that arrived but was not answered. If a small echo was, only its size can have
// kept the large one.
func (p path) unanswered(ctx context.Context, size int, after state, err error) check.Finding {
	reason, phrase := neterror.Of(err)
	if reason != check.ReasonTimeout {
		return check.Fail(reason, "%s %s", p.Address, phrase)
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return check.Fail(check.ReasonInterrupted, "%s was not waited for: the worker was stopped", p.Address)
	}
	if p.Protocol == ProtocolEcho {
		return check.Fail(check.ReasonPathMTUBlackHole, "%s acknowledged %d bytes and echoes small packets, "+
			"but these bytes did not come back: packets of this size are lost on the way back", p.Address, size)
	}
	return check.Fail(check.ReasonTimeout, "%s acknowledged %d bytes in one segment (path MTU %d), but no server behind "+
		"that address answered the ClientHello", p.Address, size, after.pathMTU)
}

func (p path) tooSmall(size int, s state) *check.Finding {
	return check.Failure(check.ReasonPathMTUTooSmall,
		"%d bytes do not fit one segment to %s: at most %d do, with a path MTU of %d",
		size, p.Address, s.mss, s.pathMTU)
}

// lost is the finding of a payload that was not acknowledged.
func (p path) lost(ctx context.Context, size int, before, after state, took time.Duration, err error) check.Finding {
	switch {
	case ctx.Err() == nil:
		reason, phrase := neterror.Of(err)
		return check.Fail(reason, "%s, sent %d bytes, %s", p.Address, size, phrase)
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return check.Fail(check.ReasonInterrupted, "%s was not waited for: the worker was stopped", p.Address)
	case after.mss < size && after.mss > 0:
		return *p.tooSmall(size, after)
	}
	return check.Fail(check.ReasonPathMTUBlackHole,
		"%s accepts connections, but did not acknowledge a segment of %d bytes within %s (sent again %d times): packets "+
			"of this size are lost (path MTU of the kernel: %d)",
		p.Address, size, took, after.retransmitted-before.retransmitted, before.pathMTU)
}

// awaitAck waits until the target has acknowledged so many bytes, or the connection or the exchange has failed. It
// leaves the end of an exchange in its channel for the caller.
func awaitAck(ctx context.Context, conn *net.TCPConn, acked uint64, exchanged chan error) (s state, err error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for ended := exchanged; ; {
		now, err := inspect(conn)
		if err != nil {
			return s, err
		}
		s = now
		switch {
		case s.acked >= acked:
			return s, nil
		case s.closed:
			return s, syscall.ECONNRESET
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				return s, err
			}
			exchanged <- err
			ended = nil
		case <-ticker.C:
		}
	}
}
