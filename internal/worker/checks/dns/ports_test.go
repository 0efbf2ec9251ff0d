package dns_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// TestThePortsOfEndpoints checks names and numbers that Services for DNS give their ports: those of the CoreDNS chart
// (coredns/helm#76), and others.
func TestThePortsOfEndpoints(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	number := dnstest.StartAt(t, "127.0.0.1", dnstest.Behaviour{Zone: zone}).Port()
	port := func(name, protocol string, number uint16) string {
		return fmt.Sprintf(`{"name":%q,"protocol":%q,"port":%d}`, name, protocol, number)
	}
	metrics := port("metrics", "TCP", 9153)
	for _, c := range []struct {
		name           string
		service, slice []string
		reason         check.Reason
	}{
		{"of the CoreDNS chart", []string{port("udp-53", "UDP", 53), port("tcp-53", "TCP", 53), metrics},
			[]string{metrics, port("udp-53", "UDP", number), port("tcp-53", "TCP", number)}, check.NoReason},
		{"the other UDP port is not for DNS",
			[]string{port("quic", "UDP", 853), port("domain", "UDP", 53), port("domain-tcp", "TCP", 53)},
			[]string{port("quic", "UDP", 853), port("domain", "UDP", number), port("domain-tcp", "TCP", number)},
			check.NoReason},
		{"without names", []string{port("", "UDP", 53)},
			[]string{port("", "UDP", number), port("", "TCP", number)}, check.NoReason},
		{"of a Service that is not read", nil,
			[]string{port("udp-53", "UDP", number), port("tcp-53", "TCP", number), metrics}, check.NoReason},
		{"none for TCP", []string{port("udp-53", "UDP", 53)},
			[]string{port("udp-53", "UDP", number), metrics}, check.ReasonNoServers},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/services/kube-dns") {
					_, _ = fmt.Fprintf(w, `{"spec":{"clusterIP":"10.96.0.10","ports":[%s]}}`, strings.Join(c.service, ","))
					return
				}
				_, _ = fmt.Fprintf(w, `{"items":[{"addressType":"IPv4","endpoints":[{"addresses":["127.0.0.1"]}],"ports":[%s]}]}`,
					strings.Join(c.slice, ","))
			}))
			settings := &dns.Settings{Name: "dual.example.", Resolver: dns.ResolverEndpoints, Protocols: []string{"udp", "tcp"}}
			if c.service == nil {
				settings.Service = "kube-system/kube-dns"
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			f := settings.New(environment.Pod{Resolver: pod(), API: api})(ctx)
			if f.Reason != c.reason {
				t.Errorf("got %+v", f)
			}
		})
	}
}
