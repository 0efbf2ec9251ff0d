package servicediscovery_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// TestExternalName checks that a Service without endpoints by its nature does not wait for one.
func TestExternalName(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	const spec = `"type":"ExternalName","externalName":"db.example"`
	for _, c := range []struct {
		name, spec, alias string
		settings          servicediscovery.Settings
		outcome           check.Outcome
		reason            check.Reason
		says              string
	}{
		{"default settings", spec, "db.example.", servicediscovery.Settings{}, check.Passed, check.NoReason,
			"Service shop/db is an alias of db.example, and DNS resolves it"},
		{"an IPv6 address", spec, "six.example.", servicediscovery.Settings{}, check.Passed, check.NoReason, "alias"},
		{"with an empty cluster IP", spec + `,"clusterIP":"","ports":[{"name":"sql","port":5432,"protocol":"TCP"}]`,
			"db.example.", servicediscovery.Settings{}, check.Passed, check.NoReason, "alias"},
		{"endpoints are asked for", spec, "db.example.", servicediscovery.Settings{MinReadyEndpoints: new(int32(1))},
			check.Inconclusive, check.ReasonNoReadyEndpoints, "expected at least 1"},
		{"DNS has no such name", spec, "none.example.", servicediscovery.Settings{},
			check.Failed, check.ReasonResolutionFailed, "db.shop.svc.cluster.local. is a CNAME of none.example., which came"},
		{"nor one that it leads to", spec, "alias.example.", servicediscovery.Settings{},
			check.Failed, check.ReasonResolutionFailed, "alias.example. is a CNAME of none.example., which came"},
		{"another type", `"clusterIP":"10.96.0.1"`, "db.example.", servicediscovery.Settings{},
			check.Inconclusive, check.ReasonNoReadyEndpoints, "0 ready endpoints"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{
				"db.shop.svc.cluster.local.": {"CNAME " + c.alias},
				"db.example.":                {"A 192.0.2.1"},
				"six.example.":               {"AAAA 2001:db8::1"},
				"alias.example.":             {"CNAME none.example."},
			}})
			pod := environment.Pod{API: apitest.Client(t, authority, certificate,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/endpointslices") {
						_, _ = fmt.Fprint(w, `{"items":[]}`)
						return
					}
					_, _ = fmt.Fprintf(w, `{"spec":{%s}}`, c.spec)
				}))}
			pod.Resolver = &resolver.Resolver{}
			pod.Resolver.Config = resolver.Config{Servers: []netip.AddrPort{server}, Timeout: 3 * time.Second, Attempts: 1}
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			c.settings.Namespace, c.settings.Service = "shop", "db"
			f := c.settings.New(pod)(ctx)
			if f.Outcome != c.outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
		})
	}
}
