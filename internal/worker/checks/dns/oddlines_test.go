package dns_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestOddLinesAreAWarning checks that a server which answers passes beside a line that names none.
func TestOddLinesAreAWarning(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	good := fmt.Sprintf("nameserver [%s]:%d\n", server.Addr(), server.Port())
	for _, line := range []string{"<nil>", "010.000.000.010", "dns.example", "fe80::zz"} {
		config, err := resolver.Parse([]byte("nameserver " + line + "\n" + good))
		if err != nil {
			t.Fatal(err)
		}
		f := look(t, nil, &resolver.Resolver{Config: config})
		if f.Outcome != check.Warned || f.Reason != check.ReasonNoServers || !strings.Contains(f.Message, line) {
			t.Errorf("%s: got %+v", line, f)
		}
		// A server that is named elsewhere has nothing to do with resolv.conf.
		f = look(t, &dns.Settings{Resolver: server.String()}, &resolver.Resolver{Config: config})
		if f.Outcome != check.Passed {
			t.Errorf("%s: got %+v", line, f)
		}
	}
	config, err := resolver.Parse([]byte("nameserver <nil>\n"))
	f := look(t, nil, &resolver.Resolver{Config: config})
	if err != nil || f.Reason != check.ReasonNoServers || f.Passed() || !strings.Contains(f.Message, "<nil>") {
		t.Errorf("got %+v, %v", f, err)
	}
}
