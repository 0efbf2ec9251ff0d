package dns_test

import (
	"strings"
	"testing"

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
