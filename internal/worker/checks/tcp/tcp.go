// Package tcp is the check type tcp: addresses accept connections, or do not.
package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/around"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/guard"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/cause"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// closedWait is how long an address that should be closed may keep silent before that
// counts as closed: firewalls drop, and a connection that does open does so much sooner.
const closedWait = 3 * time.Second

// New prepares the check.
func (s *Settings) New(pod around.Pod) check.Func {
	t := ptr.Deref(s, Settings{})
	addresses := slices.Clone(t.Addresses)
	if t.withKubernetesService() {
		addresses = append(addresses, pod.Service())
	}
	return func(ctx context.Context) check.Finding {
		if slices.Contains(addresses, "") {
			return check.Fail(check.ReasonNoAddress, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
		}
		findings := make([][]check.Finding, len(addresses))
		guard.Each(len(addresses), func(i int) { findings[i] = try(ctx, t, addresses[i], pod.Resolver) })
		return summarise(slices.Concat(findings...))
	}
}

// try tries every address of one host:port.
func try(ctx context.Context, t Settings, address string, r *resolver.Resolver) []check.Finding {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return []check.Finding{check.Fail(check.ReasonNoAddress, "%s is not host:port", address)}
	}
	addrs, err := r.LookupAddrs(ctx, host)
	if err != nil {
		reason, phrase := cause.Of(err)
		return []check.Finding{check.Fail(reason, "%s", phrase)}
	}
	tried := make([]check.Finding, len(addrs))
	guard.Each(len(addrs), func(i int) {
		if wanted(t.IPFamilies, addrs[i]) {
			tried[i] = connect(ctx, t.Expect == ExpectClosed, host, net.JoinHostPort(addrs[i].String(), port))
		}
	})
	// What must be closed must be so at each address; for what must be open, one is enough.
	closed := t.Expect == ExpectClosed
	if len(t.IPFamilies) == 0 {
		if closed {
			return tried
		}
		return []check.Finding{anyOf(tried)}
	}
	var findings []check.Finding
	for _, family := range t.IPFamilies {
		of := keep(tried, addrs, func(a netip.Addr) bool { return familyOf(a) == family })
		switch {
		case len(of) == 0:
			findings = append(findings, check.Fail(check.ReasonNoAddress, "%s has no %s address", host, family))
		case closed:
			findings = append(findings, of...)
		default:
			findings = append(findings, anyOf(of))
		}
	}
	return findings
}

// anyOf passes when one of a name's addresses connects, which is all that a program that
// uses the name needs.
func anyOf(findings []check.Finding) check.Finding {
	for _, f := range findings {
		if f.Passed() {
			return f
		}
	}
	f := findings[0]
	f.Message = join(findings)
	return f
}

func keep(findings []check.Finding, addrs []netip.Addr, want func(netip.Addr) bool) []check.Finding {
	var kept []check.Finding
	for i, a := range addrs {
		if want(a) {
			kept = append(kept, findings[i])
		}
	}
	return kept
}

func wanted(families []IPFamily, a netip.Addr) bool {
	return len(families) == 0 || slices.Contains(families, familyOf(a))
}

func familyOf(a netip.Addr) IPFamily {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// connect tries one address.
func connect(ctx context.Context, closed bool, host, address string) check.Finding {
	who := address
	if h, _, err := net.SplitHostPort(address); err == nil && h != strings.Trim(host, "[]") {
		who = fmt.Sprintf("%s (%s)", address, host)
	}
	attempt := ctx
	if closed {
		wait := closedWait
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(wait, time.Until(deadline)/2)
		}
		var cancel context.CancelFunc
		attempt, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	start := time.Now()
	var dialer net.Dialer
	conn, err := dialer.DialContext(attempt, "tcp", address)
	took := time.Since(start).Round(time.Millisecond)
	if err == nil {
		_ = conn.Close()
		if closed {
			return check.Fail(check.ReasonUnexpectedlyOpen, "%s accepts connections, but should be closed", who)
		}
		return check.Pass("%s connects in %s", who, took)
	}
	reason, phrase := cause.Of(err)
	if reason == check.ReasonTimeout {
		phrase = fmt.Sprintf("did not answer within %s: packets are lost or dropped by a firewall", took)
	}
	if closed && !errors.Is(ctx.Err(), context.Canceled) {
		if reason == check.ReasonUnreachable && !nodeHasFamily(address) {
			return check.Fail(check.ReasonNoAddress, "%s: this node has no address of that IP family, so nothing is known about it", who)
		}
		switch reason {
		case check.ReasonConnectionRefused, check.ReasonConnectionReset, check.ReasonTimeout, check.ReasonUnreachable, check.ReasonPermissionDenied:
			return check.Pass("%s is closed, as expected (%s)", who, reason)
		}
	}
	return check.Fail(reason, "%s %s", who, phrase)
}

func summarise(findings []check.Finding) check.Finding {
	var failures, passes []check.Finding
	for _, f := range findings {
		if f.Passed() {
			passes = append(passes, f)
		} else {
			failures = append(failures, f)
		}
	}
	if len(failures) == 0 {
		return check.Pass("%s", join(passes))
	}
	f := failures[0]
	f.Message = join(failures)
	if len(passes) > 0 {
		f.Message += fmt.Sprintf("; %d of %d addresses are as expected", len(passes), len(findings))
	}
	return f
}

func join(findings []check.Finding) string {
	var messages []string
	for _, f := range findings {
		messages = append(messages, f.Message)
	}
	return strings.Join(messages, "; ")
}
