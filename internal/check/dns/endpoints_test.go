package dns_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/apitest"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dnstest"
	"github.com/kube-node-ready/kube-node-ready/internal/check/tlstest"
)

// slices is an API server with one slice per endpoint, for a real one refuses endpoints on
// loopback.
func slices(endpoints ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/services/kube-dns") {
			_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.10"}}`)
			return
		}
		if r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=kube-dns" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		// A page each, to have the list continued.
		page := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &page)
		next := ""
		if page+1 < len(endpoints) {
			next = fmt.Sprint(page + 1)
		}
		items := ""
		if len(endpoints) > 0 {
			items = endpoints[page]
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[%s]}`, next, items)
	})
}

func slice(ip string, port uint16, pod string, ready bool) string {
	return fmt.Sprintf(`{"addressType":"IPv4","endpoints":[{"addresses":[%q],"conditions":{"ready":%t},"targetRef":{"kind":"Pod","name":%q}}],
		"ports":[{"name":"dns","protocol":"UDP","port":%d},{"name":"dns-tcp","protocol":"TCP","port":%d},{"name":"metrics","protocol":"TCP","port":9153}]}`, ip, ready, pod, port, port)
}

func TestEachEndpointIsAskedOnItsOwn(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	good := dnstest.StartAt(t, "127.0.0.1", dnstest.Behaviour{Zone: zone})
	six := dnstest.StartAt(t, "::1", dnstest.Behaviour{Zone: zone})
	mute := dnstest.StartAt(t, "127.0.0.3", dnstest.Behaviour{Zone: zone, DropTCP: true})
	goodSlice, sixSlice := slice("127.0.0.1", good.Port(), "coredns-a", true), slice("::1", six.Port(), "coredns-b", true)

	for _, c := range []struct {
		name   string
		slices []string
		reason check.Reason
		says   string
	}{
		{"all good", []string{goodSlice, sixSlice}, "", "from 2 servers over UDP and TCP"},
		{"one does not answer over TCP", []string{goodSlice, sixSlice, slice("127.0.0.3", mute.Port(), "coredns-c", true)}, check.ReasonTimeout,
			fmt.Sprintf("127.0.0.3:%d (coredns-c), asked over TCP, did not answer a query for kubernetes.default.svc.cluster.local. in 300ms; the 5 other queries were answered well", mute.Port())},
		{"one that is not ready is left alone", []string{goodSlice, slice("127.0.0.4", 1, "coredns-d", false)}, "", "from 1 server"},
		{"none", nil, check.ReasonNoReadyEndpoints, "kube-system/kube-dns has no ready endpoint"},
		{"no port for TCP", []string{strings.Replace(goodSlice, `"name":"dns-tcp"`, `"name":"other"`, 1)}, check.ReasonNoServers, "no port for DNS over TCP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := apitest.Client(t, authority, certificate, slices(c.slices...))
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			f := dns.New(&check.DNS{Name: "kubernetes.default.svc.cluster.local.", Resolver: check.ResolverEndpoints, Protocols: []string{"udp", "tcp"}}, pod(), api, "node-a")(ctx)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
		})
	}
}
