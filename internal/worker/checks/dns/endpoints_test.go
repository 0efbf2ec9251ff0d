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
		{"all good", []string{goodSlice, sixSlice}, check.NoReason, "from 2 servers over UDP and TCP"},
		{"one does not answer over TCP", []string{goodSlice, sixSlice, slice("127.0.0.3", mute.Port(), "coredns-c", true)}, check.ReasonTimeout,
			fmt.Sprintf("127.0.0.3:%d (coredns-c), asked over TCP, did not answer a query for kubernetes.default.svc.cluster.local. (A) in 300ms, nor that for AAAA; the 5 other queries succeeded", mute.Port())},
		{"one that is not ready is left alone", []string{goodSlice, slice("127.0.0.4", 1, "coredns-d", false)}, check.NoReason, "from 1 server"},
		{"none", nil, check.ReasonNoReadyEndpoints, "kube-system/kube-dns has no ready endpoint"},
		{"no port for TCP", []string{strings.Replace(goodSlice, `"name":"dns-tcp","protocol":"TCP"`, `"name":"other","protocol":"SCTP"`, 1)}, check.ReasonNoServers, "no port for DNS over TCP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := apitest.Client(t, authority, certificate, slices(c.slices...))
			settings := &dns.Settings{Name: "kubernetes.default.svc.cluster.local.", Resolver: dns.ResolverEndpoints, Protocols: []string{"udp", "tcp"}}
			f := settings.New(environment.Pod{Resolver: pod(), API: api, Node: "node-a"})(t.Context()) // without a deadline it tries once
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
		})
	}
}

// Of many endpoints a few are asked, and not the same few by every node.
func TestASampleOfTheEndpoints(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	var items []string
	for i := range 8 {
		ip := fmt.Sprintf("127.0.1.%d", i+1)
		server := dnstest.StartAt(t, ip, dnstest.Behaviour{Zone: zone})
		items = append(items, slice(ip, server.Port(), fmt.Sprintf("coredns-%d", i), true))
	}
	dead := slice("127.0.0.4", 1, "coredns-dead", true)
	look := func(node string, sample int32, items ...string) check.Finding {
		api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/services/kube-dns") {
				_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.10"}}`)
				return
			}
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		}))
		settings := &dns.Settings{Name: "dual.example.", Resolver: dns.ResolverEndpoints, Sample: sample}
		return settings.New(environment.Pod{Resolver: pod(), API: api, Node: node})(t.Context()) // without a deadline it tries once
	}
	if f := look("a", 3, items...); !f.Passed() || !strings.Contains(f.Message, "from 3 servers") || !strings.Contains(f.Message, "asked: 3 of 8 endpoints of Service kube-system/kube-dns") {
		t.Errorf("got %+v", f)
	}
	if f := look("a", 0, items...); !strings.Contains(f.Message, "asked: 8 endpoints of") {
		t.Errorf("got %+v", f)
	}
	if f := look("a", 9, items[:2]...); !strings.Contains(f.Message, "asked: 2 endpoints of") {
		t.Errorf("got %+v", f)
	}
	// Over many nodes, one that is out of reach comes up, at the same nodes each time.
	found := map[string]bool{}
	for i := range 12 {
		node := fmt.Sprintf("node-%d", i)
		found[node] = !look(node, 3, append(items, dead)...).Passed()
		if again := !look(node, 3, append([]string{dead}, items...)...).Passed(); again != found[node] {
			t.Errorf("%s: the order of the list changes the sample", node)
		}
	}
	hits := 0
	for _, hit := range found {
		if hit {
			hits++
		}
	}
	if hits == 0 || hits == len(found) {
		t.Errorf("found by %d of %d nodes", hits, len(found))
	}
}

// Distributions call the DNS Service by several names; resolv.conf has its address.
func TestTheDNSServiceIsFoundByItsAddress(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	server := dnstest.StartAt(t, "127.0.0.1", dnstest.Behaviour{Zone: zone})
	const refused = "refused"
	for _, c := range []struct {
		name     string
		services map[string]string // cluster IP by namespace/name
		settings dns.Settings
		reason   check.Reason
		says     string
	}{
		{"kubeadm's", map[string]string{"kube-system/kube-dns": "127.0.0.1"}, dns.Settings{}, check.NoReason, "Service kube-system/kube-dns, which has the address in resolv.conf"},
		{"OpenShift's", map[string]string{"openshift-dns/dns-default": "127.0.0.1"}, dns.Settings{}, check.NoReason, "Service openshift-dns/dns-default, which"},
		{"RKE2's", map[string]string{"kube-system/rke2-coredns-rke2-coredns": "127.0.0.1"}, dns.Settings{}, check.NoReason, "Service kube-system/rke2-coredns-rke2-coredns, which"},
		{"kubespray's", map[string]string{"kube-system/coredns": "127.0.0.1"}, dns.Settings{}, check.NoReason, "Service kube-system/coredns, which"},
		{"the one with the address", map[string]string{"kube-system/kube-dns": "10.96.0.10", "kube-system/coredns": "127.0.0.1"}, dns.Settings{}, check.NoReason, "Service kube-system/coredns, which"},
		{"behind a cache on the node", map[string]string{"kube-system/coredns": "10.96.0.10"}, dns.Settings{}, check.NoReason, "Service kube-system/coredns, the first known name"},
		{"that may not be read", map[string]string{"kube-system/kube-dns": "127.0.0.1", "openshift-dns/dns-default": refused}, dns.Settings{}, check.NoReason, "Service kube-system/kube-dns"},
		{"none that exists", map[string]string{"openshift-dns/dns-default": refused}, dns.Settings{}, check.ReasonNoDNSService, "none of the known Services kube-system/kube-dns, kube-system/coredns"},
		{"none", nil, dns.Settings{}, check.ReasonNoDNSService, "none of the known Services kube-system/kube-dns, kube-system/coredns"},
		{"none that may be read", map[string]string{"kube-system/kube-dns": refused, "kube-system/coredns": refused, "kube-system/rke2-coredns-rke2-coredns": refused, "openshift-dns/dns-default": refused}, dns.Settings{}, check.ReasonForbidden, "lacks a permission"},
		{"by name", map[string]string{"dns/mine": "10.96.0.99"}, dns.Settings{Service: "dns/mine"}, check.NoReason, "Service dns/mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/endpointslices") {
					service := strings.TrimPrefix(r.URL.Query().Get("labelSelector"), "kubernetes.io/service-name=")
					if _, exists := c.services[strings.Split(r.URL.Path, "/")[5]+"/"+service]; exists {
						_, _ = fmt.Fprintf(w, `{"items":[%s]}`, slice("127.0.0.1", server.Port(), "coredns-a", true))
						return
					}
				}
				parts := strings.Split(r.URL.Path, "/") // /api/v1/namespaces/N/services/S
				switch ip := c.services[parts[4]+"/"+parts[len(parts)-1]]; ip {
				case "":
					w.WriteHeader(http.StatusNotFound)
				case refused:
					w.WriteHeader(http.StatusForbidden)
				default:
					_, _ = fmt.Fprintf(w, `{"spec":{"clusterIP":%q,"ports":[{"name":"dns","protocol":"UDP","port":%d}]}}`, ip, server.Port())
				}
			}))
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			c.settings.Name, c.settings.Resolver = "dual.example.", dns.ResolverEndpoints
			f := c.settings.New(environment.Pod{Resolver: pod(server), API: api, Node: "node-a"})(ctx)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v, want %q with %q", f, c.reason, c.says)
			}
		})
	}
}

// Where there is none of the known Services, none is waited for; and what cannot be read is named.
func TestWithoutAKnownDNSService(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	for _, c := range []struct {
		status int
		reason check.Reason
		says   string
		most   time.Duration
	}{
		{http.StatusNotFound, check.ReasonNoDNSService, "none of the known Services", 3 * brief},
		{http.StatusServiceUnavailable, check.ReasonAPIUnavailable, "reading Service kube-system/kube-dns:", 6 * brief},
	} {
		api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 5*brief)
		began := time.Now()
		f := (&dns.Settings{Resolver: dns.ResolverEndpoints}).New(environment.Pod{Resolver: pod(), API: api})(ctx)
		cancel()
		if took := time.Since(began); f.Reason != c.reason || !strings.Contains(f.Message, c.says) || took > c.most {
			t.Errorf("%d: after %s, got %+v", c.status, took, f)
		}
	}
}
