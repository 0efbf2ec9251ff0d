package dns_test

import (
	"context"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestServersWithoutEDNS0 checks that a server which does not handle EDNS0 (golang/go#65197, golang/go#67925) passes
// with a warning: libc resolves there, because it does not use EDNS0 by default, and Go's resolver does not.
func TestServersWithoutEDNS0(t *testing.T) {
	for _, c := range []struct {
		name, says string
		edns       func(mdns.ResponseWriter, *mdns.Msg)
	}{
		{"drops", "did not answer", dnstest.Drop},
		{"FORMERR", "answered FORMERR", dnstest.FormatError},
		{"NOTIMP", "answered NOTIMP", dnstest.Rcode(mdns.RcodeNotImplemented)},
		{"SERVFAIL", "answered SERVFAIL", dnstest.Rcode(mdns.RcodeServerFailure)},
		{"REFUSED", "answered REFUSED", dnstest.Rcode(mdns.RcodeRefused)},
		{"BADVERS", "answered BADVERS", dnstest.Rcode(mdns.RcodeBadVers)},
		{"an OPT record among the answers", "put the OPT record into the wrong section", dnstest.Append},
		{"an OPT record in the authority section", "put the OPT record into the wrong section",
			func(w mdns.ResponseWriter, a *mdns.Msg) {
				a.SetEdns0(1232, false)
				a.Ns, a.Extra = a.Extra, nil
				_ = w.WriteMsg(a)
			}},
		{"garbage", "not a DNS answer", func(w mdns.ResponseWriter, a *mdns.Msg) {
			packed, _ := a.Pack()
			_, _ = w.Write(packed[:len(packed)-3])
		}},
		{"sends the query back", "a query instead of an answer", func(w mdns.ResponseWriter, a *mdns.Msg) {
			a.Response = false
			_ = w.WriteMsg(a)
		}},
	} {
		for _, protocol := range []string{resolver.UDP, resolver.TCP} {
			t.Run(c.name+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				server := dnstest.Start(t, dnstest.Behaviour{Zone: zone, EDNS: c.edns})
				r := pod(server)
				r.Config.Timeout = 3 * time.Second // in which there is a third query
				f := lookFor(t, 10*time.Second, &dns.Settings{Name: "dual.example", Protocols: []string{protocol}}, r)
				if f.Outcome != check.Warned || f.Reason != check.ReasonEDNSFailed ||
					!strings.Contains(f.Message, "only without EDNS0") || !strings.Contains(f.Message, c.says) {
					t.Errorf("got %+v", f)
				}
				addrs, _, err := r.LookupAddrs(context.Background(), "dual.example")
				if err != nil || len(addrs) != 2 {
					t.Errorf("got %v, %v", addrs, err)
				}
			})
		}
	}
	t.Run("closes the connection", func(t *testing.T) {
		r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, EDNS: dnstest.Close}))
		f := look(t, &dns.Settings{Name: "dual.example.", Protocols: []string{resolver.TCP}}, r)
		if f.Reason != check.ReasonEDNSFailed || !f.Passed() {
			t.Errorf("got %+v", f)
		}
	})
}

// TestEDNS0IsDroppedWithinShortTimeouts checks the timeouts of resolv.conf that leave no time for a third query.
func TestEDNS0IsDroppedWithinShortTimeouts(t *testing.T) {
	for _, c := range []struct {
		timeout  time.Duration
		attempts int
	}{{time.Second, 1}, {time.Second, 2}, {3 * time.Second, 1}, {300 * time.Millisecond, 2}} {
		for _, protocol := range []string{resolver.UDP, resolver.TCP} {
			t.Run(c.timeout.String()+" "+protocol, func(t *testing.T) {
				t.Parallel()
				r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, EDNS: dnstest.Drop}))
				r.Config.Timeout, r.Config.Attempts = c.timeout, c.attempts
				f := lookFor(t, 10*time.Second, &dns.Settings{Name: "dual.example", Protocols: []string{protocol}}, r)
				if f.Outcome != check.Warned || f.Reason != check.ReasonEDNSFailed {
					t.Errorf("got %+v", f)
				}
			})
		}
	}
}

// TestEDNS0IsNotBlamed checks faults that have nothing to do with EDNS0.
func TestEDNS0IsNotBlamed(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{Zone: zone, Rcode: mdns.RcodeBadVers})
	f := lookFor(t, brief, &dns.Settings{Name: "dual.example."}, pod(server))
	if f.Outcome != check.Failed || strings.Contains(f.Message, "BADSIG") {
		t.Errorf("got %+v", f)
	}
	// The fault has passed when the query is sent without EDNS0.
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, FailFirst: 1}))
	f = look(t, &dns.Settings{Name: "dual.example.", RecordType: "A"}, r)
	if !f.Passed() || strings.Contains(f.Message, "EDNS0") {
		t.Errorf("got %+v", f)
	}
	for _, b := range []dnstest.Behaviour{{DropUDP: true}, {Rcode: mdns.RcodeServerFailure}, {NoTCP: true}} {
		b.Zone = zone
		protocol := resolver.UDP
		if b.NoTCP {
			protocol = resolver.TCP
		}
		f := lookFor(t, brief, &dns.Settings{Name: "dual.example.", Protocols: []string{protocol}}, pod(dnstest.Start(t, b)))
		if f.Outcome != check.Failed || strings.Contains(f.Message, "EDNS") {
			t.Errorf("got %+v", f)
		}
	}
}
