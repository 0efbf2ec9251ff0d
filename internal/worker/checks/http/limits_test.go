package http_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// A server cannot make the worker hold headers without end: net/http alone takes 10 MiB a response.
func TestLargeHeadersAreRefused(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 256 {
			w.Header().Add("X-Large", strings.Repeat("a", 16<<10))
		}
	})
	plain := httptest.NewServer(large)
	defer plain.Close()
	authority := tlstest.NewAuthority(t)
	secure := httptest.NewUnstartedServer(large)
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, tlstest.Certificate{})}, MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	defer secure.Close()
	for protocol, settings := range map[string]httpcheck.Settings{
		"HTTP/1.1": {URL: plain.URL}, "HTTP/2": {URL: secure.URL, CA: authority.PEM()},
	} {
		f := run(t, settings, nil)
		if f.Reason != check.ReasonMalformedResponse || !strings.Contains(f.Message, "more than 64 KiB of headers") {
			t.Errorf("%s: got %q: %s", protocol, f.Reason, f.Message)
		}
	}
}
