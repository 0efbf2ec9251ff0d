package dns_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestUseVC checks that a resolv.conf that asks for TCP is obeyed, as glibc and Go do (rancher/rke2#3924).
func TestUseVC(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{Zone: zone, DropUDP: true})
	for _, options := range []string{"options use-vc", "options ndots:5 usevc", "options timeout:1\noptions tcp"} {
		config, err := resolver.Parse([]byte(fmt.Sprintf("nameserver [%s]:%d\n%s", server.Addr(), server.Port(), options)))
		if err != nil {
			t.Fatal(err)
		}
		r := &resolver.Resolver{Config: config}
		for _, c := range []struct {
			settings dns.Settings
			outcome  check.Outcome
		}{
			{dns.Settings{}, check.Passed},
			{dns.Settings{Protocols: []string{resolver.UDP}}, check.Passed},
			{dns.Settings{Protocols: []string{resolver.UDP, resolver.TCP}}, check.Passed},
			{dns.Settings{Resolver: server.String()}, check.Passed},
			// What is configured for one address has nothing to do with resolv.conf.
			{dns.Settings{Resolver: server.String(), Protocols: []string{resolver.UDP}}, check.Failed},
		} {
			c.settings.Name = "dual.example."
			f := lookFor(t, brief, &c.settings, r)
			if f.Outcome != c.outcome || f.Passed() && !strings.Contains(f.Message, "from 1 server over TCP") {
				t.Errorf("%s: %+v: got %+v", options, c.settings, f)
			}
		}
		if addrs, _, err := r.LookupAddrs(context.Background(), "dual.example."); err != nil || len(addrs) != 2 {
			t.Errorf("%s: got %v, %v", options, addrs, err)
		}
	}
	for _, options := range []string{"options use-vcs", "#options use-vc", "options no-tld-query\nsearch use-vc"} {
		if config, err := resolver.Parse([]byte(options)); err != nil || config.UseTCP {
			t.Errorf("%s: got %+v, %v", options, config, err)
		}
	}
}
