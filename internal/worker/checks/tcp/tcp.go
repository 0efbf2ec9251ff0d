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

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/probe"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// closedWait is how long an address that should be closed may keep silent before that
// counts as closed: firewalls drop, and a connection that does open does so much sooner.
const closedWait = 3 * time.Second

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
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
		recovery.Each(len(addresses), func(i int) { findings[i] = try(ctx, t, addresses[i], pod.Resolver) })
		return summarise(slices.Concat(findings...))
	}
}

// try tries one host:port. What must be closed must be so at each of its addresses; for what must be open, one is
// enough, in each family that is asked for.
func try(ctx context.Context, t Settings, address string, r *resolver.Resolver) []check.Finding {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return []check.Finding{check.Fail(check.ReasonNoAddress, "%s is not host:port", address)}
	}
	var addrs []netip.Addr
	resolved := retry.Finding(ctx, 0, func(ctx context.Context) check.Finding {
		if addrs, err = r.LookupAddrs(ctx, host); err != nil {
			reason, phrase := neterror.Of(err)
			return check.Fail(reason, "%s", phrase)
		}
		return check.Pass("")
	})
	if !resolved.Passed() {
		return []check.Finding{resolved}
	}
	groups := [][]netip.Addr{addrs}
	if len(t.IPFamilies) > 0 {
		groups = make([][]netip.Addr, len(t.IPFamilies))
		for i, family := range t.IPFamilies {
			groups[i] = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return familyOf(a) != family })
		}
	}
	findings := make([][]check.Finding, len(groups))
	recovery.Each(len(groups), func(i int) {
		switch {
		case len(groups[i]) == 0:
			f := check.Fail(check.ReasonNoAddress, "%s has no %s address", host, t.IPFamilies[i])
			findings[i] = []check.Finding{f}
		case t.Expect == ExpectClosed:
			findings[i] = make([]check.Finding, len(groups[i]))
			recovery.Each(len(groups[i]), func(j int) { findings[i][j] = connect(ctx, true, host, groups[i][j], port) })
		default:
			findings[i] = []check.Finding{retry.Finding(ctx, retry.Lost, func(ctx context.Context) check.Finding {
				return anyOf(ctx, host, groups[i], port)
			})}
		}
	})
	return slices.Concat(findings...)
}

// anyOf passes when one of a name's addresses connects, which is all that a program that
// uses the name needs.
func anyOf(ctx context.Context, host string, addrs []netip.Addr, port string) check.Finding {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	findings := make([]check.Finding, len(addrs))
	recovery.Each(len(addrs), func(i int) {
		if findings[i] = connect(ctx, false, host, addrs[i], port); findings[i].Passed() {
			cancel() // the others are not waited for
		}
	})
	if i := slices.IndexFunc(findings, check.Finding.Passed); i >= 0 {
		return findings[i]
	}
	f := findings[0]
	f.Message = join(findings)
	return f
}

func familyOf(a netip.Addr) IPFamily {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// connect tries one address.
func connect(ctx context.Context, closed bool, host string, addr netip.Addr, port string) check.Finding {
	address := net.JoinHostPort(addr.String(), port)
	who := address
	if addr.String() != strings.Trim(host, "[]") {
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
	took, err := probe.Connect(attempt, address)
	if err == nil {
		if closed {
			return check.Fail(check.ReasonUnexpectedlyOpen, "%s accepts connections, but should be closed", who)
		}
		return check.Pass("%s connects in %s", who, took)
	}
	reason, phrase := neterror.Of(err)
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
