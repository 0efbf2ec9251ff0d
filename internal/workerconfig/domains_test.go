package workerconfig_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/workerconfig"
)

func TestAddressesAmongTheDomains(t *testing.T) {
	c, err := workerconfig.Load([]byte(`worker: {dnsTestDomains: [example.com, 8.8.8.8, "2001:db8::1", "::1"]}`), "file")
	if err != nil {
		t.Fatal(err)
	}
	specs := c.Expand()
	if faults := check.Validate(specs, field.NewPath("checks")); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	if got := names(specs); !strings.HasSuffix(got, " dns-example.com dns-8.8.8.8 dns-2001-db8--1 dns---1") {
		t.Errorf("got %s", got)
	}
	if _, err := workerconfig.Load([]byte(`worker: {dnsTestDomains: [endpoints]}`), "file"); err == nil || !strings.Contains(err.Error(), "its check would be named dns-endpoints, as that of a built-in check already is") {
		t.Errorf("got %v", err)
	}
	for _, refused := range []string{"fe80::1%eth0", "[::1]", "8.8.8.8:53", "1:2"} {
		if _, err := workerconfig.Load([]byte(`worker: {dnsTestDomains: ["`+refused+`"]}`), "file"); err == nil {
			t.Errorf("%s is accepted", refused)
		}
	}
}
