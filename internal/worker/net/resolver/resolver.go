package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// Resolver resolves host names for the checks that connect to them.
type Resolver struct {
	Config Config
	// Hosts come before DNS.
	Hosts Hosts
	// Err is why there is no configuration; every look-up of a name fails with it.
	Err error
}

// LookupAddrs resolves a host name to its addresses, by /etc/hosts or else through the servers of
// resolv.conf in their order, as libc does: the next server is asked when one does not answer.
// An IP address is its own answer. The error says which servers failed and how.
func (r *Resolver) LookupAddrs(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	if addrs := r.Hosts[hostKey(host)]; len(addrs) > 0 {
		return addrs, nil
	}
	answer, err := r.Query(ctx, host, mdns.TypeA, mdns.TypeAAAA)
	if err != nil {
		return nil, err
	}
	addrs := answer.Addrs()
	if len(addrs) == 0 {
		return nil, &HostError{host, check.ReasonResolutionFailed, "the answer holds no address"}
	}
	return addrs, nil
}

// Query looks the name up through the servers of resolv.conf in their order, as libc does. A name without such
// records is an error, which is always a *HostError: of ReasonResolutionFailed if a server says so, of
// ReasonResolutionUnavailable, and worth asking again, if none answered.
func (r *Resolver) Query(ctx context.Context, name string, qtypes ...uint16) (Answer, error) {
	if r.Err != nil {
		return Answer{}, &HostError{name, check.ReasonNoServers, r.Err.Error()}
	}
	if len(r.Config.Servers) == 0 {
		return Answer{}, &HostError{name, check.ReasonNoServers, "resolv.conf names no server"}
	}
	var failures []string
	code := check.ReasonResolutionFailed
	for i, addr := range r.Config.Servers {
		server := r.Config.Server(addr, UDP)
		if deadline, bounded := ctx.Deadline(); bounded && i+1 < len(r.Config.Servers) {
			share := time.Until(deadline) / time.Duration(len(r.Config.Servers)-i)
			server.Attempts, server.Timeout = 1, min(server.Timeout, share)
		}
		a, err := r.Config.Lookup(ctx, server, name, qtypes...)
		reason := RcodeReason(a.Rcode)
		var failure *Error
		if errors.As(err, &failure) {
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
			text := fmt.Sprintf("%s says %s", addr, RcodeText(a.Rcode))
			return Answer{}, &HostError{name, check.ReasonResolutionFailed, text}
		default:
			failures = append(failures, fmt.Sprintf("%s says %s", addr, RcodeText(a.Rcode)))
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

// Server is a server to be asked with the timeout and attempts of resolv.conf.
func (c Config) Server(addr netip.AddrPort, protocol string) Server {
	return Server{Addr: addr, Protocol: protocol, Timeout: c.Timeout, Attempts: c.Attempts}
}

// HostError is a host name's failure to resolve.
type HostError struct {
	Host string
	Code check.Reason
	Text string
}

func (e *HostError) Error() string { return fmt.Sprintf("%s does not resolve: %s", e.Host, e.Text) }

// Reason says why in one word.
func (e *HostError) Reason() check.Reason { return e.Code }

// Sentence says that Error is a whole sentence (see package neterror).
func (e *HostError) Sentence() bool { return true }
