package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/tlstest"
)

// account is a service account's directory; empty contents leave the file out.
func account(t *testing.T, token, ca string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"token": token, "ca.crt": ca} {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	ca := tlstest.NewAuthority(t).PEM()
	for _, c := range []struct{ name, host, token, ca, says string }{
		{"outside a pod", "", "t", ca, "KUBERNETES_SERVICE_HOST"},
		{"no CA", "h", "t", "", "the cluster's CA cannot be read"},
		{"a CA that is none", "h", "t", "nonsense", "holds no PEM certificate"},
		{"no token", "h", "", ca, "token cannot be read"},
		{"an empty token", "h", "\n", ca, "is empty"},
		{"all there", "h", "t", ca, ""},
	} {
		_, err := apiserver.New(c.host, "443", account(t, c.token, c.ca), &resolver.Resolver{})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
	if _, err := apiserver.New("", "", "", nil); !errors.Is(err, apiserver.ErrNoCluster) {
		t.Errorf("got %v", err)
	}
}

func TestIPv6(t *testing.T) {
	dir := account(t, "t", tlstest.NewAuthority(t).PEM())
	for _, host := range []string{"fd00::1", "[fd00::1]"} {
		c, err := apiserver.New(host, "443", dir, &resolver.Resolver{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Address() != "[fd00::1]:443" || c.URL(c.Host, "/readyz") != "https://[fd00::1]:443/readyz" {
			t.Errorf("%s: got %s, %s", host, c.Address(), c.URL(c.Host, "/readyz"))
		}
	}
}

// TestTheTokenIsReadForEachRequest: the kubelet replaces bound tokens before they expire.
func TestTheTokenIsReadForEachRequest(t *testing.T) {
	var seen []string
	authority := tlstest.NewAuthority(t)
	server := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		_, _ = fmt.Fprint(w, "{}")
	}))
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	dir := account(t, "first\n", authority.PEM())
	c, err := apiserver.New(host, port, dir, &resolver.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Service(context.Background(), "default", "kubernetes"); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(seen, ", ") != "Bearer first, Bearer second" {
		t.Errorf("got %v", seen)
	}
}
