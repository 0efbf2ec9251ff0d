// Package apitest runs API servers for tests that answer as no real one can be made to:
// with any status, certificate or clock.
package apitest

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// Client starts a server with the given certificate and handler until the test ends, and
// returns a client of it that trusts the authority.
func Client(t testing.TB, authority *tlstest.Authority, cert tls.Certificate, h http.Handler) *apiserver.Client {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"token": "header.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDp3b3JrZXIifQ.signature\n", "ca.crt": authority.PEM()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := tlstest.Serve(t, cert, h)
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	c, err := apiserver.New(host, port, dir, &resolver.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
