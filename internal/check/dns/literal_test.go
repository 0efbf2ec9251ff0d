package dns_test

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dnstest"
)

// An address is its own answer, as for every program that is given one for a host name.
func TestAddressesAreTheirOwnAnswer(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{Rcode: mdns.RcodeServerFailure}))
	for _, c := range []struct {
		settings check.DNS
		reason   check.Reason
	}{
		{check.DNS{Name: "8.8.8.8"}, ""},
		{check.DNS{Name: "2001:db8::1"}, ""},
		{check.DNS{Name: "8.8.8.8", RecordType: "A"}, ""},
		{check.DNS{Name: "8.8.8.8", RecordType: "AAAA"}, check.ReasonNoAnswers},
		{check.DNS{Name: "8.8.8.8", MinAnswers: new(int32(2))}, check.ReasonNoAnswers},
		{check.DNS{Name: "8.8.8.8", ExpectCIDRs: []string{"10.0.0.0/8"}}, check.ReasonUnexpectedAnswer},
		{check.DNS{Name: "8.8.8.8", RecordType: "TXT"}, check.ReasonServerFailure},
	} {
		f := probe(t, &c.settings, r)
		if f.Reason != c.reason || f.Passed() && !strings.Contains(f.Message, "is an address") {
			t.Errorf("%+v: got %+v", c.settings, f)
		}
	}
	// Nobody needs to be asked.
	if f := probe(t, &check.DNS{Name: "8.8.8.8"}, pod()); !f.Passed() {
		t.Errorf("got %+v", f)
	}
}
