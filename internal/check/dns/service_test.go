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

// Distributions call the DNS Service by several names; resolv.conf has its address.
func TestTheDNSServiceIsFoundByItsAddress(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	server := dnstest.StartAt(t, "127.0.0.1", dnstest.Behaviour{Zone: zone})
	const refused = "refused"
	for _, c := range []struct {
		name     string
		services map[string]string // cluster IP by namespace/name
		settings check.DNS
		reason   check.Reason
		says     string
	}{
		{"kubeadm's", map[string]string{"kube-system/kube-dns": "127.0.0.1"}, check.DNS{}, "", "Service kube-system/kube-dns, which has the address in resolv.conf"},
		{"OpenShift's", map[string]string{"openshift-dns/dns-default": "127.0.0.1"}, check.DNS{}, "", "Service openshift-dns/dns-default, which"},
		{"RKE2's", map[string]string{"kube-system/rke2-coredns-rke2-coredns": "127.0.0.1"}, check.DNS{}, "", "Service kube-system/rke2-coredns-rke2-coredns, which"},
		{"kubespray's", map[string]string{"kube-system/coredns": "127.0.0.1"}, check.DNS{}, "", "Service kube-system/coredns, which"},
		{"the one with the address", map[string]string{"kube-system/kube-dns": "10.96.0.10", "kube-system/coredns": "127.0.0.1"}, check.DNS{}, "", "Service kube-system/coredns, which"},
		{"behind a cache on the node", map[string]string{"kube-system/coredns": "10.96.0.10"}, check.DNS{}, "", "Service kube-system/coredns, the first of the known names"},
		{"that may not be read", map[string]string{"kube-system/kube-dns": "127.0.0.1", "openshift-dns/dns-default": refused}, check.DNS{}, "", "Service kube-system/kube-dns"},
		{"none", nil, check.DNS{}, check.ReasonServiceNotFound, "none of the Services kube-system/kube-dns, kube-system/coredns"},
		{"none that may be read", map[string]string{"kube-system/kube-dns": refused}, check.DNS{}, check.ReasonForbidden, "lacks a permission"},
		{"by name", map[string]string{"dns/mine": "10.96.0.99"}, check.DNS{Service: "dns/mine"}, "", "Service dns/mine"},
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
			c.settings.Name, c.settings.Resolver = "dual.example.", check.ResolverEndpoints
			f := dns.New(&c.settings, pod(server), api, "node-a")(ctx)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v, want %q with %q", f, c.reason, c.says)
			}
		})
	}
}
