package dns_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestAnswersLargerThanAdvertised checks UDP answers that do not fit and are not marked as truncated
// (coredns/coredns#6277). libc reads them or asks over TCP; Go's resolver does neither.
func TestAnswersLargerThanAdvertised(t *testing.T) {
	many := map[string][]string{"small.example.": {"A 192.0.2.1"}}
	for i := range 100 { // 1.6 kB
		many["large.example."] = append(many["large.example."], fmt.Sprintf("A 192.0.2.%d", i))
	}
	for i := range 30 { // 950 bytes
		many["medium.example."] = append(many["medium.example."], fmt.Sprintf("A 192.0.2.%d", i))
	}
	for _, c := range []struct {
		name, host, says string
		server           dnstest.Behaviour
		reason           check.Reason
	}{
		{"above 1232 bytes", "large.example.", "bytes, where 1232 are allowed",
			dnstest.Behaviour{Zone: many}, check.ReasonMalformedAnswer},
		{"above 512 bytes, without EDNS0", "medium.example.", "bytes, where 512 are allowed",
			dnstest.Behaviour{Zone: many, EDNS: dnstest.FormatError}, check.ReasonEDNSFailed},
		{"cut off at 1232 bytes", "large.example.", "cut off",
			dnstest.Behaviour{Zone: many, CutUDP: 1232}, check.ReasonMalformedAnswer},
		{"cut off at 512 bytes", "large.example.", "cut off",
			dnstest.Behaviour{Zone: many, CutUDP: 512}, check.ReasonMalformedAnswer},
		{"cut off between two records", "medium.example.", "cut off",
			dnstest.Behaviour{Zone: many, CutUDP: 32 + 10*30}, check.ReasonMalformedAnswer},
		{"within 1232 bytes", "medium.example.", "", dnstest.Behaviour{Zone: many}, check.NoReason},
		{"one that fits", "small.example.", "", dnstest.Behaviour{Zone: many, CutUDP: 512}, check.NoReason},
		{"without TCP", "large.example.", "asked again over TCP, it refused",
			dnstest.Behaviour{Zone: many, NoTCP: true}, check.ReasonTruncated},
		{"not even the question", "large.example.", "not a DNS answer",
			dnstest.Behaviour{Zone: many, CutUDP: mdns.MinMsgSize / 32}, check.ReasonMalformedAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := pod(dnstest.Start(t, c.server))
			r.Config.Timeout = time.Second
			f := lookFor(t, 3*time.Second, &dns.Settings{Name: c.host, RecordType: "A"}, r)
			fails := strings.HasPrefix(c.says, "asked") || strings.HasPrefix(c.says, "not")
			if f.Reason != c.reason || f.Passed() == fails || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
			if _, _, err := r.LookupAddrs(context.Background(), c.host); (err != nil) != fails {
				t.Error(err)
			}
		})
	}
}
