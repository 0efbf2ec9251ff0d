package dns_test

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/dnstest"
)

// The built-in name is in the domain that resolv.conf shows.
func TestTheClustersOwnDomain(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"kubernetes.default.svc.corp.example.": {"A 10.96.0.1"}}}))
	r.Config.Search = []string{"ns.svc.corp.example", "svc.corp.example", "corp.example"}
	if f := probe(t, nil, r); !f.Passed() || !strings.Contains(f.Message, "kubernetes.default.svc.corp.example") {
		t.Errorf("got %+v", f)
	}
}

// A wildcard in a search domain answers whatever is looked up through it, and says nothing about
// the cluster's DNS.
func TestAWildcardInASearchDomain(t *testing.T) {
	r := pod(dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{
		"kubernetes.default.svc.cluster.local.wild.example.": {"A 192.0.2.1"},
	}}))
	r.Config.Search = append(r.Config.Search, "wild.example")
	if f := probe(t, nil, r); f.Reason != check.ReasonNXDomain {
		t.Errorf("got %+v", f)
	}
	// A name that is given without a dot goes through the search domains, as programs do.
	if f := probe(t, &check.DNS{Name: "kubernetes.default.svc.cluster.local"}, r); !f.Passed() {
		t.Errorf("got %+v", f)
	}
}
