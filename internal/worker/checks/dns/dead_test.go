package dns_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestOneDeadServer checks a server of resolv.conf that fails at once beside one that answers: every resolver asks the
// next one at once, so pods do not notice.
func TestOneDeadServer(t *testing.T) {
	good := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	noTCP := dnstest.Start(t, dnstest.Behaviour{Zone: zone, NoTCP: true})
	silent := dnstest.Start(t, dnstest.Behaviour{DropUDP: true})
	broken := dnstest.Start(t, dnstest.Behaviour{Rcode: mdns.RcodeServerFailure})
	refuses := netip.MustParseAddrPort("127.0.0.1:1")
	// No route, or no address of the family, wherever the tests run without IPv6.
	six := netip.MustParseAddrPort("[2001:db8::53]:53")
	for _, c := range []struct {
		name     string
		servers  []netip.AddrPort
		settings dns.Settings
		timeout  time.Duration
		outcome  check.Outcome
		reason   check.Reason
		says     string
	}{
		{"refuses", []netip.AddrPort{refuses, good}, dns.Settings{}, 5 * time.Second,
			check.Warned, check.ReasonConnectionRefused, "127.0.0.1:1 over UDP refused the connection"},
		{"refuses, the second one", []netip.AddrPort{good, refuses}, dns.Settings{}, 5 * time.Second,
			check.Warned, check.ReasonConnectionRefused, "10.96.0.1 from 2 servers"},
		{"is of the other family", []netip.AddrPort{six, good}, dns.Settings{}, 5 * time.Second,
			check.Warned, check.ReasonUnreachable, "[2001:db8::53]:53 over UDP is unreachable"},
		{"needs a zone", []netip.AddrPort{netip.MustParseAddrPort("[fe80::1]:53"), good}, dns.Settings{},
			5 * time.Second, check.Warned, check.NoReason, "[fe80::1]:53 over UDP"}, // EINVAL, of any reason
		{"answers over UDP alone", []netip.AddrPort{noTCP, good},
			dns.Settings{Protocols: []string{resolver.UDP, resolver.TCP}}, 5 * time.Second,
			check.Warned, check.ReasonConnectionRefused, "over TCP refused"},
		{"is silent", []netip.AddrPort{silent, good}, dns.Settings{}, brief, check.Failed, check.ReasonTimeout, ""},
		{"is broken", []netip.AddrPort{broken, good}, dns.Settings{}, brief, check.Failed, check.ReasonServerFailure, ""},
		{"all refuse", []netip.AddrPort{refuses, netip.MustParseAddrPort("127.0.0.2:1")}, dns.Settings{}, brief,
			check.Failed, check.ReasonConnectionRefused, ""},
		{"the other one is broken", []netip.AddrPort{refuses, broken}, dns.Settings{}, brief,
			check.Failed, check.ReasonConnectionRefused, "SERVFAIL"},
		{"the only one that is asked", []netip.AddrPort{good}, dns.Settings{Resolver: refuses.String()}, brief,
			check.Failed, check.ReasonConnectionRefused, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(c.says, "[2001") {
				if conn, err := (&mdns.Client{}).Dial(six.String()); err == nil {
					_ = conn.Close()
					t.Log("not tested: this host has an IPv6 address, so the server is silent, and does not fail at once")
					return
				}
			}
			began := time.Now()
			r := pod(c.servers...)
			if c.outcome == check.Warned {
				r.Config.Timeout = 2 * time.Second
			}
			f := lookFor(t, c.timeout, &c.settings, r)
			sameReason := c.reason == check.NoReason || f.Reason == c.reason
			if f.Outcome != c.outcome || !sameReason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
			if took := time.Since(began); f.Passed() && took > 3*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}
