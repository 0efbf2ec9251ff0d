package dns_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dnstest"
)

// On a line that loses packets, each connection that a check needs is one more to wait for.
func TestOneConnectionForAllQueries(t *testing.T) {
	for _, c := range []struct {
		name        string
		server      dnstest.Behaviour
		settings    check.DNS
		connections int32
	}{
		{"A and AAAA of four names", dnstest.Behaviour{AcceptAfter: 1500 * time.Millisecond}, check.DNS{Name: "dual.example", Protocols: []string{"tcp"}}, 1},
		{"truncated over UDP", dnstest.Behaviour{TruncateUDP: true}, check.DNS{Name: "dual.example."}, 1},
		{"a server that closes after each answer", dnstest.Behaviour{OneTCPQuery: true}, check.DNS{Name: "dual.example.", Protocols: []string{"tcp"}}, 2},
		{"a server that knows no EDNS0", dnstest.Behaviour{NoEDNS: true}, check.DNS{Name: "dual.example.", Protocols: []string{"tcp"}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var accepted atomic.Int32
			c.server.Zone, c.server.Accepted = zone, &accepted
			r := pod(dnstest.Start(t, c.server))
			r.Config.Timeout = 2 * time.Second
			f := probe(t, &c.settings, r)
			if f.Outcome != check.Passed || !strings.Contains(f.Message, "192.0.2.1 and 1 more") {
				t.Errorf("got %+v", f)
			}
			if n := accepted.Load(); n != c.connections {
				t.Errorf("%d connections, want %d", n, c.connections)
			}
		})
	}
}
