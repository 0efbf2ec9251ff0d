package dns_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

var zone = map[string][]string{
	"kubernetes.default.svc.cluster.local.": {"A 10.96.0.1"},
	"dual.example.":                         {"A 192.0.2.1", "AAAA 2001:db8::1"},
	"six.example.":                          {"AAAA 2001:db8::6"},
	"alias.example.":                        {"CNAME dual.example."},
	"empty.example.":                        {"TXT here"},
	"_https._tcp.dual.example.":             {"SRV 0 100 443 dual.example."},
}

// pod is a pod's resolver settings with the kubelet's search domains, impatient.
func pod(servers ...netip.AddrPort) *resolver.Resolver {
	return &resolver.Resolver{Config: resolver.Config{
		Servers: servers, Search: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"},
		Ndots: 5, Timeout: 300 * time.Millisecond, Attempts: 2,
	}}
}

func look(t *testing.T, settings *dns.Settings, r *resolver.Resolver) check.Finding {
	t.Helper()
	return lookFor(t, 5*time.Second, settings, r)
}

// brief is the time of checks that meet what is asked again, until that is used up.
const brief = 800 * time.Millisecond

func lookFor(t *testing.T, timeout time.Duration, settings *dns.Settings, r *resolver.Resolver) check.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return settings.New(environment.Pod{Resolver: r})(ctx)
}

func TestServers(t *testing.T) {
	t.Parallel()
	minusOne := int32(2)
	both := []string{"udp", "tcp"}
	for _, c := range []struct {
		name     string
		server   dnstest.Behaviour
		settings *dns.Settings
		reason   check.Reason
		says     string
	}{
		{"defaults", dnstest.Behaviour{Zone: zone}, nil, check.NoReason, "10.96.0.1"},
		{"both protocols", dnstest.Behaviour{Zone: zone}, &dns.Settings{Protocols: both}, check.NoReason, "over UDP and TCP"},
		{"through the search domains", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "kubernetes"}, check.NoReason, "10.96.0.1"},
		{"absolute names skip the search domains", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "kubernetes."}, check.ReasonNXDomain, "NXDOMAIN"},
		{"alias", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "alias.example.", RecordType: "A"}, check.NoReason, "192.0.2.1"},
		{"IPv6 only", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "six.example."}, check.NoReason, "2001:db8::6"},
		{"no IPv4", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "six.example.", RecordType: "A"}, check.ReasonNoAnswers, "0 A records"},
		{"SRV", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "_https._tcp.dual.example.", RecordType: "SRV"}, check.NoReason, "443 dual.example."},
		{"too few answers", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "six.example.", MinAnswers: &minusOne}, check.ReasonNoAnswers, "at least 2"},
		{"in range", dnstest.Behaviour{Zone: zone}, &dns.Settings{ExpectCIDRs: []string{"10.96.0.0/12"}}, check.NoReason, ""},
		{"out of range", dnstest.Behaviour{Zone: zone}, &dns.Settings{ExpectCIDRs: []string{"10.0.0.0/16"}}, check.ReasonUnexpectedAnswer, "10.96.0.1, which is in none of 10.0.0.0/16"},
		{"name without records", dnstest.Behaviour{Zone: zone}, &dns.Settings{Name: "empty.example."}, check.ReasonNoAnswers, "0 addresses"},
		{"NXDOMAIN", dnstest.Behaviour{}, nil, check.ReasonNXDomain, "NXDOMAIN (the name does not exist)"},
		{"NXDOMAIN wanted", dnstest.Behaviour{}, &dns.Settings{Name: "no.example.", ExpectRcode: "NXDOMAIN"}, check.NoReason, "as expected"},
		{"NXDOMAIN wanted in vain", dnstest.Behaviour{Zone: zone}, &dns.Settings{ExpectRcode: "NXDOMAIN"}, check.ReasonUnexpectedRcode, "expected NXDOMAIN"},
		{"SERVFAIL", dnstest.Behaviour{Rcode: mdns.RcodeServerFailure}, nil, check.ReasonServerFailure, "SERVFAIL"},
		{"REFUSED", dnstest.Behaviour{Rcode: mdns.RcodeRefused}, nil, check.ReasonQueryRefused, "REFUSED"},
		{"another rcode", dnstest.Behaviour{Rcode: mdns.RcodeNotImplemented}, nil, check.ReasonUnexpectedRcode, "NOTIMP"},
		{"drops UDP", dnstest.Behaviour{Zone: zone, DropUDP: true}, &dns.Settings{Protocols: both}, check.ReasonTimeout, "asked over UDP, did not answer a query"},
		{"drops one packet", dnstest.Behaviour{Zone: zone, DropFirst: 1}, &dns.Settings{Name: "kubernetes.default.svc.cluster.local.", RecordType: "A"}, check.ReasonQueryLost, "10.96.0.1"},
		{"drops TCP", dnstest.Behaviour{Zone: zone, DropTCP: true}, &dns.Settings{Protocols: both}, check.ReasonTimeout, "; the other query succeeded"},
		{"no TCP", dnstest.Behaviour{Zone: zone, NoTCP: true}, &dns.Settings{Protocols: both}, check.ReasonConnectionRefused, "asked over TCP, refused"},
		{"closes TCP", dnstest.Behaviour{Zone: zone, CloseTCP: true}, &dns.Settings{Protocols: both}, check.ReasonConnectionReset, "asked over TCP, "},
		{"late", dnstest.Behaviour{Zone: zone, Delay: 2 * time.Second}, nil, check.ReasonTimeout, "did not answer a query for kubernetes.default.svc.cluster.local"},
		{"truncates", dnstest.Behaviour{Zone: zone, TruncateUDP: true}, nil, check.NoReason, "10.96.0.1"},
		{"truncates and refuses TCP", dnstest.Behaviour{Zone: zone, TruncateUDP: true, NoTCP: true}, nil, check.ReasonTruncated, "asked again over TCP, it refused"},
		{"truncates over TCP", dnstest.Behaviour{Zone: zone, TruncateTCP: true}, &dns.Settings{Protocols: []string{"tcp"}}, check.ReasonMalformedAnswer, "marked as truncated"},
		{"answers another question", dnstest.Behaviour{Zone: zone, OtherQuestion: true}, nil, check.ReasonMalformedAnswer, "another question (other.example. A"},
		{"answers another query", dnstest.Behaviour{Zone: zone, OtherID: true}, nil, check.ReasonTimeout, ""},
		{"answers another query over TCP", dnstest.Behaviour{Zone: zone, OtherID: true}, &dns.Settings{Protocols: []string{"tcp"}}, check.ReasonMalformedAnswer, ""},
		{"records of another name", dnstest.Behaviour{Zone: zone, OtherName: true}, nil, check.ReasonNoAnswers, ""},
		{"a record that holds nothing", dnstest.Behaviour{Zone: zone, NoData: true}, nil, check.ReasonMalformedAnswer, "record without data"},
		{"knows no EDNS0", dnstest.Behaviour{Zone: zone, EDNS: dnstest.FormatError}, &dns.Settings{Protocols: both}, check.ReasonEDNSFailed, "10.96.0.1"},
		{"knows no query at all", dnstest.Behaviour{Rcode: mdns.RcodeFormatError}, nil, check.ReasonUnexpectedRcode, "FORMERR"},
		{"sends the query back", dnstest.Behaviour{Zone: zone, EchoQuery: true}, nil, check.ReasonMalformedAnswer, "a query instead of an answer"},
		{"garbage", dnstest.Behaviour{Garbage: true}, &dns.Settings{Protocols: []string{"tcp"}}, check.ReasonMalformedAnswer, "not a DNS answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			timeout, r := brief, pod(dnstest.Start(t, c.server))
			if c.reason == check.NoReason { // it is answered at once
				timeout, r.Config.Timeout = 20*time.Second, 5*time.Second
			}
			f := lookFor(t, timeout, c.settings, r)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
		})
	}
}

// TestExpectedRangesOfOneFamily checks that ranges of one IP family say nothing about addresses of the other.
func TestExpectedRangesOfOneFamily(t *testing.T) {
	lost := map[string]int{"A": mdns.RcodeServerFailure}
	for _, c := range []struct {
		name, cidrs string
		types       map[string]int
		reason      check.Reason
	}{
		{"dual.example.", "192.0.2.0/24", nil, check.NoReason},
		{"dual.example.", "2001:db8::/32", nil, check.NoReason},
		{"dual.example.", "192.0.2.0/24 2001:db8::/32", nil, check.NoReason},
		{"dual.example.", "192.0.2.0/24 2001:dead::/32", nil, check.ReasonUnexpectedAnswer},
		{"dual.example.", "10.0.0.0/8", nil, check.ReasonUnexpectedAnswer},
		{"dual.example.", "10.0.0.0/8 2001:db8::/32", nil, check.ReasonUnexpectedAnswer},
		{"six.example.", "192.0.2.0/24", nil, check.ReasonUnexpectedAnswer}, // no address shows anything
		{"dual.example.", "192.0.2.0/24", lost, check.ReasonServerFailure},  // which is a warning
	} {
		r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, Types: c.types}))
		f := look(t, &dns.Settings{Name: c.name, ExpectCIDRs: strings.Fields(c.cidrs)}, r)
		if f.Reason != c.reason || f.Passed() != (c.reason != check.ReasonUnexpectedAnswer) {
			t.Errorf("%s in %s: got %+v", c.name, c.cidrs, f)
		}
	}
}

// A program that looks an address up gets on with the family that answers.
func TestOneFamilyIsEnough(t *testing.T) {
	for _, c := range []struct {
		types  map[string]int
		reason check.Reason
		says   string
	}{
		{map[string]int{"AAAA": mdns.RcodeServerFailure}, check.ReasonServerFailure, "AAAA: SERVFAIL"},
		{map[string]int{"AAAA": mdns.RcodeRefused}, check.ReasonQueryRefused, "AAAA: REFUSED"},
		{map[string]int{"AAAA": mdns.RcodeNotImplemented}, check.ReasonUnexpectedRcode, "AAAA: NOTIMP"},
		{map[string]int{"AAAA": mdns.RcodeNameError}, check.ReasonNXDomain, "AAAA: NXDOMAIN"},
		{map[string]int{"AAAA": -1}, check.ReasonTimeout, "AAAA: did not answer"},
		{map[string]int{"A": mdns.RcodeServerFailure}, check.ReasonServerFailure, "A: SERVFAIL"},
		{map[string]int{"A": -1}, check.ReasonTimeout, "A: did not answer"},
	} {
		for _, protocol := range []string{"udp", "tcp"} {
			t.Run(c.says+" "+protocol, func(t *testing.T) {
				t.Parallel()
				r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, Types: c.types}))
				r.Config.Timeout, r.Config.Attempts = 5*time.Second, 2 // as resolv.conf has them by default
				start := time.Now()
				f := look(t, &dns.Settings{Name: "dual.example.", Protocols: []string{protocol}}, r)
				if !f.Passed() || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
					t.Errorf("got %+v", f)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("took %s", took)
				}
				if addrs, _, err := r.LookupAddrs(context.Background(), "dual.example."); err != nil || len(addrs) != 1 {
					t.Errorf("got %v, %v", addrs, err)
				}
			})
		}
	}
	// Without any address, what is wrong is told.
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, Types: map[string]int{"AAAA": mdns.RcodeServerFailure}}))
	if f := lookFor(t, brief, &dns.Settings{Name: "empty.example."}, r); f.Reason != check.ReasonServerFailure {
		t.Errorf("got %+v", f)
	}
}

func TestEachServerIsAskedOnItsOwn(t *testing.T) {
	good := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	six := dnstest.StartAt(t, "::1", dnstest.Behaviour{Zone: zone})
	if f := look(t, nil, pod(good, six)); !f.Passed() || !strings.Contains(f.Message, "from 2 servers") {
		t.Errorf("got %+v", f)
	}
	// A program in the pod would not notice the second server's fault until the first fails.
	bad := dnstest.Start(t, dnstest.Behaviour{Rcode: mdns.RcodeServerFailure})
	f := lookFor(t, brief, nil, pod(good, bad, six))
	if f.Reason != check.ReasonServerFailure || !strings.Contains(f.Message, bad.String()) || !strings.Contains(f.Message, "the 2 other queries succeeded") {
		t.Errorf("got %+v", f)
	}
	if f := look(t, nil, pod()); f.Reason != check.ReasonNoServers {
		t.Errorf("got %+v", f)
	}
}

func TestAServerByAddress(t *testing.T) {
	good := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	bad := dnstest.Start(t, dnstest.Behaviour{Rcode: mdns.RcodeServerFailure})
	if f := look(t, &dns.Settings{Resolver: good.String()}, pod(bad)); !f.Passed() {
		t.Errorf("got %+v", f)
	}
	if f := lookFor(t, brief, &dns.Settings{Resolver: bad.String()}, pod(good)); f.Reason != check.ReasonServerFailure {
		t.Errorf("got %+v", f)
	}
	// Nothing listens there; the kernel hears so by ICMP.
	f := lookFor(t, brief, &dns.Settings{Resolver: "127.0.0.1:1"}, pod(good))
	if f.Reason != check.ReasonConnectionRefused {
		t.Errorf("got %+v", f)
	}
}

func TestInterruption(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{DropUDP: true}))
	r.Config.Timeout = time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	f := (*dns.Settings)(nil).New(environment.Pod{Resolver: r})(ctx)
	if took := time.Since(start); took > 20*time.Second || f.Reason != check.ReasonInterrupted {
		t.Errorf("after %s: %+v", took, f)
	}
}

// The built-in name is in the domain that resolv.conf shows.
func TestTheClustersOwnDomain(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"kubernetes.default.svc.corp.example.": {"A 10.96.0.1"}}}))
	r.Config.Search = []string{"ns.svc.corp.example", "svc.corp.example", "corp.example"}
	if f := look(t, nil, r); !f.Passed() || !strings.Contains(f.Message, "kubernetes.default.svc.corp.example") {
		t.Errorf("got %+v", f)
	}
}

// A wildcard in a search domain answers whatever is looked up through it, and says nothing about
// the cluster's DNS.
func TestAWildcardInASearchDomain(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{
		"kubernetes.default.svc.cluster.local.wild.example.": {"A 192.0.2.1"},
	}}))
	r.Config.Search = append(r.Config.Search, "wild.example")
	if f := look(t, nil, r); f.Reason != check.ReasonNXDomain {
		t.Errorf("got %+v", f)
	}
	// A name that is given without a dot goes through the search domains, as programs do.
	if f := look(t, &dns.Settings{Name: "kubernetes.default.svc.cluster.local"}, r); !f.Passed() {
		t.Errorf("got %+v", f)
	}
}

// An address is its own answer, as for every program that is given one for a host name.
func TestAddressesAreTheirOwnAnswer(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{Rcode: mdns.RcodeServerFailure}))
	for _, c := range []struct {
		settings dns.Settings
		reason   check.Reason
	}{
		{dns.Settings{Name: "8.8.8.8"}, check.NoReason},
		{dns.Settings{Name: "2001:db8::1"}, check.NoReason},
		{dns.Settings{Name: "8.8.8.8", RecordType: "A"}, check.NoReason},
		{dns.Settings{Name: "8.8.8.8", RecordType: "AAAA"}, check.ReasonNoAnswers},
		{dns.Settings{Name: "8.8.8.8", MinAnswers: new(int32(2))}, check.ReasonNoAnswers},
		{dns.Settings{Name: "8.8.8.8", ExpectCIDRs: []string{"10.0.0.0/8"}}, check.ReasonUnexpectedAnswer},
		{dns.Settings{Name: "8.8.8.8", RecordType: "TXT"}, check.ReasonServerFailure},
	} {
		f := lookFor(t, brief, &c.settings, r)
		if f.Reason != c.reason || f.Passed() && !strings.Contains(f.Message, "is already an address") {
			t.Errorf("%+v: got %+v", c.settings, f)
		}
	}
	// Nobody needs to be asked.
	if f := look(t, &dns.Settings{Name: "8.8.8.8"}, pod()); !f.Passed() {
		t.Errorf("got %+v", f)
	}
}

// A query that a second one made good is no failure, and is not nothing: half of the servers behind
// an address may be out of reach.
func TestLostQueriesAreTold(t *testing.T) {
	good := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	for _, c := range []struct {
		name    string
		server  dnstest.Behaviour
		timeout time.Duration
		says    string
	}{
		{"within a timeout", dnstest.Behaviour{DropFirst: 1}, 5 * time.Second, "answered at the 2nd attempt"},
		{"past a timeout", dnstest.Behaviour{DropFirst: 1}, 300 * time.Millisecond, "answered at the 2nd attempt"},
		{"twice", dnstest.Behaviour{DropFirst: 2}, 5 * time.Second, "answered at the 3rd attempt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.server.Zone = zone
			bad := dnstest.Start(t, c.server)
			r := pod(good, bad)
			r.Config.Timeout = c.timeout
			f := look(t, &dns.Settings{Name: "dual.example.", RecordType: "A"}, r)
			if f.Outcome != check.Warned || f.Reason != check.ReasonQueryLost || !strings.Contains(f.Message, fmt.Sprintf("%s over UDP %s", bad, c.says)) {
				t.Errorf("got %+v", f)
			}
			if strings.Contains(f.Message, good.String()) {
				t.Errorf("the server that lost nothing is named: %s", f.Message)
			}
		})
	}
}

// A slow answer to the first query is not a lost one, although the query has been sent again by then.
func TestASlowAnswerIsNotLost(t *testing.T) {
	t.Parallel()
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, Delay: 1300 * time.Millisecond}))
	r.Config.Timeout = 5 * time.Second
	f := look(t, &dns.Settings{Name: "dual.example.", RecordType: "A"}, r)
	if f.Outcome != check.Passed || strings.Contains(f.Message, "attempt") {
		t.Errorf("got %+v", f)
	}
}

// On a line that loses packets, each connection that a check needs is one more to wait for.
func TestOneConnectionForAllQueries(t *testing.T) {
	for _, c := range []struct {
		name        string
		server      dnstest.Behaviour
		settings    dns.Settings
		connections int32
	}{
		{"A and AAAA of four names", dnstest.Behaviour{AcceptAfter: 1500 * time.Millisecond}, dns.Settings{Name: "dual.example", Protocols: []string{"tcp"}}, 1},
		{"truncated over UDP", dnstest.Behaviour{TruncateUDP: true}, dns.Settings{Name: "dual.example."}, 1},
		{"a server that closes after each answer", dnstest.Behaviour{OneTCPQuery: true}, dns.Settings{Name: "dual.example.", Protocols: []string{"tcp"}}, 2},
		{"a server that knows no EDNS0", dnstest.Behaviour{EDNS: dnstest.FormatError}, dns.Settings{Name: "dual.example.", Protocols: []string{"tcp"}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var accepted atomic.Int32
			c.server.Zone, c.server.Accepted = zone, &accepted
			r := pod(dnstest.Start(t, c.server))
			r.Config.Timeout = 2 * time.Second
			f := look(t, &c.settings, r)
			if !f.Passed() || !strings.Contains(f.Message, "192.0.2.1 and 1 more") {
				t.Errorf("got %+v", f)
			}
			if n := accepted.Load(); n != c.connections {
				t.Errorf("%d connections, want %d", n, c.connections)
			}
		})
	}
}
