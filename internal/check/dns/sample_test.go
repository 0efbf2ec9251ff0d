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
	probe := func(node string, sample int32, items ...string) check.Finding {
		api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/services/kube-dns") {
				_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.10"}}`)
				return
			}
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return dns.New(&check.DNS{Name: "dual.example.", Resolver: check.ResolverEndpoints, Sample: sample}, pod(), api, node)(ctx)
	}
	if f := probe("a", 3, items...); !f.Passed() || !strings.Contains(f.Message, "from 3 servers") || !strings.Contains(f.Message, "asked: 3 of 8 endpoints of Service kube-system/kube-dns") {
		t.Errorf("got %+v", f)
	}
	if f := probe("a", 0, items...); !strings.Contains(f.Message, "asked: 8 endpoints of") {
		t.Errorf("got %+v", f)
	}
	if f := probe("a", 9, items[:2]...); !strings.Contains(f.Message, "asked: 2 endpoints of") {
		t.Errorf("got %+v", f)
	}
	// Over many nodes, one that is out of reach comes up, at the same nodes each time.
	found := map[string]bool{}
	for i := range 12 {
		node := fmt.Sprintf("node-%d", i)
		found[node] = !probe(node, 3, append(items, dead)...).Passed()
		if again := !probe(node, 3, append([]string{dead}, items...)...).Passed(); again != found[node] {
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
