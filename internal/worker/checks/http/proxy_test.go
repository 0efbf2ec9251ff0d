package http_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// proxy leads every request to one backend, whatever host it asks for, and refuses those for host denied.example.
func proxy(t *testing.T, backend string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "denied.example") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.Method != http.MethodConnect {
			_, _ = io.WriteString(w, "by the proxy: "+r.URL.String())
			return
		}
		upstream, err := net.Dial("tcp", backend)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Nodes whose way out is a proxy reach nothing else, and the name need not resolve on them.
func TestProxy(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	secure := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), site())
	through := proxy(t, secure.Listener.Addr().String())
	verify(t, nil, []want{
		{"https", httpcheck.Settings{URL: "https://good.example/ok", CA: authority.PEM(), Proxy: through}, check.NoReason, "answered status 200"},
		{"http", httpcheck.Settings{URL: "http://good.example/ok", Proxy: through, ExpectBody: "^by the proxy: http://good.example/ok$"}, check.NoReason, ""},
		{"the proxy refuses", httpcheck.Settings{URL: "https://denied.example/", Proxy: through}, check.ReasonUnexpectedStatus,
			"the proxy " + through + " answered CONNECT with status 403 Forbidden"},
		{"no proxy there", httpcheck.Settings{URL: "https://good.example/", Proxy: "http://127.0.0.1:1"}, check.ReasonConnectionRefused,
			"https://good.example/ through the proxy http://127.0.0.1:1 refused the connection"},
	})
}

// The environment does not decide: a proxy is used where a check names it.
func TestNoProxyOfTheEnvironment(t *testing.T) {
	s := httptest.NewServer(site())
	defer s.Close()
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	t.Setenv("HTTPS_PROXY", "http://192.0.2.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if f := (&httpcheck.Settings{URL: s.URL + "/ok"}).New(environment.Pod{Resolver: &resolver.Resolver{}})(ctx); !f.Passed() {
		t.Error(f.Message)
	}
}
