package dns_test

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestRecordsOfAnotherName checks that an answer without the records that were asked for shows which it has.
func TestRecordsOfAnotherName(t *testing.T) {
	dangling := map[string][]string{"alias.example.": {"CNAME gone.example."},
		"long.example.": {"CNAME alias.example."}}
	for _, c := range []struct {
		server    dnstest.Behaviour
		ask, says string
	}{
		{dnstest.Behaviour{Zone: zone, OtherName: true}, "dual.example.", "has a record of other.example. (A), and none of dual.example."},
		{dnstest.Behaviour{Zone: dangling}, "alias.example.", "alias.example. is a CNAME of gone.example., which came without"},
		{dnstest.Behaviour{Zone: dangling}, "long.example.", "alias.example. is a CNAME of gone.example., which came without"},
	} {
		f := look(t, &dns.Settings{Name: c.ask}, pod(dnstest.Start(t, c.server)))
		if f.Reason != check.ReasonNoAnswers || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %+v", c.ask, f)
		}
	}
}
