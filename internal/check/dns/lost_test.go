package dns_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dnstest"
)

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
			f := probe(t, &check.DNS{Name: "dual.example.", RecordType: "A"}, r)
			if f.Outcome != check.Warned || f.Reason != check.ReasonQueryLost || !strings.Contains(f.Message, fmt.Sprintf("%s over UDP %s", bad, c.says)) {
				t.Errorf("got %+v", f)
			}
			if strings.Contains(f.Message, good.String()) {
				t.Errorf("the server that lost nothing is named: %s", f.Message)
			}
		})
	}
}
