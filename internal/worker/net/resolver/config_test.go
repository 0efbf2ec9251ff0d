package resolver_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

func TestParse(t *testing.T) {
	c, err := resolver.Parse([]byte(`# written by the kubelet
search default.svc.cluster.local svc.cluster.local cluster.local .
nameserver 10.96.0.10
nameserver fd00::10
nameserver [127.0.0.1]:5353
nameserver 10.96.0.10
nameserver 10.0.0.4
options ndots:5 timeout:2 attempts:3 rotate edns0 single-request-reopen
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:53"), netip.MustParseAddrPort("[fd00::10]:53"), netip.MustParseAddrPort("127.0.0.1:5353")}
	if !slices.Equal(c.Servers, want) {
		t.Errorf("servers %v, want %v", c.Servers, want)
	}
	if fmt.Sprint(c.Search) != "[default.svc.cluster.local svc.cluster.local cluster.local]" {
		t.Errorf("search %v", c.Search)
	}
	if c.Ndots != 5 || c.Timeout != 2*time.Second || c.Attempts != 3 {
		t.Errorf("got %+v", c)
	}
	if got := c.ClusterDomain(); got != "cluster.local" {
		t.Errorf("cluster domain %s", got)
	}
}

func TestParseDefaults(t *testing.T) {
	c, err := resolver.Parse(nil)
	if err != nil || c.Ndots != 1 || c.Timeout != 5*time.Second || c.Attempts != 2 || len(c.Servers) != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = resolver.Parse([]byte("search default.svc.corp.example svc.corp.example corp.example"))
	if err != nil || c.ClusterDomain() != "corp.example" {
		t.Errorf("got %+v, %v", c, err)
	}
}

// The kubelet's search list of a namespace called svc has two entries that begin so.
func TestTheClusterDomainOfANamespaceCalledSvc(t *testing.T) {
	for search, want := range map[string]string{
		"svc.svc.cluster.local svc.cluster.local cluster.local":                   "cluster.local",
		"a.svc.cluster.local svc.cluster.local cluster.local svc.example example": "cluster.local",
		"svc.example a.svc.cluster.local svc.cluster.local cluster.local":         "cluster.local",
		"svc.corp.example": "corp.example",
		"example":          resolver.DefaultClusterDomain,
	} {
		if c, err := resolver.Parse([]byte("search " + search)); err != nil || c.ClusterDomain() != want {
			t.Errorf("%s: got %s, %v", search, c.ClusterDomain(), err)
		}
	}
}

// TestOneOddLine checks that a nameserver that resolvers skip does not void the others.
func TestOneOddLine(t *testing.T) {
	for _, c := range []struct{ line, server, says string }{
		{"<nil>", "", `nameserver "<nil>" is skipped, because it is not an IP address`},
		{"10.0.0.1#53", "", `nameserver "10.0.0.1#53" is skipped`}, // glibc 2.36 and musl 1.2.3 were asked
		{"10.0.0.1;dns", "", "is skipped"},
		{"fd00::1#53", "", "is skipped"},
		{"010.000.000.010", "", "is skipped"}, // libc reads octal numbers: 8.0.0.8
		{"dns.example", "", `"dns.example" is skipped`},
		{"10.0.0.1:x", "", "is skipped"},
		{"10.0.0.1,10.0.0.2", "", "is skipped"},
		{"#10.0.0.1", "", "is skipped"},
		{"10.0.0.1 # the first", "10.0.0.1:53", ""},
		{"10.0.0.1:5353", "10.0.0.1:5353", ""},
	} {
		config, err := resolver.Parse([]byte("nameserver " + c.line + "\nnameserver 10.96.0.10\n"))
		want := []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:53")}
		if c.server != "" {
			want = append([]netip.AddrPort{netip.MustParseAddrPort(c.server)}, want...)
		}
		if err != nil || !slices.Equal(config.Servers, want) {
			t.Errorf("%s: got %v, %v, want %v", c.line, config.Servers, err, want)
		}
		if odd := strings.Join(config.Odd, "\n"); (odd != "") != (c.says != "") || !strings.Contains(odd, c.says) {
			t.Errorf("%s: got %q, want %q", c.line, odd, c.says)
		}
	}
}

func TestNames(t *testing.T) {
	c := resolver.Config{Search: []string{"default.svc.cluster.local", "cluster.local"}, Ndots: 2}
	for name, want := range map[string]string{
		"a":                                   "a.default.svc.cluster.local. a.cluster.local. a.",
		"a.b":                                 "a.b.default.svc.cluster.local. a.b.cluster.local. a.b.",
		"a.b.c":                               "a.b.c. a.b.c.default.svc.cluster.local. a.b.c.cluster.local.",
		"a.b.c.":                              "a.b.c.",
		"a.":                                  "a.",
		strings.Repeat("abcdefgh.", 26) + "x": strings.Repeat("abcdefgh.", 26) + "x. " + strings.Repeat("abcdefgh.", 26) + "x.cluster.local.",
	} {
		if got := strings.Join(c.Names(name), " "); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// FuzzParse: whatever resolv.conf holds, what is made of it can be asked.
func FuzzParse(f *testing.F) {
	f.Add([]byte("nameserver 10.96.0.10\nsearch a.b c\noptions ndots:5 timeout:0 attempts:99999999999999999999"), "name.example")
	f.Add([]byte("nameserver [::1]:53\ndomain\nsearch . .. "+strings.Repeat("x", 300)), "a.")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		c, err := resolver.Parse(data)
		if err != nil {
			return
		}
		if len(c.Servers) > 3 || c.Ndots < 0 || c.Timeout <= 0 || c.Attempts < 1 {
			t.Errorf("got %+v", c)
		}
		for _, s := range c.Servers {
			if !s.IsValid() || s.Port() == 0 {
				t.Errorf("server %v", s)
			}
		}
		if resolver.ValidateName(name) != nil {
			return
		}
		names := c.Names(name)
		if len(names) == 0 {
			t.Errorf("no name to ask for")
		}
		for _, n := range names {
			if err := resolver.ValidateName(n); err != nil || !strings.HasSuffix(n, ".") {
				t.Errorf("%q: %v", n, err)
			}
		}
	})
}
