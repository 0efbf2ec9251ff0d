package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// Resolver resolves host names for the checks that connect to them.
type Resolver struct {
	Config Config
	// Hosts are from LoadHosts, and take precedence over DNS.
	Hosts map[string][]netip.Addr
	// Err is why there is no configuration; every lookup of a name fails with it.
	Err error
}

// LookupAddrs resolves a host name to its addresses by /etc/hosts, or else by Query. It returns an IP address as it is.
// The answer is that of DNS, empty if DNS was not asked.
func (r *Resolver) LookupAddrs(ctx context.Context, host string) ([]netip.Addr, Answer, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, Answer{}, nil
	}
	if addrs := r.Hosts[hostKey(host)]; len(addrs) > 0 {
		return addrs, Answer{}, nil
	}
	answer, err := r.Query(ctx, host, mdns.TypeA, mdns.TypeAAAA)
	if err != nil {
		return nil, Answer{}, err
	}
	addrs := answer.Addrs()
	if len(addrs) == 0 {
		return nil, Answer{}, &HostError{host, check.ReasonResolutionFailed, "the answer holds no address"}
	}
	return addrs, answer, nil
}

// Query looks a name up at the servers of resolv.conf, as libc does: it queries the next server if one does not answer.
// The error is always a *HostError. Its reason is ReasonResolutionFailed if a server answers that the name has no such
// records, and the transient ReasonResolutionUnavailable if no server answers.
func (r *Resolver) Query(ctx context.Context, name string, qtypes ...uint16) (Answer, error) {
	if r.Err != nil {
		return Answer{}, &HostError{name, check.ReasonNoServers, r.Err.Error()}
	}
	if len(r.Config.Servers) == 0 {
		return Answer{}, &HostError{name, check.ReasonNoServers, r.Config.NoServers()}
	}
	var failures []string
	code := check.ReasonResolutionFailed
	for i, addr := range r.Config.Servers {
		server := r.Config.Server(addr, r.Config.Protocol())
		if deadline, bounded := ctx.Deadline(); bounded && i+1 < len(r.Config.Servers) {
			share := time.Until(deadline) / time.Duration(len(r.Config.Servers)-i)
			server.Attempts, server.Timeout = 1, min(server.Timeout, share)
		}
		a, err := r.Config.Lookup(ctx, server, name, qtypes...)
		reason := RcodeReason(a.Rcode)
		if failure, ok := errors.AsType[*Error](err); ok {
			reason = failure.Code
		}
		if reason.Transient() {
			code = check.ReasonResolutionUnavailable
		}
		switch {
		case err != nil:
			failures = append(failures, err.Error())
		case a.Rcode == mdns.RcodeSuccess && len(a.Records) > 0:
			return a, nil
		case a.Rcode == mdns.RcodeNameError || a.Rcode == mdns.RcodeSuccess:
			return Answer{}, &HostError{name, check.ReasonResolutionFailed, a.says(addr, name, qtypes)}
		default:
			failures = append(failures, a.says(addr, name, qtypes))
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			code = check.ReasonInterrupted
		}
		if ctx.Err() != nil {
			break
		}
	}
	return Answer{}, &HostError{name, code, strings.Join(failures, "; ")}
}

// says describes an answer without records to a name, with what each type got.
func (a Answer) says(server netip.AddrPort, asked string, qtypes []uint16) string {
	text := server.String()
	if name := a.Through(asked); name != "" {
		text += ", asked for " + name + ","
	}
	var each []string
	isSame := true
	for _, t := range qtypes {
		says := RcodeText(mdns.RcodeSuccess)
		if i := slices.IndexFunc(a.Notes, func(n Note) bool { return n.Qtype == t }); i >= 0 {
			says = a.Notes[i].Text
		}
		each = append(each, says+" for "+mdns.TypeToString[t])
		isSame = isSame && says == RcodeText(a.Rcode)
	}
	if isSame {
		each = []string{RcodeText(a.Rcode)}
	}
	text += " says " + strings.Join(each, " and ")
	if a.Other != "" {
		text += ": " + a.Other
	}
	return text
}

// NoServers is why there are no servers.
func (c Config) NoServers() string {
	return strings.Join(append([]string{"resolv.conf names no server"}, c.Odd...), "; ")
}

// Server is a server with the timeout and attempts of resolv.conf, though at least two: the second goes without EDNS0.
func (c Config) Server(addr netip.AddrPort, protocol string) Server {
	return Server{Addr: addr, Protocol: protocol, Timeout: c.Timeout, Attempts: max(c.Attempts, 2),
		stray: new(atomic.Pointer[netip.AddrPort])}
}

// HostError is a host name that does not resolve.
type HostError struct {
	Host string
	Code check.Reason
	Text string
}

func (e *HostError) Error() string { return fmt.Sprintf("%s does not resolve: %s", e.Host, e.Text) }

// Reason is the check's reason.
func (e *HostError) Reason() check.Reason { return e.Code }

// Sentence marks Error as a sentence for package neterror.
func (e *HostError) Sentence() bool { return true }

// DialContext connects to host:port and resolves the host as a pod does. It tries all addresses of a name at the same
// time: the first connection wins, so that an address that drops packets costs no time.
func (r *Resolver) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = recovery.Try(func() error { // net/http calls it in its own goroutines
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		lookup, cancel := beforeRequest(ctx)
		addrs, answer, err := r.LookupAddrs(lookup, host)
		cancel()
		if err != nil {
			return err
		}
		neterror.Resolved(ctx, host, answer.Through(host))
		conn, err = DialAny(ctx, net.Dialer{}, network, addrs, port)
		return err
	})
	return conn, err
}

// beforeRequest ends a lookup shortly before the request that it is for, so that the names of the search list share the
// request's time, and its error is that of the lookup.
func beforeRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline := neterror.Deadline(ctx)
	if deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(500*time.Millisecond, time.Until(deadline)/10)))
}

// DialAny connects to the address that answers first. If none connects, the error names all, as neterror.OfAddresses.
func DialAny(
	ctx context.Context, dialer net.Dialer, network string, addrs []netip.Addr, port string,
) (net.Conn, error) {
	type attempt struct {
		address string
		conn    net.Conn
		err     error
	}
	ctx, cancel := context.WithCancel(ctx)
	attempts := make(chan attempt, len(addrs))
	for _, a := range addrs {
		recovery.Go(func() {
			address := net.JoinHostPort(a.String(), port)
			conn, err := dialer.DialContext(ctx, network, address)
			attempts <- attempt{address, conn, err}
		}, func(p *recovery.Panic) { attempts <- attempt{err: p} })
	}
	var addresses []string
	var errs []error
	for left := len(addrs); left > 0; left-- {
		a := <-attempts
		if _, panicked := errors.AsType[*recovery.Panic](a.err); panicked {
			cancel()
			return nil, a.err
		}
		if a.err != nil {
			addresses, errs = append(addresses, a.address), append(errs, a.err)
			continue
		}
		cancel()
		recovery.Go(func() {
			for range left - 1 {
				if late := <-attempts; late.err == nil {
					_ = late.conn.Close()
				}
			}
		}, func(*recovery.Panic) {})
		return a.conn, nil
	}
	cancel()
	return nil, neterror.OfAddresses(addresses, errs)
}
