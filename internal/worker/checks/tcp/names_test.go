package tcp_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestWhatDNSAnswered checks that a message names what DNS answered for the name of a peer: the absolute name of the
// search list, the owner of the records or the target of a CNAME, and the family that is lost.
func TestWhatDNSAnswered(t *testing.T) {
	zone := map[string][]string{
		"api.example.wild.example.":      {"A 127.0.0.2"}, // a wildcard record (rke2#7982)
		"web.default.svc.cluster.local.": {"A 127.0.0.2"},
		"full.example.":                  {"A 127.0.0.2"},
		"alias.example.":                 {"CNAME gone.example."},
		"db.default.svc.cluster.local.":  {"CNAME gone.example."},
		"empty.example.":                 {"TXT here"},
	}
	const failed, unavailable = "SERVFAIL (the server or its upstream is broken)", "NOERROR (the name exists, without such records)"
	for _, c := range []struct {
		name   string
		server dnstest.Behaviour
		host   string
		reason check.Reason
		says   string
	}{
		{"a wildcard in a search domain", dnstest.Behaviour{}, "api.example", check.ReasonConnectionRefused,
			"api.example.wild.example."},
		{"a short name", dnstest.Behaviour{}, "web", check.ReasonConnectionRefused, "web.default.svc.cluster.local."},
		{"a CNAME that leads nowhere", dnstest.Behaviour{}, "alias.example.", check.ReasonResolutionFailed,
			"alias.example. is a CNAME of gone.example., which came without such records"},
		{"such a CNAME in the search list", dnstest.Behaviour{}, "db", check.ReasonResolutionFailed,
			"asked for db.default.svc.cluster.local., says " + unavailable + ": db.default.svc.cluster.local. is a CNAME of"},
		{"records of another name", dnstest.Behaviour{OtherName: true}, "full.example.", check.ReasonResolutionFailed,
			"has a record of other.example. (A), and none of full.example."},
		{"A is lost", dnstest.Behaviour{Types: map[string]int{"A": mdns.RcodeServerFailure}}, "empty.example.",
			check.ReasonResolutionUnavailable, "says " + failed + " for A and " + unavailable + " for AAAA"},
		{"AAAA is lost", dnstest.Behaviour{Types: map[string]int{"AAAA": mdns.RcodeServerFailure}}, "empty.example.",
			check.ReasonResolutionUnavailable, "says " + unavailable + " for A and " + failed + " for AAAA"},
		{"both are lost", dnstest.Behaviour{Rcode: mdns.RcodeServerFailure}, "empty.example.",
			check.ReasonResolutionUnavailable, "says " + failed},
	} {
		c.server.Zone = zone
		r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{dnstest.Start(t, c.server)}, Ndots: 5,
			Search: []string{"default.svc.cluster.local", "wild.example"}, Timeout: time.Second, Attempts: 1}}
		for kind, settings := range map[string]interface {
			New(environment.Pod) check.Func
		}{
			"tcp":  &tcp.Settings{Addresses: []string{c.host + ":1"}},
			"http": &httpcheck.Settings{URL: "http://" + c.host + ":1"},
			"mtu":  &mtu.Settings{Address: c.host + ":1"},
		} {
			f := settings.New(environment.Pod{Resolver: r})(context.Background()) // without a deadline, it tries once
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("%s, %s: got %+v", c.name, kind, f)
			}
		}
	}
}

// TestTheNameOfAPass checks that the absolute name is named too where a check passes, and not for an absolute name.
func TestTheNameOfAPass(t *testing.T) {
	open := listen(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(open)
	server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"web.default.svc.cluster.local.": {"A 127.0.0.1"}}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 5,
		Search: []string{"default.svc.cluster.local"}, Timeout: time.Second, Attempts: 1},
		Hosts: map[string][]netip.Addr{"alias": {netip.MustParseAddr("127.0.0.1")}}}
	for host, says := range map[string]string{
		"web":                            open + " (web, as web.default.svc.cluster.local.) connects in ",
		"web.default.svc.cluster.local.": open + " (web.default.svc.cluster.local.) connects in ",
		"web.default.svc.cluster.local":  open + " (web.default.svc.cluster.local) connects in ",
		"alias":                          open + " (alias) connects in ",
		"127.0.0.1":                      open + " connects in ",
	} {
		f := run(&tcp.Settings{Addresses: []string{host + ":" + port}}, r, "")
		if !strings.HasPrefix(f.Message, says) {
			t.Errorf("%s: got %+v", host, f)
		}
	}
}

// TestALostFamily checks that a family that is asked for, and whose DNS answer is lost, is not taken as missing.
func TestALostFamily(t *testing.T) {
	for _, c := range []struct {
		rcode  int
		reason check.Reason
		says   string
	}{
		{mdns.RcodeServerFailure, check.ReasonResolutionUnavailable, "(AAAA: SERVFAIL"},
		{mdns.RcodeRefused, check.ReasonResolutionUnavailable, "(AAAA: REFUSED"},
		{mdns.RcodeNameError, check.ReasonNoAddress, "(AAAA: NXDOMAIN"},
		{mdns.RcodeSuccess, check.ReasonNoAddress, "four.example. has no IPv6 address"},
	} {
		server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"four.example.": {"A 127.0.0.1"}},
			Types: map[string]int{"AAAA": c.rcode}})
		r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server}, Ndots: 1, Timeout: time.Second, Attempts: 1}}
		settings := &tcp.Settings{Addresses: []string{"four.example.:1"}, IPFamilies: []string{tcp.IPv6}}
		f := settings.New(environment.Pod{Resolver: r})(context.Background())
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%d: got %+v", c.rcode, f)
		}
	}
}
