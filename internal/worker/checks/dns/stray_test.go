package dns_test

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// TestAStrayAnswer checks answers from another address than the one that was asked, as of a pod on the same node in
// place of its Service: they are ignored, as libc and Go ignore them, and the message has their sender.
func TestAStrayAnswer(t *testing.T) {
	for _, c := range []struct {
		name, ip string
		server   dnstest.Behaviour
		ask      string
		says     string // empty if no answer is stray
	}{
		{"another address", "127.0.0.1", dnstest.Behaviour{From: "127.0.0.7"}, "dual.example.", "(an answer came from 127.0.0.7:"},
		{"another port", "127.0.0.1", dnstest.Behaviour{From: "127.0.0.1"}, "dual.example.", "(an answer came from 127.0.0.1:"},
		{"IPv6", "::1", dnstest.Behaviour{From: "::1"}, "dual.example.", "(an answer came from [::1]:"},
		{"through the search domains", "127.0.0.1", dnstest.Behaviour{From: "127.0.0.7"}, "dual.example", "(an answer came from 127.0.0.7:"},
		{"to another query", "127.0.0.1", dnstest.Behaviour{From: "127.0.0.7", OtherID: true}, "dual.example.", ""},
		{"none at all", "127.0.0.1", dnstest.Behaviour{DropUDP: true}, "dual.example.", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.server.Zone = zone
			r := pod(dnstest.StartAt(t, c.ip, c.server))
			f := lookFor(t, brief, &dns.Settings{Name: c.ask, Protocols: []string{resolver.UDP}}, r)
			if f.Reason != check.ReasonTimeout || !strings.Contains(f.Message, c.says) ||
				strings.Contains(f.Message, "an answer came from") != (c.says != "") {
				t.Errorf("got %+v", f)
			}
		})
	}
	// An answer from the server's own address to a query that is repeated counts.
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: zone, DropFirst: 1}))
	if f := look(t, &dns.Settings{Name: "dual.example.", RecordType: "A"}, r); f.Reason != check.ReasonQueryLost {
		t.Errorf("got %+v", f)
	}
}
