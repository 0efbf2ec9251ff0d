package tcp_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dnstest"
	"github.com/kube-node-ready/kube-node-ready/internal/check/resolver"
)

// Nothing is proved closed that could not be tried.
func TestClosedInAFamilyThatTheHostLacks(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"four.example.": {"A 127.0.0.1"}}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 1, Timeout: time.Second, Attempts: 1}}
	for _, c := range []struct {
		address  string
		families []check.IPFamily
		reason   check.Reason
		says     string
	}{
		{"127.0.0.1:1", []check.IPFamily{check.IPv6}, check.ReasonNoAddress, "127.0.0.1 has no IPv6 address"},
		{"four.example:1", []check.IPFamily{check.IPv6}, check.ReasonNoAddress, "four.example has no IPv6 address"},
		{"four.example:1", []check.IPFamily{check.IPv4, check.IPv6}, check.ReasonNoAddress, "four.example has no IPv6 address; 1 of 2 addresses are as expected"},
		{"four.example:1", []check.IPFamily{check.IPv4}, "", "is closed"},
		{"four.example:1", nil, "", "is closed"},
	} {
		f := run(&check.TCP{Addresses: []string{c.address}, Expect: check.ExpectClosed, IPFamilies: c.families}, r, "")
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s in %v: got %+v", c.address, c.families, f)
		}
	}
}
