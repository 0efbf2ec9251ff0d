package servicediscovery_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

const name = "kubernetes.default.svc.cluster.local."

// TestFamilies: what DNS says is compared in the families that the Service has, and one that is lost is a warning.
func TestFamilies(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	const four, six, dual = `"10.96.0.1"`, `"fd00::1"`, `"10.96.0.1","fd00::1"`
	both := []string{"A 10.96.0.1", "AAAA fd00::1"}
	for _, c := range []struct {
		name, ips string
		zone      []string
		types     map[string]int
		outcome   check.Outcome
		reason    check.Reason
		says      string
	}{
		{"dual stack", dual, both, nil, check.Passed, check.NoReason, "DNS agrees"},
		{"dual stack, AAAA is SERVFAIL", dual, both, map[string]int{"AAAA": mdns.RcodeServerFailure},
			check.Warned, check.ReasonServerFailure, "AAAA: SERVFAIL"},
		{"dual stack, AAAA is silent", dual, both, map[string]int{"AAAA": -1},
			check.Warned, check.ReasonTimeout, "AAAA: did not answer"},
		{"dual stack, A is SERVFAIL", dual, both, map[string]int{"A": mdns.RcodeServerFailure},
			check.Warned, check.ReasonServerFailure, "A: SERVFAIL"},
		{"dual stack, both are SERVFAIL", dual, both, map[string]int{"A": 2, "AAAA": 2},
			check.Failed, check.ReasonResolutionUnavailable, ""},
		{"dual stack, DNS has one", dual, both[:1], nil,
			check.Failed, check.ReasonServiceDNSMismatch, "cluster IPs are 10.96.0.1, fd00::1"},
		{"dual stack, the other one lies", dual, []string{"A 10.96.0.9", "AAAA fd00::1"}, map[string]int{"AAAA": 2},
			check.Failed, check.ReasonServiceDNSMismatch, "DNS answers 10.96.0.9"},
		{"IPv4, and AAAA is SERVFAIL", four, both[:1], map[string]int{"AAAA": 2},
			check.Passed, check.NoReason, "DNS agrees"},
		{"IPv4, and AAAA is silent", four, both[:1], map[string]int{"AAAA": -1},
			check.Passed, check.NoReason, "DNS agrees"},
		{"IPv4 with DNS64", four, []string{"A 10.96.0.1", "AAAA 64:ff9b::a60:1"}, nil,
			check.Passed, check.NoReason, "DNS agrees"},
		{"IPv6, and A is SERVFAIL", six, both[1:], map[string]int{"A": 2}, check.Passed, check.NoReason, "DNS agrees"},
		{"leading zeros", `"010.096.000.001"`, both[:1], nil, check.Passed, check.NoReason, "DNS agrees"},
		{"leading zeros beside IPv6", `"10.96.0.001","fd00::0001"`, both, nil, check.Passed, check.NoReason, "DNS agrees"},
		{"leading zeros of another address", `"010.096.000.001"`, []string{"A 8.96.0.1"}, nil,
			check.Failed, check.ReasonServiceDNSMismatch, "cluster IPs are 010.096.000.001"},
		{"another address", four, []string{"A 10.96.0.9"}, nil,
			check.Failed, check.ReasonServiceDNSMismatch, "DNS answers 10.96.0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{name: c.zone}, Types: c.types})
			answer := func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/endpointslices") {
					_, _ = fmt.Fprint(w, `{"items":[{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}]}`)
					return
				}
				_, _ = fmt.Fprintf(w, `{"spec":{"clusterIP":"x","clusterIPs":[%s]}}`, c.ips)
			}
			pod := environment.Pod{API: apitest.Client(t, authority, certificate, http.HandlerFunc(answer))}
			pod.Resolver = &resolver.Resolver{}
			pod.Resolver.Config = resolver.Config{Servers: []netip.AddrPort{server}, Timeout: 3 * time.Second, Attempts: 1}
			timeout := 3 * time.Second
			if c.outcome == check.Failed {
				timeout = time.Second // in which it is asked again
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			f := (*servicediscovery.Settings)(nil).New(pod)(ctx)
			if f.Outcome != c.outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestRecordsOfAnotherName checks that records whose owner is not the Service's name are named.
func TestRecordsOfAnotherName(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	const srv = "_https._tcp." + name
	zone := map[string][]string{name: {"A 10.96.0.1"}, srv: {"SRV 0 100 443 " + name}}
	for _, c := range []struct {
		settings *servicediscovery.Settings
		server   dnstest.Behaviour
		says     string
	}{
		{nil, dnstest.Behaviour{Zone: zone, OtherName: true}, "has a record of other.example. (A), and none of " + name},
		{&servicediscovery.Settings{SRV: []string{"https"}},
			dnstest.Behaviour{Zone: map[string][]string{name: zone[name], srv: {"CNAME gone.example."}}},
			srv + " is a CNAME of gone.example."},
	} {
		api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/endpointslices") {
				_, _ = fmt.Fprint(w, `{"items":[{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}]}`)
				return
			}
			_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.1","ports":[{"name":"https","protocol":"TCP","port":443}]}}`)
		}))
		r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{dnstest.Start(t, c.server)},
			Timeout: time.Second, Attempts: 1}}
		f := c.settings.New(environment.Pod{API: api, Resolver: r})(t.Context())
		if f.Reason != check.ReasonResolutionFailed || !strings.Contains(f.Message, c.says) {
			t.Errorf("got %+v", f)
		}
	}
}
