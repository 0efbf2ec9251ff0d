package dns_test

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestAQueryThatIsLost checks that the type whose query is lost is named, with the answer for the other type.
func TestAQueryThatIsLost(t *testing.T) {
	for _, c := range []struct {
		name, ask, recordType string
		types                 map[string]int
		says                  string
	}{
		{"AAAA, of a name that does not exist", "no.example.", "", map[string]int{"AAAA": -1},
			"for no.example. (AAAA) in 300ms, and answered that for A with NXDOMAIN"},
		{"A, of a name without records", "empty.example.", "", map[string]int{"A": -1},
			"for empty.example. (A) in 300ms, and answered that for AAAA with NOERROR"},
		{"A, beside an error", "dual.example.", "", map[string]int{"A": -1, "AAAA": mdns.RcodeServerFailure},
			"for dual.example. (A) in 300ms, and answered that for AAAA with SERVFAIL"},
		{"both", "dual.example.", "", map[string]int{"A": -1, "AAAA": -1},
			"for dual.example. (A) in 300ms, nor that for AAAA"},
		{"the only one", "_https._tcp.dual.example.", "SRV", map[string]int{"SRV": -1},
			"for _https._tcp.dual.example. (SRV) in 300ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := dnstest.Start(t, dnstest.Behaviour{Zone: zone, Types: c.types})
			f := lookFor(t, 4*brief, &dns.Settings{Name: c.ask, RecordType: c.recordType}, pod(server))
			if f.Reason != check.ReasonTimeout || !strings.Contains(f.Message, c.says) ||
				c.recordType != "" && strings.Contains(f.Message, "that for") {
				t.Errorf("got %+v", f)
			}
		})
	}
}
