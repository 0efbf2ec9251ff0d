package dns_test

import (
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestASearchDomainWithoutAnAnswer checks names of the search list that a server drops (moby#45553): glibc and Go's
// resolver go on to the next name, and musl does not.
func TestASearchDomainWithoutAnAnswer(t *testing.T) {
	const first, second, last = "dual.example.default.svc.cluster.local.", "dual.example.svc.cluster.local.", "dual.example."
	for _, c := range []struct {
		name   string
		silent []string
		ask    string
		reason check.Reason
		says   string
	}{
		{"the first", []string{first}, "dual.example", check.ReasonTimeout, "answer a query for " + first},
		{"one in the middle", []string{second}, "dual.example", check.ReasonTimeout, "answer a query for " + second},
		{"two", []string{first, second}, "dual.example", check.ReasonTimeout, "answer a query for " + first},
		{"the name itself", []string{last}, "dual.example", check.ReasonTimeout, "answer a query for " + last},
		{"no name exists", []string{"no.example.svc.cluster.local."}, "no.example", check.ReasonTimeout,
			"answer a query for no.example.svc.cluster.local."},
	} {
		for _, protocol := range []string{resolver.UDP, resolver.TCP} {
			t.Run(c.name+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				rcodes := map[string]int{}
				for _, name := range c.silent {
					rcodes[name] = -1
				}
				r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, Rcodes: rcodes}))
				f := lookFor(t, 2*time.Second, &dns.Settings{Name: c.ask, Protocols: []string{protocol}}, r)
				outcome := check.Failed
				if len(c.silent) == 1 && c.silent[0] != last && c.ask == "dual.example" {
					outcome = check.Warned
				}
				if f.Outcome != outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) ||
					strings.Contains(f.Message, "musl") != f.Passed() {
					t.Errorf("got %+v", f)
				}
				if _, _, err := r.LookupAddrs(t.Context(), c.ask); (err == nil) != f.Passed() {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestASilentServer checks that a lookup ends at the second name without an answer, and reports the first.
func TestASilentServer(t *testing.T) {
	t.Parallel()
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, DropUDP: true}))
	began := time.Now()
	server := r.Config.Server(r.Config.Servers[0], resolver.UDP)
	_, err := r.Config.Lookup(t.Context(), server, "dual.example", mdns.TypeA)
	took := time.Since(began)
	if took > 2300*time.Millisecond || err == nil || // four names would take 2.4 s
		!strings.Contains(err.Error(), "dual.example.default.svc.cluster.local.") {
		t.Errorf("after %s: %v", took, err)
	}
}
