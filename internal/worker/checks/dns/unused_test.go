package dns_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// TestAnUnusedDNSService checks a resolv.conf without an address of the DNS Service: both are named. A cache of the
// node, or a stub resolver, is only named in a failure.
func TestAnUnusedDNSService(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	server := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	good, dead := slice("127.0.0.1", server.Port(), "coredns-a", true), slice("127.0.0.4", 1, "coredns-b", true)
	const kubeDNS = `"10.96.0.10"`
	for _, c := range []struct {
		name, resolvConf, service, endpoint string
		settings                            dns.Settings
		outcome                             check.Outcome
		reason                              check.Reason
		says                                string // empty if nothing is
	}{
		{"another cluster's", "10.43.0.10", kubeDNS, good, dns.Settings{}, check.Warned, check.ReasonDNSServiceUnused,
			"resolv.conf names 10.43.0.10, and no address of Service kube-system/kube-dns (10.96.0.10)"},
		{"two others", "10.43.0.10 192.0.2.53", kubeDNS, good, dns.Settings{}, check.Warned, check.ReasonDNSServiceUnused,
			"resolv.conf names 10.43.0.10 and 192.0.2.53,"},
		{"of another family", "2001:db8::a", kubeDNS, good, dns.Settings{}, check.Warned, check.ReasonDNSServiceUnused,
			"resolv.conf names 2001:db8::a, and no address of Service kube-system/kube-dns (10.96.0.10)"},
		{"beside a dead endpoint", "10.43.0.10", kubeDNS, dead, dns.Settings{}, check.Failed, check.ReasonConnectionRefused,
			"resolv.conf names 10.43.0.10,"},
		{"without an endpoint", "10.43.0.10", kubeDNS, "", dns.Settings{}, check.Inconclusive, check.ReasonNoReadyEndpoints,
			"resolv.conf names 10.43.0.10,"},
		{"its own", "10.96.0.10", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"its own beside another", "192.0.2.53 10.96.0.10", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"its second", "fd00::a", kubeDNS + `,"fd00::a"`, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"NodeLocal DNSCache", "169.254.20.10", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"NodeLocal DNSCache over IPv6", "fd00:90::10", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"systemd-resolved", "127.0.0.53", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"a router", "fe80::1", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"NodeLocal DNSCache beside a dead endpoint", "169.254.20.10", kubeDNS, dead, dns.Settings{}, check.Failed,
			check.ReasonConnectionRefused, "resolv.conf names 169.254.20.10, and no address of Service kube-system/kube-dns"},
		{"a headless Service", "10.43.0.10", `"None"`, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"no server", "", kubeDNS, good, dns.Settings{}, check.Passed, check.NoReason, ""},
		{"a Service of the settings", "10.43.0.10", `"127.0.0.1"`, "",
			dns.Settings{Resolver: dns.ResolverService, Service: "kube-system/kube-dns"}, check.Passed, check.NoReason, ""},
		{"a dead Service of the settings", "10.43.0.10", `"127.0.0.4"`, "",
			dns.Settings{Resolver: dns.ResolverService, Service: "kube-system/kube-dns"}, check.Failed,
			check.ReasonConnectionRefused, "resolv.conf names 10.43.0.10,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/endpointslices"):
					_, _ = fmt.Fprintf(w, `{"items":[%s]}`, c.endpoint)
				case strings.HasSuffix(r.URL.Path, "/services/kube-dns"):
					first, _, _ := strings.Cut(c.service, ",")
					_, _ = fmt.Fprintf(w, `{"spec":{"clusterIP":%s,"clusterIPs":[%s],"ports":[{"name":"dns","protocol":"UDP","port":%d}]}}`,
						first, c.service, server.Port())
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			var servers []netip.AddrPort
			for _, ip := range strings.Fields(c.resolvConf) {
				servers = append(servers, netip.AddrPortFrom(netip.MustParseAddr(ip), 53))
			}
			if c.settings.Resolver == "" {
				c.settings.Resolver = dns.ResolverEndpoints
			}
			c.settings.Name = "dual.example."
			f := c.settings.New(environment.Pod{Resolver: pod(servers...), API: api, Node: "node-a"})(t.Context()) // without a deadline it tries once
			if f.Outcome != c.outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) ||
				strings.Contains(f.Message, "resolv.conf names") != (c.says != "") {
				t.Errorf("got %+v", f)
			}
		})
	}
}
