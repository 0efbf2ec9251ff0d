package resolver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// /etc/hosts comes before DNS, as for every program in the pod.
func TestHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	content := `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost # a comment
10.0.0.7  DB.example.  db
not-an-address nonsense
fe80::1%eth0 linklocal
10.0.0.8`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	r := of(dnstest.Start(t, dnstest.Behaviour{Zone: hosts}))
	var err error
	if r.Hosts, err = resolver.LoadHosts(path); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"localhost": "[127.0.0.1 ::1]", "LOCALHOST.": "[127.0.0.1 ::1]", "ip6-localhost": "[::1]",
		"db.example": "[10.0.0.7]", "db": "[10.0.0.7]", "web.example": "[127.0.0.1 ::1]", "10.0.0.9": "[10.0.0.9]",
	} {
		addrs, _, err := r.LookupAddrs(context.Background(), host)
		if err != nil || fmt.Sprint(addrs) != want {
			t.Errorf("%s: got %v, %v", host, addrs, err)
		}
	}
	for _, host := range []string{"nonsense", "10.0.0.8x"} {
		if addrs, _, err := r.LookupAddrs(context.Background(), host); err == nil {
			t.Errorf("%s: got %v", host, addrs)
		}
	}
	// It works without a nameserver, and DNS alone is asked without it.
	r.Config.Servers = nil
	if addrs, _, err := r.LookupAddrs(context.Background(), "db"); err != nil || len(addrs) != 1 {
		t.Errorf("got %v, %v", addrs, err)
	}
	if a, err := r.Query(context.Background(), "db", 1); err == nil {
		t.Errorf("got %v", a)
	}
	if h, err := resolver.LoadHosts(path + "x"); err != nil || len(h) != 0 {
		t.Errorf("a container without the file: got %v, %v", h, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#", 2<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := resolver.LoadHosts(path); err == nil {
		t.Error("two megabytes are read")
	}
}
