// Package tcp is the check type tcp: addresses accept connections, or do not.
package tcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	mdns "github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// The IP families.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

// What is expected of an address.
const (
	// ExpectOpen is an address that accepts connections.
	ExpectOpen = "open"
	// ExpectClosed is an address that refuses, resets or does not answer.
	ExpectClosed = "closed"
)

// Settings connects to addresses.
type Settings struct {
	// Addresses are host:port pairs. A host name is resolved as in a pod, and one of its addresses must connect (with
	// expect: closed, none may).
	Addresses []string `json:"addresses,omitempty"`
	// KubernetesService adds KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to the
	// addresses. Default: true when there are no addresses.
	KubernetesService *bool `json:"kubernetesService,omitempty"`
	// Expect is open (default) or closed: the connection is refused, reset or not answered.
	Expect string `json:"expect,omitempty" enum:"open closed"`
	// IPFamilies to try, IPv4 and IPv6. A host must have an address in each listed family, and one of each must connect
	// (with expect: closed, none may). Default: one family is enough.
	IPFamilies []string `json:"ipFamilies,omitempty" enum:"IPv4 IPv6"`
}

// Validate checks the rules that concern more than one setting.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range s.Addresses {
		if err := resolver.ValidateHostPort(a); err != nil {
			errs = append(errs, field.Invalid(p.Child("addresses").Index(i), a, err.Error()))
		}
	}
	if len(s.Addresses) == 0 && s.KubernetesService != nil && !*s.KubernetesService {
		errs = append(errs,
			field.Required(p.Child("addresses"), "with kubernetesService: false there is nothing to connect to"))
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

// closedWait is how long to wait for an address that should be closed. A firewall drops packets; a connection that
// opens does so much sooner.
const closedWait = 3 * time.Second

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	t := ptr.Deref(s, Settings{})
	addresses := slices.Clone(t.Addresses)
	if ptr.Deref(t.KubernetesService, len(t.Addresses) == 0) {
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

// try tries one host:port. If it must be closed, all of its addresses must be; if it must be open, one address in each
// requested family is enough.
func try(ctx context.Context, t Settings, address string, r *resolver.Resolver) []check.Finding {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return []check.Finding{check.Fail(check.ReasonNoAddress, "%s is not host:port", address)}
	}
	var addrs []netip.Addr
	var answer resolver.Answer
	resolved := retry.Finding(ctx, 0, func(ctx context.Context) check.Finding {
		if addrs, answer, err = r.LookupAddrs(ctx, host); err != nil {
			reason, phrase := neterror.Of(err)
			return check.Fail(reason, "%s", phrase)
		}
		return t.lost(host, answer)
	})
	if !resolved.Passed() {
		return []check.Finding{resolved}
	}
	if name := answer.Through(host); name != "" {
		host += ", as " + name
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
			findings[i] = []check.Finding{noAddress(check.ReasonNoAddress, host, t.IPFamilies[i], answer)}
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

// lost fails if the answer for a family that is asked for is lost, which may pass by itself.
func (s Settings) lost(host string, answer resolver.Answer) check.Finding {
	for _, n := range answer.Notes {
		if family := families[n.Qtype]; slices.Contains(s.IPFamilies, family) && n.Reason.Transient() {
			return noAddress(check.ReasonResolutionUnavailable, host, family, answer)
		}
	}
	return check.Pass("")
}

// families are the record types' IP families.
var families = map[uint16]string{mdns.TypeA: IPv4, mdns.TypeAAAA: IPv6}

// noAddress is the finding of a name without an address of a family, with what DNS answered for it.
func noAddress(reason check.Reason, host, family string, answer resolver.Answer) check.Finding {
	f := check.Fail(reason, "%s has no %s address", host, family)
	for _, n := range answer.Notes {
		if families[n.Qtype] == family {
			f.Message += " (" + n.String() + ")"
		}
	}
	return f
}

// anyOf passes if one of a name's addresses connects, which is enough for a program that uses the name.
func anyOf(ctx context.Context, host string, addrs []netip.Addr, port string) check.Finding {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	findings := make([]check.Finding, len(addrs))
	recovery.Each(len(addrs), func(i int) {
		if findings[i] = connect(ctx, false, host, addrs[i], port); findings[i].Passed() {
			cancel() // do not wait for the others
		}
	})
	if i := slices.IndexFunc(findings, check.Finding.Passed); i >= 0 {
		return findings[i]
	}
	return check.Worst(findings)
}

func familyOf(a netip.Addr) string {
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
	took, err := Connect(attempt, address)
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
	if closed && ctx.Err() == nil { // else it was not tried for long enough
		if reason == check.ReasonUnreachable && !nodeHasFamily(address) {
			return check.Fail(check.ReasonNoAddress,
				"%s: this node has no address of that IP family, so the check proves nothing about it", who)
		}
		switch reason {
		case check.ReasonConnectionRefused, check.ReasonConnectionReset, check.ReasonTimeout, check.ReasonUnreachable,
			check.ReasonPermissionDenied:
			return check.Pass("%s is closed, as expected (%s)", who, reason)
		}
	}
	return check.Fail(reason, "%s %s", who, phrase)
}

func summarise(findings []check.Finding) check.Finding {
	failures := slices.DeleteFunc(slices.Clone(findings), check.Finding.Passed)
	if len(failures) == 0 {
		return check.Pass("%s", join(findings))
	}
	f := failures[0]
	f.Message = join(failures)
	if passed := len(findings) - len(failures); passed > 0 {
		f.Message += fmt.Sprintf("; %d of %d addresses are as expected", passed, len(findings))
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

// nodeHasFamily reports whether this node has an address from which the given one could be reached, whatever the
// routes.
func nodeHasFamily(address string) bool {
	target, err := netip.ParseAddrPort(address)
	own, ownErr := net.InterfaceAddrs()
	return err != nil || ownErr != nil || hasFamily(own, target.Addr())
}

// hasFamily reports whether one of the addresses can reach the target. A loopback or link-local address reaches only
// others of its kind.
func hasFamily(own []net.Addr, target netip.Addr) bool {
	for _, a := range own {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		local := prefix.Addr().Unmap()
		if familyOf(local) == familyOf(target) && (global(local) || !global(target)) {
			return true
		}
	}
	return false
}

func global(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() }
