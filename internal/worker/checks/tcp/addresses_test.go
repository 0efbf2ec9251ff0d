package tcp_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestAllAddressesAreNamed checks a name with several addresses that fail in different ways: all are named, and the
// worst decides, whichever fails last and in whatever order DNS answers them.
func TestAllAddressesAreNamed(t *testing.T) {
	hole := blackHole(t)
	_, port, _ := net.SplitHostPort(hole)
	// Nothing listens on 127.0.0.2, and a link-local address leads nowhere without a zone.
	server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{
		"a.example.": {"A 127.0.0.2", "AAAA fe80::1"},
		"b.example.": {"A 127.0.0.3", "A 127.0.0.2", "AAAA fe80::2", "AAAA fe80::1"},
		"c.example.": {"A 127.0.0.2", "A 127.0.0.3"},
		"d.example.": {"A 127.0.0.3", "A 127.0.0.2"},
		"e.example.": {"A 127.0.0.2", "A 127.0.0.1", "AAAA fe80::1"},
	}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 1, Timeout: 5 * time.Second,
		Attempts: 1}}
	for _, c := range []struct {
		name   string
		reason check.Reason
		says   []string // in this order
	}{
		{"a.example", check.ReasonConnectionRefused, []string{"127.0.0.2", "refused", "fe80::1", "unreachable"}},
		{"b.example", check.ReasonConnectionRefused, []string{"127.0.0.2", "127.0.0.3", "fe80::1", "fe80::2"}},
		{"c.example", check.ReasonConnectionRefused, []string{"127.0.0.2", "127.0.0.3"}},
		{"d.example", check.ReasonConnectionRefused, []string{"127.0.0.2", "127.0.0.3"}},
		{"e.example", check.ReasonTimeout, []string{"127.0.0.1", "did not answer", "127.0.0.2", "refused", "fe80::1"}},
	} {
		for kind, settings := range map[string]interface {
			New(environment.Pod) check.Func
		}{
			"tcp":  &tcp.Settings{Addresses: []string{c.name + ":" + port}},
			"http": &httpcheck.Settings{URL: "http://" + c.name + ":" + port},
			"mtu":  &mtu.Settings{Address: c.name + ":" + port},
		} {
			t.Run(c.name+" "+kind, func(t *testing.T) {
				t.Parallel()
				ctx, times := context.Background(), 5 // without a deadline, a check tries once
				if c.reason == check.ReasonTimeout {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 900*time.Millisecond)
					defer cancel()
					times = 1
				}
				for range times {
					f := settings.New(environment.Pod{Resolver: r})(ctx)
					rest, found := f.Message, true
					for _, part := range c.says {
						if _, rest, found = strings.Cut(rest, part); !found {
							break
						}
					}
					if f.Reason != c.reason || !found {
						t.Fatalf("got %+v", f)
					}
				}
			})
		}
	}
}

// TestAZoneThatLeadsNowhere checks that a missing network interface is named.
func TestAZoneThatLeadsNowhere(t *testing.T) {
	for address, says := range map[string]string{
		"[fe80::1%eth99]:53": "there is no network interface eth99 here",
		"[fe80::1%9999]:53":  "there is no network interface 9999 here",
		"[fe80::1]:53":       "needs a zone",
	} {
		f := (&tcp.Settings{Addresses: []string{address}}).New(environment.Pod{Resolver: &resolver.Resolver{}})(t.Context())
		if f.Reason != check.ReasonUnreachable || !strings.Contains(f.Message, says) {
			t.Errorf("%s: got %+v", address, f)
		}
	}
}

// TestCausesOfAnErrorNumber checks that a message has the causes that are not to be seen from the number's own text.
func TestCausesOfAnErrorNumber(t *testing.T) {
	for errno, want := range map[syscall.Errno]struct {
		reason check.Reason
		says   string
	}{
		syscall.EHOSTUNREACH: {check.ReasonUnreachable, "no route to host, or a firewall rejects it"},
		syscall.ENETUNREACH:  {check.ReasonUnreachable, "network is unreachable, or a firewall rejects it"},
		syscall.EPERM: {check.ReasonPermissionDenied,
			"operation not permitted: a packet filter, or the connection table is full"},
		syscall.EACCES: {check.ReasonPermissionDenied, "a firewall rejects it, or its route is of type prohibit"},
	} {
		reason, phrase := neterror.Of(&net.OpError{Op: "dial", Err: errno})
		if reason != want.reason || !strings.Contains(phrase, want.says) {
			t.Errorf("%s: got %s: %s", errno, reason, phrase)
		}
	}
}
