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
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

func listen(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// blackHole is an address that swallows connections: a listener whose backlog is full drops
// what comes, as a firewall does.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*syscall.SockaddrInet4).Port)).String()
	silent := 0
	for range 8 {
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err == nil {
			silent = 0
			t.Cleanup(func() { _ = c.Close() })
		} else if silent++; silent == 2 { // one may be slow
			return address
		}
	}
	t.Fatal("the backlog never fills")
	return ""
}

func run(settings *tcp.Settings, r *resolver.Resolver, service string) check.Finding {
	ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
	defer cancel()
	if r == nil {
		r = &resolver.Resolver{}
	}
	host, port, _ := net.SplitHostPort(service)
	return settings.New(environment.Pod{Resolver: r, ServiceHost: host, ServicePort: port})(ctx)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	open := listen(t, "127.0.0.1:0")
	open6 := listen(t, "[::1]:0")
	hole := blackHole(t)
	const refuses = "127.0.0.1:1"
	for _, c := range []struct {
		name     string
		settings *tcp.Settings
		reason   check.Reason
		says     string
	}{
		{"the Kubernetes Service", nil, check.NoReason, open + " connects"},
		{"open", &tcp.Settings{Addresses: []string{open, open6}}, check.NoReason, open6 + " connects"},
		{"refused", &tcp.Settings{Addresses: []string{open, refuses}}, check.ReasonConnectionRefused, refuses + " refused the connection: nothing listens there, or a firewall rejects it; 1 of 2 addresses are as expected"},
		{"blackholed", &tcp.Settings{Addresses: []string{hole}}, check.ReasonTimeout, "packets are lost or dropped"},
		{"closed because refused", &tcp.Settings{Addresses: []string{refuses}, Expect: "closed"}, check.NoReason, "ConnectionRefused"},
		{"closed because dropped", &tcp.Settings{Addresses: []string{hole}, Expect: "closed"}, check.NoReason, "Timeout"},
		{"open although it should not be", &tcp.Settings{Addresses: []string{refuses, open}, Expect: "closed"}, check.ReasonUnexpectedlyOpen, open + " accepts connections"},
		{"one family", &tcp.Settings{Addresses: []string{open}, IPFamilies: []string{tcp.IPv6}}, check.ReasonNoAddress, "no IPv6 address"},
	} {
		f := run(c.settings, nil, open)
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %q: %q, want %q with %q", c.name, f.Reason, f.Message, c.reason, c.says)
		}
	}
	if f := run(nil, nil, ""); f.Reason != check.ReasonNoAddress {
		t.Errorf("outside a pod: got %+v", f)
	}
}

func TestNames(t *testing.T) {
	open := listen(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(open)
	server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{
		"dual.example.": {"A 127.0.0.1", "AAAA ::1"}, // nothing listens on ::1
		"four.example.": {"A 127.0.0.1"},
		"dead.example.": {"A 127.0.0.2", "AAAA ::1"},
	}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 1, Timeout: time.Second, Attempts: 1}}
	both := []string{tcp.IPv4, tcp.IPv6}
	for _, c := range []struct {
		name     string
		settings tcp.Settings
		reason   check.Reason
		says     string
	}{
		{"one address is enough", tcp.Settings{Addresses: []string{"dual.example:" + port}}, check.NoReason, "127.0.0.1:" + port + " (dual.example) connects"},
		{"not when both families are asked for", tcp.Settings{Addresses: []string{"dual.example:" + port}, IPFamilies: both}, check.ReasonConnectionRefused,
			"[::1]:" + port + " (dual.example) refused"},
		{"a family without an address", tcp.Settings{Addresses: []string{"four.example:" + port}, IPFamilies: both}, check.ReasonNoAddress, "four.example has no IPv6 address"},
		{"no address connects", tcp.Settings{Addresses: []string{"dead.example:" + port}}, check.ReasonConnectionRefused, "127.0.0.2"},
		{"closed means all of them", tcp.Settings{Addresses: []string{"dual.example:" + port}, Expect: "closed"}, check.ReasonUnexpectedlyOpen, "127.0.0.1"},
		{"no such name", tcp.Settings{Addresses: []string{"missing.example:" + port}}, check.ReasonResolutionFailed, "NXDOMAIN"},
	} {
		f := run(&c.settings, r, "")
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %q: %q, want %q with %q", c.name, f.Reason, f.Message, c.reason, c.says)
		}
	}
}

// A server that answers with a record that holds no address.
func TestANameWithoutAnAddress(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{NoData: true, Zone: map[string][]string{"web.example.": {"A 127.0.0.1"}}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 1, Timeout: time.Second, Attempts: 1}}
	for _, expect := range []string{tcp.ExpectOpen, tcp.ExpectClosed} {
		f := run(&tcp.Settings{Addresses: []string{"web.example:80"}, Expect: expect}, r, "")
		if f.Reason != check.ReasonResolutionFailed || !strings.Contains(f.Message, "record without data") {
			t.Errorf("%s: got %+v", expect, f)
		}
	}
}

func TestInterruption(t *testing.T) {
	for _, expect := range []string{tcp.ExpectOpen, tcp.ExpectClosed} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(30*time.Millisecond, cancel)
		f := (&tcp.Settings{Addresses: []string{blackHole(t)}, Expect: expect}).New(environment.Pod{Resolver: &resolver.Resolver{}})(ctx)
		if f.Reason != check.ReasonInterrupted {
			t.Errorf("%s: got %+v", expect, f)
		}
	}
}

// endsEarly is a context that does not say when it ends, as that of a warning check that the required ones end.
type endsEarly struct{ context.Context }

func (endsEarly) Deadline() (time.Time, bool) { return time.Time{}, false }

// An address is closed if it is silent for as long as that takes, and not if the check was ended before.
func TestNotClosedBecauseTheCheckEnded(t *testing.T) {
	settings := &tcp.Settings{Addresses: []string{blackHole(t)}, Expect: tcp.ExpectClosed}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if f := settings.New(environment.Pod{})(endsEarly{ctx}); f.Reason != check.ReasonTimeout {
		t.Errorf("got %+v", f)
	}
}

// Nothing is proved closed that could not be tried.
func TestClosedInAFamilyThatTheHostLacks(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"four.example.": {"A 127.0.0.1"}}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 1, Timeout: time.Second, Attempts: 1}}
	for _, c := range []struct {
		address  string
		families []string
		reason   check.Reason
		says     string
	}{
		{"127.0.0.1:1", []string{tcp.IPv6}, check.ReasonNoAddress, "127.0.0.1 has no IPv6 address"},
		{"four.example:1", []string{tcp.IPv6}, check.ReasonNoAddress, "four.example has no IPv6 address"},
		{"four.example:1", []string{tcp.IPv4, tcp.IPv6}, check.ReasonNoAddress, "four.example has no IPv6 address; 1 of 2 addresses are as expected"},
		{"four.example:1", []string{tcp.IPv4}, check.NoReason, "is closed"},
		{"four.example:1", nil, check.NoReason, "is closed"},
	} {
		f := run(&tcp.Settings{Addresses: []string{c.address}, Expect: tcp.ExpectClosed, IPFamilies: c.families}, r, "")
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s in %v: got %+v", c.address, c.families, f)
		}
	}
}
