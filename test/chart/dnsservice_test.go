package chart

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
)

// A worker may read the DNS Service by each name that it looks for, and no other Service beside it.
func TestWorkersMayLookForTheDNSService(t *testing.T) {
	const values = "controller: {config: {worker: {checks: [{name: dns, type: dns, dns: {resolver: endpoints}}]}}}"
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{nil, slices.DeleteFunc(slices.Clone(dns.Services), func(s string) bool { return strings.HasPrefix(s, "openshift-dns/") })},
		{[]string{"--api-versions", "config.openshift.io/v1"}, dns.Services},
	} {
		found := render(t, values, c.flags...)
		var may []string
		for key, object := range found {
			if object.GetKind() != "Role" || !strings.HasSuffix(object.GetName(), "-worker") {
				continue
			}
			for _, rule := range get[rbacv1.Role](t, found, key).Rules {
				for _, name := range rule.ResourceNames {
					may = append(may, object.GetNamespace()+"/"+name)
				}
			}
		}
		slices.Sort(may)
		want := slices.Sorted(slices.Values(c.want))
		if !slices.Equal(may, want) {
			t.Errorf("%v: workers may read %v, want %v", c.flags, may, want)
		}
	}
}
