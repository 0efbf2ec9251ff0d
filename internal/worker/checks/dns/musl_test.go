package dns_test

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestWhatBreaksMusl checks answers that glibc and Go's resolver survive, and musl does not: a warning that has the
// name and the answer.
func TestWhatBreaksMusl(t *testing.T) {
	const first = "dual.example.default.svc.cluster.local."
	rcode := func(name string, code int) dnstest.Behaviour {
		return dnstest.Behaviour{Zone: zone, Rcodes: map[string]int{name: code}}
	}
	withoutRecords := map[string][]string{"dual.example.": zone["dual.example."], first: {"TXT here"}}
	for _, c := range []struct {
		name   string
		server dnstest.Behaviour
		ask    string
		reason check.Reason
		says   string
	}{
		{"SERVFAIL (moby#45553)", rcode(first, mdns.RcodeServerFailure), "dual.example", check.ReasonServerFailure,
			"answered " + first + " with SERVFAIL"},
		{"REFUSED (k3s#6561)", rcode(first, mdns.RcodeRefused), "dual.example", check.ReasonQueryRefused,
			"answered " + first + " with REFUSED"},
		{"NOTIMP, of the last domain", rcode("dual.example.cluster.local.", mdns.RcodeNotImplemented), "dual.example",
			check.ReasonUnexpectedRcode, "answered dual.example.cluster.local. with NOTIMP"},
		{"no records", dnstest.Behaviour{Zone: withoutRecords}, "dual.example", check.ReasonNoAnswers,
			"answered " + first + " with NOERROR"},
		{"NXDOMAIN for AAAA (coredns#779)", dnstest.Behaviour{Zone: zone, Types: map[string]int{
			"AAAA": mdns.RcodeNameError}}, "dual.example.", check.ReasonNXDomain, "finds no address of dual.example."},
		{"NXDOMAIN for A", dnstest.Behaviour{Zone: zone, Types: map[string]int{"A": mdns.RcodeNameError}},
			"six.example.", check.ReasonNXDomain, "A: NXDOMAIN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := look(t, &dns.Settings{Name: c.ask}, pod(dnstest.Start(t, c.server)))
			if f.Outcome != check.Warned || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
		})
	}
	f := look(t, &dns.Settings{Name: "kubernetes.default"}, pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone})))
	if f.Outcome != check.Passed || !strings.Contains(f.Message, "(of kubernetes.default.svc.cluster.local.)") {
		t.Errorf("got %+v", f)
	}
}

// TestALongSearchLine checks the longest line that musl reads, and longer ones.
func TestALongSearchLine(t *testing.T) {
	server := dnstest.Start(t, dnstest.Behaviour{Zone: zone})
	for _, c := range []struct {
		keyword, end string
		length       int // without the end
		outcome      check.Outcome
	}{
		{"search", "\n", 254, check.Passed},
		{"search", "\n", 255, check.Warned},
		{"search", "", 255, check.Passed},
		{"search", "", 256, check.Warned},
		{"search", "\r\n", 254, check.Warned},
		{"# search", "\n", 400, check.Passed},
	} {
		line := c.keyword + " svc.cluster.local"
		line += strings.Repeat(" x.example", (c.length-len(line))/10+1)
		config, err := resolver.Parse([]byte("nameserver 10.0.0.1\n" + line[:c.length] + c.end))
		if err != nil {
			t.Fatal(err)
		}
		r := pod(server)
		r.Config.LongSearch = config.LongSearch
		f := look(t, &dns.Settings{}, r)
		if f.Outcome != c.outcome || c.outcome == check.Warned && f.Reason != check.ReasonSearchIgnored {
			t.Errorf("%s of %d: got %+v", c.keyword, c.length, f)
		}
	}
}
