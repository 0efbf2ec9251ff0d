package neterror_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// TestProgress: a timeout says what was being waited for.
func TestProgress(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	slow := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // else it would answer, which the client may read before it has closed the connection
	}))
	t.Cleanup(slow.Close)
	blackHole := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }

	for _, c := range []struct {
		url  string
		dial func(context.Context, string, string) (net.Conn, error)
		says string
	}{
		{"https://192.0.2.1/", blackHole, "peer did not accept a connection within 1"},
		{"https://" + silent.Addr().String(), nil, "peer accepted a connection, but did not complete the TLS handshake within 1"},
		{"http://" + silent.Addr().String(), nil, "peer took the request, but did not answer within 1"},
		{slow.URL, nil, "peer took the request, but did not answer within 1"},
	} {
		t.Run(c.url, func(t *testing.T) {
			t.Parallel()
			client := slow.Client()
			transport := client.Transport.(*http.Transport).Clone()
			transport.DialContext = c.dial
			// A handshake may take most of a second on a busy machine. The watch begins a moment after the timeout does, and so
			// reports a little less.
			ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
			defer cancel()
			watched, progress := neterror.Watch(ctx)
			request, err := http.NewRequestWithContext(watched, http.MethodGet, c.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err == nil {
				_ = response.Body.Close()
				t.Fatalf("%s answered", c.url)
			}
			if f := progress.Finding("peer", err); f.Reason != check.ReasonTimeout || !strings.HasPrefix(f.Message, c.says) {
				t.Errorf("%s: got %+v, want %q", c.url, f, c.says)
			}
		})
	}
}
